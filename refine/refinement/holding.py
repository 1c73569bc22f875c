"""A worker's hold on a run, from the claim to the end: what sessions and memory tasks share.

Whatever is known after a step is in the database before the next one begins, no transaction is open
while the model is asked, and every write looks at the lease.
"""

import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from rq.timeouts import BaseTimeoutException

from refine.errors import ProviderError
from refine.extensions import db, let_go
from refine.llm.clients import client_for
from refine.llm.messages import Message, Reply, ToolCall, tool_message
from refine.llm.openrouter import Cancelled, OpenRouter
from refine.models import LeaseLost, MemoryTask, RefinementSession, User
from refine.models.session import EndStatus
from refine.prompts import as_line
from refine.refinement.asking import Execute, once_a_second, privacy_of, result_of
from refine.refinement.heartbeat import beating
from refine.rules.model_names import is_same_model
from refine.settings import Settings

MAX_TOOL_CALLS = 60
MAX_CUT_REPLIES = 2

Held = TypeVar("Held", RefinementSession, MemoryTask)


class Ended(Exception):
    """The run is to end so; ``status`` None: it failed, and is given up.

    ``user``: who asked for it, if somebody did.
    """

    def __init__(
        self,
        status: EndStatus | None,
        reason: str,
        error_kind: str | None = None,
        user: User | None = None,
    ) -> None:
        self.status = status
        self.reason = reason
        self.error_kind = error_kind
        self.user = user
        super().__init__(reason)


class Hold(Generic[Held]):
    """One worker's hold on one run; what there is to do in it, ``_work`` of each kind says."""

    _client: OpenRouter
    _execute: Execute
    _definition: dict[str, Any]

    def __init__(
        self,
        run: Held,
        lease_token: uuid.UUID,
        settings: Settings,
        is_stopping: Callable[[], bool],
    ) -> None:
        # read afresh after every commit
        self._run: Held = run
        self._run_id = run.id
        self._lease_token = lease_token
        self._settings = settings
        self._is_stopping = is_stopping
        self._deadline = time.monotonic() + settings.max_seconds
        self._messages: list[Message] = []
        self._turns = self._cut_replies = 0

    def whole(self) -> None:
        """Go through all of it, and write its end, whatever happens; a fault is raised again."""
        ending: Ended | None = None
        with beating(self._run_id, self._lease_token, type(self._run)):
            try:
                ending = self._ending_of_work()
                if ending is not None:
                    self.finish(ending)
            except LeaseLost:
                # another process ended the run, or put it off, and said why
                db.session.rollback()
            except BaseException as fault:
                let_go()
                self.finish(ending or _ending_of(fault))
                raise

    def finish(self, ending: Ended) -> None:
        """Write the end, unless the run ended or was taken away meanwhile."""
        try:
            run = self._held()
        except LeaseLost:
            db.session.rollback()
            return
        if ending.status is None:
            run.give_up(ending.reason, ending.error_kind)
        else:
            self._end(run, ending)
        db.session.commit()
        self._ended()

    # -- what the kinds say -----------------------------------------------------------------------

    @abstractmethod
    def _work(self) -> None:
        """Do what there is to do; raises Ended, but where the agent itself ended the run."""

    @abstractmethod
    def _end(self, run: Held, ending: Ended) -> None:
        """Write an orderly end."""

    def _ended(self) -> None:
        """Tell whoever watches."""

    def _is_stop_requested(self) -> bool:
        """Tell whether somebody asked this run to stop."""
        return False

    # -- steps ------------------------------------------------------------------------------------

    def _ending_of_work(self) -> Ended | None:
        try:
            self._work()
        except Ended as ending:
            return ending
        except ProviderError as fault:
            return Ended(None, str(fault), fault.kind)
        return None

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Have a client for the agent's model, as it was when the run was claimed."""
        model_id = self._run.model_id
        db.session.commit()
        with client_for(model_id, self._settings) as self._client:
            yield

    def _turn(self) -> Reply:
        """Ask for one more turn; Ended where there were as many as there may be."""
        if self._turns >= self._settings.max_turns:
            raise Ended("incomplete", f"the limit of {self._settings.max_turns} turns was reached")
        self._turns += 1
        reply = self._ask()
        self._cut_replies += reply.is_cut
        if self._cut_replies > MAX_CUT_REPLIES:
            raise Ended("incomplete", "the model's answers were cut at the output limit")
        return reply

    def _ask(self) -> Reply:
        """Ask for the next message, with no transaction open, and count what it cost."""
        self._stop_if_asked()
        run = self._run
        model_id, privacy = run.model_id, privacy_of(run.agent, run.id)
        db.session.commit()
        try:
            reply = self._client.generate(
                model_id,
                self._messages,
                [self._definition],
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
        self._held().count_call(reply.usage)
        db.session.commit()
        if not is_same_model(model_id, reply.model):
            raise ProviderError("another model than the agent's own answered", kind="other_model")
        self._messages.append(reply.message)
        return reply

    def _begin_tool_call(self) -> None:
        run = self._held()
        self._stop_if_asked()
        if run.tool_calls >= MAX_TOOL_CALLS:
            raise Ended("incomplete", f"the limit of {MAX_TOOL_CALLS} tool calls was reached")
        run.tool_calls += 1
        db.session.commit()

    def _carry_out(self, call: ToolCall) -> dict[str, Any]:
        result = result_of(self._execute, self._definition, call)
        self._messages.append(tool_message(call, as_line(result)))
        return result

    # -- the end ----------------------------------------------------------------------------------

    def _stop_if_asked(self) -> None:
        """End here where the run is not ours any more, a stop was asked for, or time is up."""
        if self._run.lease_token != self._lease_token:
            raise LeaseLost(self._run.status)
        if self._is_stop_requested() or self._is_stopping():
            raise self._stopped()
        if time.monotonic() >= self._deadline:
            raise self._out_of_time()

    def _stopped(self) -> Ended:
        return Ended(None, "its process was asked to end", "worker_stopped")

    def _out_of_time(self) -> Ended:
        reason = f"the limit of {self._settings.max_seconds} seconds was reached"
        return Ended(None, reason, "timeout")

    # -- the run ----------------------------------------------------------------------------------

    def _held(self) -> Held:
        return self._run.held(self._run_id, self._lease_token)

    def _is_unwanted(self) -> bool:
        unwanted = self._run.lease_token != self._lease_token or self._is_stop_requested()
        db.session.commit()
        return unwanted


def _ending_of(fault: BaseException) -> Ended:
    """Return the end that a fault of ours, or of the process, makes of a run."""
    if isinstance(fault, BaseTimeoutException):
        return Ended(None, "the time that its job may take is over", "timeout")
    if isinstance(fault, KeyboardInterrupt):
        return Ended(None, "interrupted", "interrupted")
    return Ended(None, f"a fault in Refine ({type(fault).__name__})", "internal")
