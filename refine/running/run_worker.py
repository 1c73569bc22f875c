"""One worker's work on one run, from the claim to the end.

Every step is committed before the next one begins, no transaction is open while the model is asked,
and every write checks the lease. A step that failed because the database was away is taken again
once it is back (``refine.outages``); who has the run by then, the lease decides.
"""

import dataclasses
import json
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Generic, TypeVar

from rq.timeouts import BaseTimeoutException
from sqlalchemy.exc import SQLAlchemyError

from refine.errors import ProviderError, RowAltered
from refine.extensions import db, safe_rollback
from refine.llm.clients import client_for
from refine.llm.exchange import Cancelled
from refine.llm.messages import Message, Privacy, Reply, ToolCall, Usage, tool_message
from refine.llm.provider import Provider
from refine.models import (
    AccessGrant,
    Account,
    Agent,
    LeaseLost,
    MemoryTask,
    RefinementSession,
    User,
)
from refine.models.runs import LOST_AFTER
from refine.outages import Done, Patience, commit_once
from refine.prompts import as_line
from refine.rules.consent import consents
from refine.rules.context import Room, request_tokens_at_most
from refine.rules.model_names import in_words, is_rehearsal_model
from refine.running.heartbeat import beating
from refine.settings import Settings
from refine.tools.results import error, unknown_parameter, without_echo

MAX_TOOL_CALLS = 60
MAX_CUT_REPLIES = 2
# A run that goes on for so long beyond its own limit hangs, and gets no more heartbeats.
OVERDUE_SECONDS = 120

_TOO_LARGE = "the conversation is too large for the context of the agent's model"

AnyRun = TypeVar("AnyRun", RefinementSession, MemoryTask, AccessGrant)
Execute = Callable[..., dict[str, Any]]


def has_consented(reply: Reply) -> bool:
    """Tell whether a reply is a yes; one with a tool call, or cut off, never is."""
    return consents(reply.text) and not reply.tool_calls and not reply.is_cut


class RunEnded(Exception):
    """Ends the run with this status; None: it is given up after a failure.

    ``user`` is who asked for the end, if anybody did.
    """

    def __init__(
        self,
        status: str | None,
        reason: str,
        error_kind: str | None = None,
        user: User | None = None,
    ) -> None:
        self.status = status
        self.reason = reason
        self.error_kind = error_kind
        self.user = user
        super().__init__(reason)


def work_on(
    kind: type[AnyRun],
    run_id: uuid.UUID,
    make_worker: "Callable[[AnyRun, uuid.UUID], RunWorker[AnyRun]]",
    is_stopping: Callable[[], bool],
    lease_token: uuid.UUID | None = None,
) -> AnyRun | None:
    """Claim the waiting run and work on it to its end; None if it cannot be claimed.

    Leaves it waiting if this process was already asked to stop. Commits at every step. An
    unexpected exception also ends the run, and is re-raised. ``lease_token`` is that of the claim,
    if the caller has one made.
    """
    if is_stopping():
        db.session.rollback()
        return None
    own = lease_token or uuid.uuid4()

    def claimed() -> "tuple[AnyRun, RunWorker[AnyRun] | None]":
        run = db.session.get_one(kind, run_id)
        # made before the commit, from the row that the claim checked
        return run, make_worker(run, own) if run.claim(lease_token=own) is not None else None

    def is_claimed() -> bool:
        return _is_held_by(db.session.get_one(kind, run_id), own)

    patience = Patience(time.monotonic() + LOST_AFTER.total_seconds(), is_stopping)
    run, worker = commit_once(claimed, patience, is_claimed)
    if worker is None:
        return None
    worker.run()
    return run


def _is_held_by(run: RefinementSession | MemoryTask | AccessGrant, lease_token: uuid.UUID) -> bool:
    """Tell whether this lease holds the run, once nobody else is writing it."""
    run.lock()
    return run.lease_token == lease_token


