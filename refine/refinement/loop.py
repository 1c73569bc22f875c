"""A session from its id to its end: duplicates, snapshot, consent, turns."""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any, cast

import structlog

from refine import clock, prompts
from refine.extensions import safe_rollback
from refine.llm.messages import Reply, ToolCall, user_message
from refine.models import RefinementSession
from refine.models.agent import eligibility
from refine.models.runs.session.duplicates import remove_duplicates
from refine.models.runs.session.session import CONSENTED_ENDS, EndStatus
from refine.models.runs.session.survival import Unread
from refine.outages import may_pass
from refine.refinement.prompting import (
    READING,
    LedgerExcerpt,
    brief,
    groups_to_look_at,
    opening,
    reading_of,
    room_for_ledger,
    verdicts_of,
)
from refine.rules.model_names import is_rehearsal_model
from refine.rules.second_reading import Case, Verdict
from refine.rules.tokens import MIN_CONTENT_TOKENS
from refine.running import ModelWorker, RunEnded
from refine.running.model_calls import (
    MAX_TOOL_CALLS,
    Conversation,
    answer_to_question,
    problem_with,
)
from refine.settings import Settings
from refine.tools import RefinementTool
from refine.tools.refinement import ACTIONS, DEFINITION

_NO_ROOM = "the context of the agent's model is too small for its prompts, journal and memories"

# The results after which the tool refuses everything, and the model is not asked again.
ENDING_RESULTS = ("refinement_complete", "refinement_rolled_back")

# How long the rehearsal model waits before each answer where somebody watches.
BREATH_SECONDS = 2.0

_log = structlog.get_logger(__name__)

Observer = Callable[["SessionEvent"], None]


@dataclass(frozen=True)
class SessionEvent:
    """Something that happened in a session, for an observer; never content."""

    kind: str
    session: RefinementSession
    facts: dict[str, Any] = field(default_factory=dict)


