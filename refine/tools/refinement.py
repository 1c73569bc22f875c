"""The tool ``refinement``: one action and one transaction per call."""

import math
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from sqlalchemy import Select

from refine.errors import InvalidValue, Refused
from refine.extensions import db, safe_rollback
from refine.models import MAX_MUTATIONS, AgentMemory, EditRefused, LeaseLost, RefinementSession
from refine.models.columns import ID, MAX_ID
from refine.models.ledger.ledger import Ledger
from refine.models.runs.session import editing
from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.survival import LedgerReading, Unread
from refine.outages import NO_RETRY, RetryPolicy, commit_once, in_one_call
from refine.prompts import as_line
from refine.rules.content import MAX_QUERY_CHARACTERS, MAX_SUMMARY_CHARACTERS, bounded_text
from refine.rules.instants import from_iso
from refine.rules.received_json import MAX_ARGUMENT_BYTES, strict_json
from refine.rules.retention import MAX_MERGED
from refine.rules.second_reading import REASONS, Case, Reason, Verdict
from refine.rules.tokens import tokens_at_most
from refine.tools.calls import (
    Result,
    error,
    function_definition,
    invalid,
    missing,
    unknown_parameter,
)

MAX_SEARCH_RESULTS = 20

# The parameters of each action; those in the first tuple are required.
ACTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "search": ((), ("query", "after", "before", "retired")),
    "consolidate": (("ids", "content"), ("reason",)),
    "update": (("id", "content"), ("reason",)),
    "delete": (("id",), ("reason", "by")),
    "protect": (("id",), ()),
    "complete": (("summary",), ()),
}

_PARAMETERS: dict[str, dict[str, Any]] = {
    "action": {"type": "string", "enum": list(ACTIONS)},
    "id": {"type": "integer", "description": "The id of one memory."},
    "ids": {
        "type": "array",
        "items": {"type": "integer"},
        "description": f"consolidate: 2 to {MAX_MERGED} memory ids.",
    },
    "content": {
        "type": "string",
        "description": "consolidate, update: the whole new text of the memory.",
    },
    "reason": {
        "type": "string",
        "enum": list(REASONS),
        "description": "consolidate, update, delete: same (default): what it says stays said. "
        "outdated, wrong: it does not hold any more, or never did; it is retired.",
    },
    "by": {
        "type": "integer",
        "description": "delete: the id of the memory that carries (perhaps in another language) "
        "or replaces it.",
    },
    "query": {"type": "string", "description": "search: a part of the text."},
    "after": {"type": "string", "description": "search: ISO date, inclusive."},
    "before": {"type": "string", "description": "search: ISO date, exclusive."},
    "retired": {
        "type": "boolean",
        "description": "search: what was retired, in place of the rest.",
    },
    "summary": {"type": "string", "description": "complete: what was done and why, briefly."},
}

DEFINITION = function_definition(
    "refinement",
    "Tidy your own core memories. search: find memories (query and/or after, before). "
    "consolidate: merge ids that carry the same moment into one memory with content, no "
    "longer than they were together. update: tighten the content of the memory id. "
    "delete: discard the memory id, because another one already carries it. These three take a "
    "reason: what is outdated or wrong is retired, and its replacement says what holds. protect: "
    "make the memory id constitutional. complete: end the session with a brief summary. Each "
    "result tells operations_left and tokens_left.",
    _PARAMETERS,
    required=["action"],
)

_EDITS = ("consolidate", "update", "delete")
MAX_REFUSALS = 3
_LEAVE_IT = f"Edits of it were refused {MAX_REFUSALS} times or more: leave it as it is"

_TOO_MANY = (
    "{} of {} are shown, because no more fit; search again with a narrower query, after or before"
)