class RunWorker(Generic[AnyRun]):
    """Works on one run under its lease; each kind defines ``_work``."""

    _client: Provider
    _room: Room
    _execute: Execute
    _definition: dict[str, Any] | None = None

    def __init__(
        self,
        run: AnyRun,
        lease_token: uuid.UUID,
        settings: Settings,
        is_stopping: Callable[[], bool],
        max_seconds: int | None = None,
    ) -> None:
        # reloaded after every commit
        self._run: AnyRun = run
        self._run_id = run.id
        self._agent_id, self._model_id = run.agent_id, run.model_id
        self._lease_token = lease_token
        self._settings = settings
        self._is_stopping = is_stopping
        self._max_seconds = max_seconds or settings.max_seconds
        self._deadline = time.monotonic() + self._max_seconds
        self._until = self._deadline + OVERDUE_SECONDS
        self._patience = Patience(self._until, is_stopping)
        self._messages: list[Message] = []
        self._turns = self._cut_replies = 0

    def run(self) -> None:
        """Do the work and record the outcome, whatever happens; a fault is raised again."""
        ending: RunEnded | None = None
        with beating(self._run_id, self._lease_token, until=self._until):
            try:
                ending = self._work_to_end()
                if ending is not None:
                    self._finish(ending)
            except LeaseLost:
                # another process ended the run, or put it off, and recorded why
                safe_rollback()
            except BaseException as fault:
                safe_rollback()
                self._finish(ending or _ending_of(fault))
                raise

    # -- what each kind defines ------------------------------------------------------------------

    @abstractmethod
    def _work(self) -> None:
        """Do the work; raises RunEnded, unless it has ended the run itself."""

    def _end(self, run: AnyRun, ending: RunEnded) -> None:
        """Write an orderly end; for kinds whose ``_work`` raises one."""

    def _after_end(self) -> None:
        """Hook that is called after the end is committed."""

    def _is_stop_requested(self) -> bool:
        """Tell whether somebody asked this run to stop."""
        return False

    # -- steps -----------------------------------------------------------------------------------

    def _committed(
        self, work: Callable[[], Done], is_done: Callable[[], bool] | None = None
    ) -> Done:
        """Do the work and commit it, however often the database is away: see ``commit_once``."""
        return commit_once(work, self._patience, is_done)

    def _counted(self, figure: str, work: Callable[[AnyRun], Done]) -> Done:
        """Commit work on the held run that raises this figure of it, which tells if it was done."""
        before = 0

        def attempt() -> Done:
            nonlocal before
            run = self._held()
            before = getattr(run, figure)
            return work(run)

        return self._committed(attempt, lambda: getattr(self._locked(), figure) > before)

    def _work_to_end(self) -> RunEnded | None:
        try:
            self._work()
        except RunEnded as ending:
            return ending
        except ProviderError as fault:
            return RunEnded(None, str(fault), fault.kind)
        return None

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Open a client for the model that the agent had at the claim, and learn its room."""
        is_demo = self._committed(lambda: self._account().is_demo)
        with client_for(self._model_id, self._settings, is_demo=is_demo) as self._client:
            catalogue = self._client.catalogue
            self._room = catalogue.room(self._model_id, self._settings.context_tokens)
            yield

    def _turn(self) -> Reply:
        """Ask for one more turn; RunEnded at the limit of turns."""
        if self._turns >= self._settings.max_turns:
            limit = self._settings.max_turns
            raise RunEnded("incomplete", f"the limit of {limit} turns was reached")
        self._turns += 1
        reply = self._call_model()
        self._cut_replies += reply.is_cut
        if self._cut_replies > MAX_CUT_REPLIES:
            raise RunEnded("incomplete", "the model's answers were cut off")
        return reply

    def _call_model(self) -> Reply:
        """Ask for the next message, and add it to the conversation."""
        reply = self._ask_model()
        self._messages.append(reply.message)
        return reply

    def _ask_model(self, times: int = 1, only_words: bool = False) -> Reply:
        """Return the model's next message; no transaction is open meanwhile, its cost is counted.

        It has ``times`` the usual room for its output, and may call the tool unless it is to be
        ``only_words``. The caller decides whether the message becomes part of the conversation.
        Nothing is sent that may not fit: some servers silently drop what is too much.
        """
        privacy = self._committed(self._checked_privacy)
        output_tokens = self._room.output_beside(self._request_tokens(), times)
        if output_tokens is None:
            raise self._committed(self._too_large)
        lost: list[Usage] = []
        try:
            reply = self._generated(privacy, output_tokens, only_words, lost)
        except (Cancelled, ProviderError) as fault:
            self._count(lost, output_tokens)
            if isinstance(fault, Cancelled):
                raise self._committed(self._stopped) from None
            if fault.kind == "deadline" or time.monotonic() >= self._deadline:
                raise self._committed(self._out_of_time) from None
            raise
        other_model = self._other_model(reply.model)
        self._count([*lost, reply.usage], output_tokens, answered_model_id=other_model)
        if other_model is not None:
            message = f"another model answered: {other_model}, not {self._model_id}"
            raise ProviderError(message, kind="other_model")
        return reply

    def _checked_privacy(self) -> Privacy:
        self._check_may_continue()
        return self._privacy()

    def _generated(
        self, privacy: Privacy, output_tokens: int, only_words: bool, lost: list[Usage]
    ) -> Reply:
        """Call the model, with no transaction open; ``lost`` gets the usage of calls in vain."""
        return self._client.generate(
            self._model_id,
            self._messages,
            self._tools,
            privacy,
            deadline=self._deadline,
            is_cancelled=_once_a_second(self._is_stopping, self._is_unwanted),
            max_output_tokens=output_tokens,
            tool_choice="none" if only_words else "auto",
            count_lost=lost.append,
        )

    @property
    def _tools(self) -> list[dict[str, Any]]:
        return [self._definition] if self._definition is not None else []

    def _request_tokens(self) -> int:
        return request_tokens_at_most(self._messages, self._tools)

    def _count(self, usages: list[Usage], output_tokens: int, **noted: str | None) -> None:
        """Count calls of the model, and note what else is to be noted in the run; commit."""

        def count(run: AnyRun) -> None:
            for usage in usages:
                run.count_call(self._priced(usage, output_tokens))
            for name, value in noted.items():
                setattr(run, name, value)

        self._counted("llm_calls", count)

    def _priced(self, usage: Usage, output_tokens: int) -> Usage:
        """Return the usage with its cost: as the answer names it, else reckoned from a price.

        The cost stays unknown without a price. Tokens that nobody counted are taken to be as many
        as possible, so that a cost cap is never reckoned too low, now or from prices named later.
        """
        if usage.cost_usd is not None:
            return usage
        if is_rehearsal_model(self._model_id):
            return dataclasses.replace(usage, cost_usd=Decimal(0))
        if not usage.is_counted:
            usage = self._at_most(usage, output_tokens)
        prices = self._client.catalogue.prices(self._model_id, self._settings.prices)
        return next((usage.priced(price) for price in prices.values()), usage)

    def _at_most(self, usage: Usage, output_tokens: int) -> Usage:
        """Return the most tokens that a call can have taken, after what was just sent."""
        return dataclasses.replace(
            usage,
            prompt_tokens=max(usage.prompt_tokens, self._request_tokens()),
            completion_tokens=max(usage.completion_tokens, output_tokens),
        )

    def _other_model(self, answered: str | None) -> str | None:
        """Return the name of the model that answered, if it is not the agent's own."""
        catalogue = self._client.catalogue
        if answered is None or catalogue.has_as_one(self._model_id, answered):
            return None
        sent = "" if catalogue.find(answered) else json.dumps(self._messages, ensure_ascii=False)
        return in_words(answered, sent=sent, asked=self._model_id)

    def _begin_tool_call(self) -> None:
        """Count a call before it is carried out, and commit; RunEnded at the limit of calls."""
        self._counted("tool_calls", self._count_tool_call)

    def _count_tool_call(self, run: Any) -> None:
        self._check_may_continue()
        if run.tool_calls >= MAX_TOOL_CALLS:
            raise RunEnded("incomplete", f"the limit of {MAX_TOOL_CALLS} tool calls was reached")
        run.tool_calls += 1

    def _carry_out(self, call: ToolCall) -> dict[str, Any]:
        """Carry out a call of the one tool on offer, and add its result to the conversation."""
        problem = problem_with(call, self._definition or {})
        result = self._execute(**call.arguments) if problem is None else self._refuse(problem)
        self._messages.append(tool_message(call, as_line(without_echo(result, call.arguments))))
        return result

    def _refuse(self, problem: str) -> dict[str, Any]:
        """Return the result of a call that never reached the tool."""
        return error(problem)

    # -- the end ---------------------------------------------------------------------------------

    def _finish(self, ending: RunEnded) -> None:
        """Write the end, unless the run has ended or another worker has it."""
        try:
            self._committed(lambda: self._write_end(ending), self._is_over)
        except LeaseLost:
            return
        self._after_end()

    def _write_end(self, ending: RunEnded) -> None:
        run = self._held()
        if ending.status is None:
            run.give_up(ending.reason, ending.error_kind)
        else:
            self._end(run, ending)

    def _is_over(self) -> bool:
        """Tell whether the run is no longer ours, once nobody else is writing it."""
        return not _is_held_by(self._run, self._lease_token)

    def _check_may_continue(self) -> None:
        """End here if the run is no longer ours, a stop was requested, or time is up."""
        if self._has_lost_lease():
            raise LeaseLost(self._run.status)
        if self._is_stop_requested() or self._is_stopping():
            raise self._stopped()
        if time.monotonic() >= self._deadline:
            raise self._out_of_time()

    def _stopped(self) -> RunEnded:
        return RunEnded(None, "its process was asked to stop", "worker_stopped")

    def _out_of_time(self) -> RunEnded:
        reason = f"the limit of {self._max_seconds} seconds was reached"
        return RunEnded(None, reason, "timeout")

    def _too_large(self) -> RunEnded:
        return RunEnded(None, _TOO_LARGE, "too_large")

    def _held(self) -> AnyRun:
        run = self._run.held(self._run_id, self._lease_token)
        if (run.agent_id, run.model_id) != (self._agent_id, self._model_id):
            raise RowAltered(f"{type(run).__name__} {run.id}")
        return run

    def _locked(self) -> AnyRun:
        """Return the run as it is once nobody else is writing it, whoever holds it."""
        self._run.lock()
        return self._run

    def _account(self) -> Account:
        """Return the account of the agent, whose terms hold for every call."""
        agent = db.session.get_one(Agent, self._agent_id)
        agent.require_genuine()
        agent.account.require_genuine()
        return agent.account

    def _privacy(self) -> Privacy:
        account = self._account()
        return Privacy(
            session_id=str(self._run_id),
            account_ref=f"account-{account.id}",
            zero_data_retention=account.zero_data_retention,
        )

    def _is_unwanted(self) -> bool:
        """Tell whether to drop the model's answer; not if the database cannot say so now."""
        try:
            unwanted = self._has_lost_lease() or self._is_stop_requested()
            db.session.commit()
        except SQLAlchemyError:
            safe_rollback()
            return False
        return unwanted

    def _has_lost_lease(self) -> bool:
        return self._run.lease_token != self._lease_token