class SessionWorker(ModelWorker[RefinementSession]):
    """Works on one session; run ``by_hand``, a stop is an orderly end and no failure."""

    _kind = RefinementSession
    _definition = DEFINITION

    def __init__(
        self,
        session: RefinementSession,
        lease_token: uuid.UUID,
        settings: Settings,
        is_stopping: Callable[[], bool],
        by_hand: bool = False,
        observe: Observer = lambda _: None,
    ) -> None:
        said = session.said if session.has_begun else None
        worked_seconds = said["seconds"] if said is not None else 0.0
        super().__init__(session, lease_token, settings, is_stopping, worked_seconds)
        self._by_hand = by_hand
        self._observe = observe
        self._said = said
        self._verdicts: dict[Case, Verdict | None] = {}
        # the calls of the last reply that are left; the first of them may be counted already
        self._calls: tuple[ToolCall, ...] = ()
        self._is_counted = self._is_reminded = False

    def _work(self) -> None:
        if self._said is None:
            self._deduplicate()
        with self._connected():
            if self._said is not None:
                self._take_up(self._said)
            else:
                self._take_snapshot()
                self._ask_for_consent()
            self._loop()

    def _take_up(self, said: dict[str, Any]) -> None:
        """Continue where another worker was asked to stop."""
        self._committed(self._drop_conversation)
        self._messages, self._turns = said["messages"], said["turns"]
        self._cut_replies, self._is_reminded = said["cut_replies"], said["is_reminded"]
        self._refusals = frozenset((turn, why, shown) for turn, why, shown in said["refusals"])
        self._calls = tuple(ToolCall(**each) for each in said["calls"])
        self._is_counted = said["is_counted"]

    def _drop_conversation(self) -> None:
        self._held().sealed_conversation = None

    def _hand_back(self, run: RefinementSession, reason: str) -> None:
        run.hand_back(reason, self._what_was_said() if run.has_begun else None)

    def _what_was_said(self) -> dict[str, Any]:
        return {
            "messages": self._messages,
            "turns": self._turns,
            "cut_replies": self._cut_replies,
            "is_reminded": self._is_reminded,
            "refusals": sorted(self._refusals),
            "calls": [asdict(call) for call in self._calls],
            "is_counted": self._is_counted,
            "seconds": self._max_seconds - (self._deadline - time.monotonic()),
        }

    def _end(self, run: RefinementSession, ending: RunEnded) -> None:
        status = cast(EndStatus, ending.status)
        run.finish(status, ending.reason, error_kind=ending.error_kind, user=ending.user)

    def _after_end(self) -> None:
        self._report("handed_back" if self._committed(lambda: self._run.is_live) else "ended")

    # -- the steps --------------------------------------------------------------------------------

    def _deduplicate(self) -> None:
        removed = 0
        while batch := self._committed(self._remove_duplicates):
            removed += batch
        has_work = self._committed(lambda: eligibility.has_unlocked_core_memory(self._held().agent))
        self._report("duplicates", removed=removed)
        if not has_work:
            raise RunEnded("skipped", "no core memory can be changed by a session")

    def _remove_duplicates(self) -> int:
        session = self._held()
        self._check_may_continue()
        return remove_duplicates(session)

    def _take_snapshot(self) -> None:
        excerpt, reason = self._committed(self._snapshot)
        if reason is not None:
            raise RunEnded("skipped", f"nothing may be removed: {reason}")
        if excerpt.room_tokens < MIN_CONTENT_TOKENS or not excerpt.lines:
            raise RunEnded("failed", _NO_ROOM, "too_large")
        is_marked = self._client.dialect.needs_ledger_mark(self._model_id)
        self._messages = self._committed(lambda: opening(self._run, excerpt, is_marked=is_marked))
        self._report("snapshot", shown_memories=len(excerpt.lines), is_batch=excerpt.is_batch)

    def _snapshot(self) -> tuple[LedgerExcerpt, str | None]:
        session = self._held()
        agent, reason = session.agent, None
        last = RefinementSession.last_ended_of(
            agent, before=session.created_at, statuses=CONSENTED_ENDS
        )
        excerpt = LedgerExcerpt.of(
            agent,
            room_tokens=room_for_ledger(self._room, agent),
            after_id=last.batch_through_id if last is not None else None,
        )
        if session.memories_before is None:  # otherwise the answer to the commit was lost
            session.take_snapshot(excerpt.shown_ids)
            session.batch_through_id = excerpt.through_id
            session.prompt_version = prompts.version()
        if session.removable_tokens == 0:
            reason = RefinementSession.erosion_reason(agent) or (
                f"the threshold of {session.threshold} leaves no room in a ledger of this size"
            )
        return excerpt, reason

    def _ask_for_consent(self) -> None:
        reply, agreed = answer_to_question(self._ask_model, self._messages)
        self._committed(lambda: self._note_answer(reply.text, agreed=agreed))
        self._report("consent", agreed=agreed)
        if not agreed:
            raise RunEnded("declined", "the agent declined")
        self._messages.append(user_message(self._committed(self._brief)))

    def _note_answer(self, answer: str | None, *, agreed: bool) -> None:
        session = self._held()
        session.consent_reply = answer
        if agreed:
            session.consented_at = clock.now()

    def _brief(self) -> str:
        session = self._held()
        groups = groups_to_look_at(session)
        session.hints = [list(group.ids) for group in groups]
        return brief(session, groups)

    def _loop(self) -> None:
        self._tool = self._committed(
            lambda: RefinementTool(
                self._run,
                self._lease_token,
                self._room_for_result,
                self._retry,
                self._verdicts if self._settings.has_second_reading else None,
            )
        )
        self._execute = self._execute_once_read
        is_over = self._carry_out_all()
        while not is_over:
            with self._span("turn"):
                self._take_turn()
                is_over = self._carry_out_all()
        self._after_end()

    def _take_turn(self) -> None:
        self._calls = self._turn().tool_calls
        if self._calls:
            return
        if self._is_reminded:
            raise RunEnded("incomplete", "the agent made no further tool call")
        self._messages.append(user_message(prompts.render("reminder")))
        self._is_reminded = True

    def _carry_out_all(self) -> bool:
        """Carry out the calls that are left; tell whether one of them ended the session."""
        over = False
        if self._calls:
            self._read(self._cases_of(self._calls))
        while self._calls:
            call = self._calls[0]
            if not (over or self._is_counted):
                self._begin_tool_call()
                self._is_counted = True
            result = self._carry_out(call)
            self._calls, self._is_counted = self._calls[1:], False
            over = over or result["type"] in ENDING_RESULTS
            self._report("tool_call", action=_shown_action(call), result=result["type"])
        return over

    def _ask_model(self, times: int = 1, only_words: bool = False) -> Reply:
        is_rehearsal = is_rehearsal_model(self._model_id)
        if is_rehearsal and self._committed(lambda: self._run.is_watched):
            time.sleep(BREATH_SECONDS)
        return super()._ask_model(times, only_words)

    # -- second readings --------------------------------------------------------------------------

    def _cases_of(self, calls: tuple[ToolCall, ...]) -> list[Case]:
        """Return what to read before as many of these calls as may still be carried out."""
        left = self._committed(lambda: MAX_TOOL_CALLS - self._held().tool_calls)
        before_end = takewhile(
            lambda call: call.arguments.get("action") != "complete", calls[:left]
        )
        return self._tool.cases_of(
            call.arguments for call in before_end if problem_with(call, DEFINITION) is None
        )

    def _execute_once_read(self, **arguments: Any) -> dict[str, Any]:
        """Carry out a call; an edit of what a call of the same reply changed is read after that,
        with what follows it.
        """
        while True:
            try:
                return self._tool.execute(**arguments)
            except Unread as unread:
                self._read([unread.case, *self._cases_of(self._calls[1:])])

    def _read(self, cases: Iterable[Case]) -> None:
        new = [case for case in dict.fromkeys(cases) if case not in self._verdicts]
        if new:
            self._verdicts |= self._verdicts_on(new)
            self._report("second_reading", cases=len(new))

    def _verdicts_on(
        self, cases: Sequence[Case], is_repeated: bool = False
    ) -> dict[Case, Verdict | None]:
        """Ask in parts that fit the context, and once more about what got no usable answer."""
        asked = self._committed(partial(self._reading, cases, is_repeated))
        if self._room.output_beside(asked.tokens) is None:
            if len(cases) == 1:
                return {cases[0]: None}
            half = len(cases) // 2
            first = self._verdicts_on(cases[:half], is_repeated)
            return first | self._verdicts_on(cases[half:], is_repeated)
        found = dict(zip(cases, verdicts_of(self._ask(asked), len(cases)), strict=True))
        unread = [case for case, verdict in found.items() if verdict is None]
        if unread and not is_repeated:
            found |= self._verdicts_on(unread, is_repeated=True)
        return found

    def _reading(self, cases: Sequence[Case], is_repeated: bool) -> Conversation:
        messages = reading_of(self._held().agent, cases, is_repeated=is_repeated)
        id_ = uuid.uuid5(self._run_id, READING["function"]["name"])
        return Conversation(messages, [READING], str(id_), is_aside=True)

    def _room_for_result(self) -> int:
        return self._room.for_result(self._own.tokens)

    def _refuse(self, problem: str) -> dict[str, Any]:
        return {**super()._refuse(problem), **self._tool.left}

    # -- the end ----------------------------------------------------------------------------------

    def _is_stop_requested(self) -> bool:
        return self._run.is_stop_requested

    def _stopped(self) -> RunEnded:
        """An orderly end if somebody stopped the session, else a failure."""
        if not (self._run.is_stop_requested or self._by_hand):
            return super()._stopped()
        run = self._run
        return RunEnded(run.stopped_status, run.stop_reason, user=run.stop_requested_by)

    def _unavailable(self, reason: str) -> RunEnded:
        return RunEnded(self._run.stopped_status, reason)

    def _out_of_time(self) -> RunEnded:
        late = super()._out_of_time()
        return late if self._run.consented_at is None else RunEnded("incomplete", late.reason)

    def _too_large(self) -> RunEnded:
        grown = super()._too_large()
        status: EndStatus = "failed" if self._run.consented_at is None else "incomplete"
        return RunEnded(status, grown.reason, grown.error_kind)

    def _report(self, kind: str, **facts: Any) -> None:
        try:
            self._observe(SessionEvent(kind, self._run, facts))
        except (Exception, SystemExit) as fault:  # rich exits where its pipe is closed
            safe_rollback()
            if may_pass(fault):
                return
            _log.warning(
                "an observer failed", session_id=str(self._run_id), fault=type(fault).__name__
            )
            self._observe = lambda _: None
        self._committed(lambda: None)


def _shown_action(call: ToolCall) -> str:
    action = call.arguments.get("action")
    return action if isinstance(action, str) and action in ACTIONS else "unreadable call"


refine = SessionWorker.work_on
