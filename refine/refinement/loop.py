"""The session: duplicates, snapshot, consent, turns, end.

A function around the persisted noun. Whatever is known after a step is in the database before the
next one begins, and no transaction is open while the model is asked.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import structlog
from rq.timeouts import BaseTimeoutException

from refine import clock, prompts
from refine.errors import ProviderError
from refine.extensions import db, let_go
from refine.llm.clients import client_for
from refine.llm.messages import Message, Reply, ToolCall, tool_message, user_message
from refine.llm.openrouter import Cancelled
from refine.models import LeaseLost, RefinementSession
from refine.models.session import EndStatus
from refine.models.session.snapshot import ERODED
from refine.prompts import as_line
from refine.refinement.asking import (
    MAX_CUT_REPLIES,
    MAX_TOOL_CALLS,
    Ended,
    ending_of,
    once_a_second,
    privacy_of,
    result_of,
)
from refine.refinement.heartbeat import beating
from refine.refinement.prompting import (
    SMALLEST_CONTEXT_TOKENS,
    Ledger,
    brief,
    opening,
    room_for_ledger,
)
from refine.rules.consent import consents
from refine.rules.model_names import is_same_model
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
    run = _Run(session, lease_token, settings, observe, is_stopping)
    with beating(session_id, lease_token):
        run.whole()
    return session


class _Run:
    """One worker's hold on one session."""

    def __init__(
        self,
        session: RefinementSession,
        lease_token: uuid.UUID,
        settings: Settings,
        observe: Observer,
        is_stopping: Callable[[], bool],
    ) -> None:
        # read afresh after every commit
        self._session = session
        self._session_id = session.id
        self._lease_token = lease_token
        self._settings = settings
        self._observe = observe
        self._is_stopping = is_stopping
        self._deadline = time.monotonic() + settings.max_seconds
        self._messages: list[Message] = []

    def whole(self) -> None:
        """Go through all of it, and write its end, whatever happens; a fault is raised again."""
        ending: Ended | None = None
        try:
            try:
                self.to_its_end()
            except Ended as reached:
                ending = reached
                self.finish(reached)
        except LeaseLost:
            # another process ended this session, and said why
            db.session.rollback()
        except BaseException as fault:
            let_go()
            self.finish(ending or ending_of(fault))
            raise

    def to_its_end(self) -> None:
        """Go through the session's steps; returns, or raises Ended, when it is over."""
        self._deduplicate()
        model_id = self._session.model_id
        db.session.commit()
        try:
            with client_for(model_id, self._settings) as client:
                self._client = client
                self._take_snapshot()
                self._ask_for_consent()
                self._loop()
        except ProviderError as fault:
            raise Ended(None, str(fault), fault.kind) from None

    def finish(self, ending: Ended) -> None:
        """Write the end, unless the session ended or was taken away meanwhile."""
        try:
            session = self._held()
        except LeaseLost:
            db.session.rollback()
            return
        session.error_kind = ending.error_kind
        if ending.status is None:
            session.give_up(ending.reason)
        else:
            session.finish(ending.status, ending.reason, user=ending.user)
        db.session.commit()
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
        self._messages.append(user_message(brief(self._session)))
        db.session.commit()

    def _loop(self) -> None:
        tool = RefinementTool(self._session)
        db.session.commit()
        reminded, cut = False, 0
        for _ in range(self._settings.max_turns):
            reply = self._ask(counts_as_turn=True)
            cut += reply.is_cut
            if cut > MAX_CUT_REPLIES:
                raise Ended("incomplete", "the model's answers were cut at the output limit")
            if reply.tool_calls:
                if self._execute(tool, reply.tool_calls):
                    self._say("ended")
                    return
            elif reminded:
                raise Ended("incomplete", "the agent made no further tool call")
            else:
                self._messages.append(user_message(prompts.render("reminder")))
                reminded = True
        raise Ended("incomplete", f"the limit of {self._settings.max_turns} turns was reached")

    def _execute(self, tool: RefinementTool, calls: tuple[ToolCall, ...]) -> bool:
        """Carry out the calls of one reply, in order; tell whether one ended the session."""
        over = False
        for call in calls:
            if not over:
                self._begin_tool_call()
            result = result_of(tool.execute, DEFINITION, call)
            over = over or result["type"] in ENDING_RESULTS
            self._messages.append(tool_message(call, as_line(result)))
            self._say("tool_call", action=_shown_action(call), result=result["type"])
        return over

    def _begin_tool_call(self) -> None:
        session = self._held()
        self._stop_if_asked()
        if session.tool_calls >= MAX_TOOL_CALLS:
            raise Ended("incomplete", f"the limit of {MAX_TOOL_CALLS} tool calls was reached")
        session.tool_calls += 1
        db.session.commit()

    # -- asking the model -------------------------------------------------------------------------

    def _ask(self, *, counts_as_turn: bool = False) -> Reply:
        """Ask for the next message, with no transaction open, and count what it cost."""
        self._stop_if_asked()
        session = self._session
        model_id, privacy = session.model_id, privacy_of(session.agent, session.id)
        db.session.commit()
        try:
            reply = self._client.generate(
                model_id,
                self._messages,
                [DEFINITION],
                privacy,
                deadline=self._deadline,
                is_cancelled=once_a_second(self._is_stopping, self._is_unwanted),
            )
        except Cancelled:
            self._held()
            raise self._stopped() from None
        except ProviderError as fault:
            if fault.kind == "deadline" or time.monotonic() >= self._deadline:
                raise self._out_of_time() from None
            raise
        self._count_call(reply, counts_as_turn)
        if not is_same_model(model_id, reply.model):
            raise ProviderError("another model than the agent's own answered", kind="other_model")
        self._messages.append(reply.message)
        return reply

    def _count_call(self, reply: Reply, counts_as_turn: bool) -> None:
        session = self._held()
        session.llm_calls += 1
        session.turns += counts_as_turn
        session.prompt_tokens += reply.usage.prompt_tokens
        session.cached_tokens += reply.usage.cached_tokens
        session.completion_tokens += reply.usage.completion_tokens
        session.cost_usd += reply.usage.cost_usd
        db.session.commit()

    def _context_tokens(self) -> int:
        """How much context the model has; looked up only where the ledger may need more."""
        session = self._session
        room = room_for_ledger(SMALLEST_CONTEXT_TOKENS, session.agent)
        is_small = not Ledger.of(session.agent, room_tokens=room).is_batch
        model_id = session.model_id
        db.session.commit()
        named = None if is_small else self._client.context_tokens(model_id)
        return named or self._settings.context_tokens

    # -- the end ----------------------------------------------------------------------------------

    def _stop_if_asked(self) -> None:
        """End here where the session is not ours any more, a stop was asked for, or time is up."""
        if self._session.status != "running":
            raise LeaseLost(self._session.status)
        if self._session.is_stopping or self._is_stopping():
            raise self._stopped()
        if time.monotonic() >= self._deadline:
            raise self._out_of_time()

    def _stopped(self) -> Ended:
        """What a stop makes of the session: its end if somebody asked for it, else a failure."""
        if not self._session.is_stopping:
            return Ended(None, "its process was asked to end", "worker_stopped")
        consented = self._session.consented_at is not None
        status: EndStatus = "incomplete" if consented else "skipped"
        return Ended(status, "stopped on request", user=self._session.stop_requested_by)

    def _out_of_time(self) -> Ended:
        reason = f"the limit of {self._settings.max_seconds} seconds was reached"
        if self._session.consented_at is None:
            return Ended(None, reason, "timeout")
        return Ended("incomplete", reason)

    # -- the session ------------------------------------------------------------------------------

    def _held(self) -> RefinementSession:
        return RefinementSession.held(self._session_id, self._lease_token)

    def _say(self, kind: str, **facts: Any) -> None:
        """Tell whoever watches; one whose display breaks is told no more, and decides nothing."""
        try:
            self._observe(Event(kind, self._session, facts))
        except BaseTimeoutException:
            raise
        except (Exception, SystemExit) as fault:  # rich exits where its pipe is closed
            _log.warning(
                "a watcher failed", session_id=str(self._session_id), fault=type(fault).__name__
            )
            self._observe = _nobody
        db.session.commit()

    def _is_unwanted(self) -> bool:
        session = self._session
        unwanted = session.is_stopping or session.status != "running"
        db.session.commit()
        return unwanted


def _shown_action(call: ToolCall) -> str:
    """The action of a call where it is one of ours: what a model wrote is not shown."""
    action = call.arguments.get("action")
    known = DEFINITION["function"]["parameters"]["properties"]["action"]["enum"]
    return str(action) if action in known else "unreadable call"