class RefinementTool:
    """The tool for one session, under the caller's lease, or the present one."""

    MAX_MUTATIONS = MAX_MUTATIONS

    def __init__(
        self,
        session: RefinementSession,
        lease_token: uuid.UUID | None = None,
        room_tokens: Callable[[], float] = lambda: math.inf,
        retry: RetryPolicy = NO_RETRY,
        verdicts: Mapping[Case, Verdict | None] | None = None,
    ) -> None:
        """``room_tokens`` tells how many tokens a search result may take now. ``verdicts``: of
        second readings, so that an edit without one raises Unread; None: the code decides alone.
        """
        self._room_tokens = room_tokens
        self._verdicts = verdicts
        self._is_looking_ahead = False
        self._retry = retry
        self._session_id = session.id
        self._lease_token = lease_token or session.lease_token
        # before the first edit locks the agent: of a large ledger, it takes a while
        self._reading = self._new_reading()
        self._reading.follow(session.agent)
        self._was_refused = self._is_unfinished = False
        self._note_figures(session)

    @property
    def stats(self) -> dict[str, int]:
        return dict(self._stats)

    @property
    def left(self) -> dict[str, int]:
        """How much the session may still do, as each result tells: operations and tokens."""
        return dict(self._left)

    def execute(self, /, action: object = None, **params: Any) -> Result:
        """Carry out one call and commit; errors for the model change no memory, faults raise."""
        before = self.stats
        try:
            result = in_one_call(
                lambda: self._carry_out(action, params),
                self._retry,
                is_done=lambda: self._was_refused or self._has_changed(before),
            )
            self._is_unfinished = False
        except Unread:
            self._is_unfinished = False  # nothing was edited yet
            raise
        except _UnknownAction as fault:
            result = error(str(fault), allowed_actions=list(ACTIONS))
        except InvalidValue as fault:
            result = error(str(fault))
        return {**result, **self._left}

    def cases_of(self, calls: Iterable[Mapping[str, Any]]) -> list[Case]:
        """Return what second readings would read now of these calls' edits, of as many as the
        session may still make, each as if those before it were made.
        """
        edits = (call for call in calls if call.get("action") in _EDITS)
        found = list[Case]()
        for params in islice(edits, 0 if self._verdicts is None else self._left["operations_left"]):
            case = commit_once(partial(self._look_ahead, **params), self._retry)
            if case is not None:
                found.append(case)
                self._reading.expected_to_go |= _taken_away(params)
        self._reading.expected_to_go.clear()
        return found

    def _look_ahead(self, /, action: str, **params: Any) -> Case | None:
        self._is_looking_ahead = True
        try:
            session = RefinementSession.held(self._session_id, self._lease_token)
            getattr(self, f"_{action}")(session, **checked(action, params))
        except Unread as unread:
            return unread.case
        except (InvalidValue, Refused):
            pass  # the call itself will tell
        finally:
            self._is_looking_ahead = False
            safe_rollback()
        return None

    def _new_reading(self) -> LedgerReading:
        return LedgerReading(None if self._verdicts is None else self._verdict_on)

    def _verdict_on(self, case: Case) -> Verdict | None:
        if self._verdicts is None or self._is_looking_ahead or case not in self._verdicts:
            raise Unread(case)
        return self._verdicts[case]

    def _has_changed(self, before: dict[str, int]) -> bool:
        session = db.session.get_one(RefinementSession, self._session_id)
        session.lock()
        return session.stats != before or not session.is_running

    def _note_figures(self, session: RefinementSession) -> None:
        self._stats = dict(session.stats)
        is_open = session.is_running
        self._left = {
            "operations_left": session.operations_left if is_open else 0,
            "tokens_left": session.tokens_left if is_open else 0,
        }

    def _carry_out(self, action: object, params: dict[str, Any]) -> Result:
        if self._is_unfinished:  # the reading may have followed an edit that was undone
            self._reading = self._new_reading()
        self._is_unfinished, self._was_refused = True, False
        try:
            session = RefinementSession.held(self._session_id, self._lease_token)
            self._note_figures(session)
            params = checked(action, params)
            result: Result = getattr(self, f"_{action}")(session, **params)
            self._note_figures(session)
        except LeaseLost as lost:
            self._left = dict.fromkeys(self._left, 0)
            return error(f"Session terminated ({lost.status}): no further operation is possible")
        except EditRefused as refusal:
            # committed like a result: the memory that it returns now counts as shown; tried again
            # after a lost answer, the edit would be carried out, though its model has seen nothing
            self._was_refused = True
            return self._refused(session, params, refusal)
        if session.status != "rolled_back":
            return result
        return {
            "type": "refinement_rolled_back",
            "reason": f"All changes of this session were undone: {session.end_reason}",
            "stats": dict(session.stats),
        }

    def _refused(
        self, session: RefinementSession, params: dict[str, Any], refusal: EditRefused
    ) -> Result:
        advice = refusal.advice
        if refusal.cause is not None:
            edited = frozenset(_ids(params.get("ids", params.get("id"))))
            times = session.note_refused(refusal.cause, edited)
            self._note_figures(session)
            advice = _LEAVE_IT if times >= MAX_REFUSALS else advice
        shown = refusal.memory.ledger_entry() if refusal.memory is not None else {}
        return error(". ".join(filter(None, (str(refusal), advice))), **shown)

    def _search(self, session: RefinementSession, **wanted: object) -> Result:
        if all(given is None or given is False for given in wanted.values()):
            raise InvalidValue(f"{missing('query', 'search')} (or after, or before)")
        ledger = session.agent.ledger
        text, found = search_in(ledger, ledger.core(), **wanted)
        count, shown, room_tokens = len(found), list[AgentMemory](), self._room_tokens()
        for memory in found[:MAX_SEARCH_RESULTS]:
            tokens = tokens_at_most(as_line(memory.ledger_entry()))
            if tokens <= room_tokens:
                shown.append(memory)
                room_tokens -= tokens
        SessionEntry.show(session, shown)
        results = [memory.ledger_entry() for memory in shown]
        is_short = len(shown) < min(count, MAX_SEARCH_RESULTS)
        hint = {"hint": _TOO_MANY.format(len(shown), count)} if is_short else {}
        return {"type": "search_results", "query": text, "count": count, **hint, "results": results}

    def _consolidate(
        self, session: RefinementSession, ids: object, content: object, reason: object = "same"
    ) -> Result:
        sources, why, text = _ids(ids), reason_in(reason), text_in(content)
        merged = editing.consolidate(session, sources, text, reading=self._reading, reason=why)
        return {
            "type": "consolidated",
            "id": merged.id,
            "merged_count": len(sources),
            "new_content": merged.content,
        }

    def _update(
        self, session: RefinementSession, id: object, content: object, reason: object = "same"
    ) -> Result:
        id_, why = parse_single_id(id), reason_in(reason)
        memory = editing.update(session, id_, text_in(content), reading=self._reading, reason=why)
        replaced = {"retired": id_} if memory.id != id_ else {}
        return {"type": "updated", "id": memory.id, "content": memory.content, **replaced}

    def _delete(
        self, session: RefinementSession, id: object, reason: object = "same", by: object = None
    ) -> Result:
        id_, why = parse_single_id(id), reason_in(reason)
        by_id = parse_single_id(by) if by is not None else None
        editing.delete(session, id_, reading=self._reading, reason=why, by_id=by_id)
        return {"type": "deleted", "id": id_}

    def _protect(self, session: RefinementSession, id: object) -> Result:
        memory = editing.protect(session, parse_single_id(id), reading=self._reading)
        return {"type": "protected", "id": memory.id, "content": memory.content}

    def _complete(self, session: RefinementSession, summary: object) -> Result:
        text = bounded_text(summary, field="summary", limit=MAX_SUMMARY_CHARACTERS)
        editing.complete(session, text)
        done = {"type": "refinement_complete", "summary": session.summary}
        return {**done, "stats": dict(session.stats)}