def _ending_of(fault: BaseException) -> RunEnded:
    """Return the end of a run after a fault of ours, or of the process."""
    if isinstance(fault, BaseTimeoutException):
        return RunEnded(None, "the job's time limit was reached", "timeout")
    if isinstance(fault, KeyboardInterrupt):
        return RunEnded(None, "interrupted", "interrupted")
    return RunEnded(None, f"internal error ({type(fault).__name__})", "internal")


def problem_with(call: ToolCall, definition: dict[str, Any]) -> str | None:
    """Return why a call cannot be carried out by the one tool on offer; None if it can."""
    name = definition["function"]["name"]
    if call.problem is not None:
        return f"{call.problem}; nothing was done"
    if call.name != name:
        return f"unknown tool; the only tool is {name}"
    # a model may name anything; only the tool's own parameters become arguments in Python
    known = definition["function"]["parameters"]["properties"]
    if not call.arguments.keys() <= known.keys():
        return unknown_parameter("the tool", known)
    return None


def _once_a_second(
    is_stopping: Callable[[], bool], is_unwanted: Callable[[], bool]
) -> Callable[[], bool]:
    """Return a check that is cheap to call often: it asks the database once a second."""
    next_check = time.monotonic() + 1.0

    def is_cancelled() -> bool:
        nonlocal next_check
        if is_stopping():
            return True
        if time.monotonic() < next_check:
            return False
        next_check = time.monotonic() + 1.0
        return is_unwanted()

    return is_cancelled
