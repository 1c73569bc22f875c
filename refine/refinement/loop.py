"""The session: duplicates, snapshot, consent, turns, end.

A function around the persisted noun; ``holding`` says how every step is taken.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

import structlog
from rq.timeouts import BaseTimeoutException

from refine import clock, prompts
from refine.extensions import db
from refine.llm.messages import ToolCall, user_message
from refine.models import RefinementSession
from refine.models.session import EndStatus
from refine.models.session.snapshot import ERODED
from refine.refinement.holding import Ended, Hold
from refine.refinement.prompting import (
    SMALLEST_CONTEXT_TOKENS,
    Ledger,
    brief,
    opening,
    room_for_ledger,
)
from refine.rules.consent import consents
from refine.settings import Settings
from refine.tools import RefinementTool
from refine.tools.refinement import DEFINITION

# The results after which the tool refuses everything, and the model is not asked again.
ENDING_RESULTS = ("refinement_complete", "refinement_rolled_back")

_log = structlog.get_logger(__name__)

Observer = Callable[["Event"], None]


@dataclass(frozen=True)
class Event:
    """Something that just happened in a session, for whoever watches; never content."""

    kind: str
    session: RefinementSession
    facts: dict[str, Any] = field(default_factory=dict)


def _nobody(_event: Event) -> None:
    """Watches nothing."""


def refine(
    session_id: uuid.UUID,
    settings: Settings,
    *,
    observe: Observer = _nobody,
    is_stopping: Callable[[], bool] = lambda: False,
) -> RefinementSession | None:
    """Run a queued session to its end; None where it is not queued any more (run only once).

    None, too, where the process is asked to end already: then the session stays queued.

    ``is_stopping`` tells that this process was asked to end: the session then ends at its next
    step. Commits at every step. A fault of ours ends the session too, and is raised again.
    """
    if is_stopping():
        db.session.rollback()
        return None
    session = db.session.get_one(RefinementSession, session_id)
    lease_token = session.claim()
    db.session.commit()
    if lease_token is None:
        return None
    _SessionHold(session, lease_token, settings, is_stopping, observe).whole()
    return session


class _SessionHold(Hold[RefinementSession]):
    """One worker's hold on one session."""

    def __init__(
        self,
        session: RefinementSession,
        lease_token: uuid.UUID,
        settings: Settings,
        is_stopping: Callable[[], bool],
        observe: Observer,
    ) -> None:
        super().__init__(session, lease_token, settings, is_stopping)
        self._observe = observe
        self._definition = DEFINITION

    def _work(self) -> None:
        """Go through the session's steps."""
        self._deduplicate()
        with self._asking():
            self._take_snapshot()
            self._ask_for_consent()
            self._loop()

    def _end(self, run: RefinementSession, ending: Ended) -> None:
        status = cast(EndStatus, ending.status)
        run.finish(status, ending.reason, error_kind=ending.error_kind, user=ending.user)

    def _ended(self) -> None:
        self._say("ended")

    # -- the steps --------------------------------------------------------------------------------

    def _deduplicate(self) -> None:
        session = self._held()
        removed = session.deduplicate()
        has_work = session.agent.has_unlocked_core_memory()
        db.session.commit()
        self._say("duplicates", removed=removed)
        if not has_work:
            raise Ended("skipped", "no core memory that a session may change")

    def _take_snapshot(self) -> None:
        context_tokens = self._context_tokens()
        session = self._held()
        last = RefinementSession.last_of(session.agent, before=session.created_at)
        ledger = Ledger.of(
            session.agent,
            room_tokens=room_for_ledger(context_tokens, session.agent),
            after_id=last.batch_through_id if last is not None else None,
        )
        session.take_snapshot(ledger.shown_ids)
        session.batch_through_id = ledger.through_id
        session.prompt_version = prompts.version()
        if session.removable_tokens == 0:
            self._skip(session)
        self._messages = opening(session, ledger, plain=self._settings.plain_openai)
        db.session.commit()
        self._say("snapshot", shown_memories=len(ledger.lines), is_batch=ledger.is_batch)

    def _skip(self, session: RefinementSession) -> NoReturn:
        eroded = RefinementSession.is_eroded(session.agent)
        threshold = session.threshold
        db.session.commit()
        raise Ended(
            "skipped",
            "nothing may be removed: "
            + (
                ERODED
                if eroded
                else f"the threshold of {threshold} leaves no room in a ledger of this size"
            ),
        )

    def _ask_for_consent(self) -> None:
        reply = self._ask()
        agreed = consents(reply.text) and not reply.tool_calls
        session = self._held()
        session.consent_reply = reply.text
        if agreed:
            session.consented_at = clock.now()
        db.session.commit()
        self._say("consent", agreed=agreed)
        if not agreed:
            raise Ended("declined", "the agent declined")
        self._messages.append(user_message(brief(self._run)))
        db.session.commit()

    def _loop(self) -> None:
        self._execute = RefinementTool(self._run).execute
        db.session.commit()
        is_reminded = False
        while True:
            reply = self._turn()
            if reply.tool_calls:
                if self._carry_out_all(reply.tool_calls):
                    self._ended()
                    return
            elif is_reminded:
                raise Ended("incomplete", "the agent made no further tool call")
            else:
                self._messages.append(user_message(prompts.render("reminder")))
                is_reminded = True

    def _carry_out_all(self, calls: tuple[ToolCall, ...]) -> bool:
        """Carry out the calls of one reply, in order; tell whether one ended the session."""
        over = False
        for call in calls:
            if not over:
                self._begin_tool_call()
            result = self._carry_out(call)
            over = over or result["type"] in ENDING_RESULTS
            self._say("tool_call", action=_shown_action(call), result=result["type"])
        return over

    def _context_tokens(self) -> int:
        """How much context the model has; looked up only where the ledger may need more."""
        session = self._run
        room = room_for_ledger(SMALLEST_CONTEXT_TOKENS, session.agent)
        is_small = not Ledger.of(session.agent, room_tokens=room).is_batch
        model_id = session.model_id
        db.session.commit()
        named = None if is_small else self._client.context_tokens(model_id)
        return named or self._settings.context_tokens

    # -- the end ----------------------------------------------------------------------------------

    def _is_stop_requested(self) -> bool:
        return self._run.is_stopping

    def _stopped(self) -> Ended:
        """What a stop makes of the session: its end if somebody asked for it, else a failure."""
        if not self._run.is_stopping:
            return super()._stopped()
        status: EndStatus = "skipped" if self._run.consented_at is None else "incomplete"
        return Ended(status, "stopped on request", user=self._run.stop_requested_by)

    def _out_of_time(self) -> Ended:
        """Before consent a failure; after it an end like any other."""
        too_late = super()._out_of_time()
        return too_late if self._run.consented_at is None else Ended("incomplete", too_late.reason)

    def _say(self, kind: str, **facts: Any) -> None:
        """Tell whoever watches; one whose display breaks is told no more, and decides nothing."""
        try:
            self._observe(Event(kind, self._run, facts))
        except BaseTimeoutException:
            raise
        except (Exception, SystemExit) as fault:  # rich exits where its pipe is closed
            _log.warning(
                "a watcher failed", session_id=str(self._run_id), fault=type(fault).__name__
            )
            self._observe = _nobody
        db.session.commit()


def _shown_action(call: ToolCall) -> str:
    """The action of a call where it is one of ours: what a model wrote is not shown."""
    action = call.arguments.get("action")
    known = DEFINITION["function"]["parameters"]["properties"]["action"]["enum"]
    return str(action) if action in known else "unreadable call"