class _UnknownAction(InvalidValue):
    """The action is missing or unknown."""


def checked(action: object, params: dict[str, Any]) -> dict[str, Any]:
    """Return complete parameters of a known action, blanks left out; else InvalidValue."""
    if action is None:
        raise _UnknownAction("action is required")
    if not isinstance(action, str) or action not in ACTIONS:
        raise _UnknownAction(invalid("action", action))
    return given_in(params, action, *ACTIONS[action])


def given_in(
    params: Mapping[str, Any], taker: str, required: Sequence[str], optional: Sequence[str]
) -> dict[str, Any]:
    """Return complete parameters, blanks left out; else InvalidValue."""
    allowed = (*required, *optional)
    given = {
        name: value
        for name, value in params.items()
        if name not in _PARAMETERS or not _is_blank(value)
    }
    if set(given) - set(allowed):
        raise InvalidValue(unknown_parameter(taker, allowed))
    for name in required:
        if name not in given:
            raise InvalidValue(missing(name, taker))
    return given


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _ids(value: object) -> list[int]:
    return parse_ids(value) if value != [] else []


def _taken_away(params: Mapping[str, Any]) -> set[int]:
    ids = params.get("ids", params.get("id"))
    return set(_ids(ids)) if params["action"] != "update" else set()


def search_in(
    ledger: Ledger,
    kept: Select[AgentMemory],
    query: object = None,
    after: object = None,
    before: object = None,
    retired: object = False,
) -> tuple[str | None, list[AgentMemory]]:
    """Return the query, and what matches among kept memories or, by date, those retired."""
    if not isinstance(retired, bool):
        raise InvalidValue("retired must be true or false")
    text = None
    if query is not None:
        text = bounded_text(query, field="query", limit=MAX_QUERY_CHARACTERS)
    since, until = _instant("after", after), _instant("before", before)
    return text, ledger.matching(ledger.retired() if retired else kept, text, since, until)


