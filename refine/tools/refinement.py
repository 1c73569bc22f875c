"""The tool ``refinement``: one action and one transaction per call."""

import math
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import MAX_MUTATIONS, AgentMemory, EditRefused, LeaseLost, RefinementSession
from refine.models.runs import SessionEntry
from refine.models.runs.session import editing
from refine.models.runs.session.survival import LedgerReading
from refine.outages import NO_RETRY, RetryPolicy, in_one_call
from refine.prompts import as_line
from refine.rules.content import MAX_QUERY_CHARACTERS, MAX_SUMMARY_CHARACTERS, bounded_text
from refine.rules.ids import parse_ids, parse_single_id
from refine.rules.instants import from_iso
from refine.rules.retention import MAX_MERGED
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
    "search": ((), ("query", "after", "before")),
    "consolidate": (("ids", "content"), ()),
    "update": (("id", "content"), ()),
    "delete": (("id",), ()),
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
    "query": {"type": "string", "description": "search: a part of the text."},
    "after": {"type": "string", "description": "search: ISO date, inclusive."},
    "before": {"type": "string", "description": "search: ISO date, exclusive."},
    "summary": {"type": "string", "description": "complete: what was done and why, briefly."},
}

DEFINITION = function_definition(
    "refinement",
    "Tidy your own core memories. search: find memories (query and/or after, before). "
    "consolidate: merge ids that carry the same moment into one memory with content, no "
    "longer than they were together. update: tighten the content of the memory id. "
    "delete: discard the memory id, because another one already carries it. protect: make "
    "the memory id constitutional. complete: end the session with a brief summary. Each "
    "result tells operations_left and tokens_left.",
    _PARAMETERS,
    required=["action"],
)

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
    ) -> None:
        """``room_tokens`` tells how many tokens a search result may take now."""
        self._room_tokens = room_tokens
        self._retry = retry
        self._session_id = session.id
        self._lease_token = lease_token or session.lease_token
        # before the first edit locks the agent: of a large ledger, it takes a while
        self._reading = LedgerReading()
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
        """Carry out one call and commit; errors for the model change nothing, faults raise."""
        before = self.stats
        try:
            result = in_one_call(
                lambda: self._carry_out(action, params),
                self._retry,
                is_done=lambda: self._was_refused or self._has_changed(before),
            )
            self._is_unfinished = False
        except _UnknownAction as fault:
            result = error(str(fault), allowed_actions=list(ACTIONS))
        except InvalidValue as fault:
            result = error(str(fault))
        return {**result, **self._left}

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
            self._reading = LedgerReading()
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
            shown = refusal.memory.ledger_entry() if refusal.memory is not None else {}
            return error(str(refusal), **shown)
        if session.status != "rolled_back":
            return result
        return {
            "type": "refinement_rolled_back",
            "reason": f"All changes of this session were undone: {session.end_reason}",
            "stats": dict(session.stats),
        }

    def _search(
        self,
        session: RefinementSession,
        query: object = None,
        after: object = None,
        before: object = None,
    ) -> Result:
        if query is None and after is None and before is None:
            raise InvalidValue(f"{missing('query', 'search')} (or after, or before)")
        text = None
        if query is not None:
            text = bounded_text(query, field="query", limit=MAX_QUERY_CHARACTERS)
        found = editing.search(session, text, _instant("after", after), _instant("before", before))
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

    def _consolidate(self, session: RefinementSession, ids: object, content: object) -> Result:
        sources = parse_ids(ids) if ids != [] else []
        merged = editing.consolidate(session, sources, _text(content), reading=self._reading)
        return {
            "type": "consolidated",
            "id": merged.id,
            "merged_count": len(sources),
            "new_content": merged.content,
        }

    def _update(self, session: RefinementSession, id: object, content: object) -> Result:
        memory = editing.update(session, parse_single_id(id), _text(content), reading=self._reading)
        return {"type": "updated", "id": memory.id, "content": memory.content}

    def _delete(self, session: RefinementSession, id: object) -> Result:
        memory = editing.delete(session, parse_single_id(id), reading=self._reading)
        return {"type": "deleted", "id": memory.id}

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
    required, optional = ACTIONS[action]
    allowed = (*required, *optional)
    given = {
        name: value
        for name, value in params.items()
        if name not in _PARAMETERS or not _is_blank(value)
    }
    if set(given) - set(allowed):
        raise InvalidValue(unknown_parameter(action, allowed))
    for name in required:
        if name not in given:
            raise InvalidValue(missing(name, action))
    return given


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue("content must be text")
    return value


def _instant(name: str, value: object) -> datetime | None:
    if value is None:
        return None
    try:
        return from_iso(value if isinstance(value, str) else "")
    except (ValueError, OverflowError):
        raise InvalidValue(f"{name} must be an ISO date such as 2026-03-01") from None