def text_in(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue("content must be text")
    return value


def reason_in(value: object) -> Reason:
    for reason in REASONS:
        if value == reason:
            return reason
    raise InvalidValue(f"reason must be one of: {', '.join(REASONS)}")


def _instant(name: str, value: object) -> datetime | None:
    if value is None:
        return None
    try:
        return from_iso(value if isinstance(value, str) else "")
    except (ValueError, OverflowError):
        raise InvalidValue(f"{name} must be an ISO date such as 2026-03-01") from None


# -- ids as models write them ----------------------------------------------------------------------

# Far more than one merge takes, and far fewer than a database takes in a list.
MAX_IDS = 1_000
_NUMBERED = re.compile(rf"#?({ID.pattern})")
_EXPECTED = "use a number such as 7, or a list such as [7, 9]"


def parse_ids(value: object) -> list[int]:
    """Return the distinct ids in 7, "7", "#7", "7, 9", [7, 9] or "[7, 9]"; or InvalidValue."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(InvalidValue):
            value = strict_json(value, max_bytes=MAX_ARGUMENT_BYTES)
    if isinstance(value, str):
        parts: list[object] = [part.strip() for part in value.split(",")]
    elif isinstance(value, list):
        parts = value
    else:
        parts = [value]
    if not parts:
        raise InvalidValue(f"no memory id given; {_EXPECTED}")
    if len(parts) > MAX_IDS:
        raise InvalidValue(f"too many memory ids; at most {MAX_IDS:,} per call")
    return list(dict.fromkeys(_parse_id(part) for part in parts))


def parse_single_id(value: object) -> int:
    ids = parse_ids(value)
    if len(ids) != 1:
        raise InvalidValue("id takes a single memory id")
    return ids[0]


def _parse_id(part: object) -> int:
    if type(part) is int:
        number = part if part <= MAX_ID else 0
    else:
        match = _NUMBERED.fullmatch(part.strip()) if isinstance(part, str) else None
        number = int(match.group(1)) if match else 0
    if number < 1:
        raise InvalidValue(f"invalid memory id; {_EXPECTED}")
    return number
