"""A memory task from its id to its end: its parts read one after the other, each to its close.

Like a session's loop: whatever is known after a step is in the database before the next one begins,
no transaction is open while the model is asked, and every write looks at the lease.
"""

import time
import uuid
from collections.abc import Callable
from typing import Any, cast

from refine import prompts
from refine.errors import ProviderError
from refine.extensions import db, let_go
from refine.llm.clients import client_for
from refine.llm.messages import Message, Reply, ToolCall, tool_message
from refine.llm.openrouter import Cancelled, OpenRouter
from refine.models import LeaseLost, MemoryTask
from refine.models.memory_task import EndStatus
from refine.prompts import as_line
from refine.refinement.asking import (
    MAX_CUT_REPLIES,
    MAX_TOOL_CALLS,
    Ended,
    Execute,
    ending_of,
    once_a_second,
    privacy_of,
    result_of,
)
from refine.refinement.heartbeat import beating
from refine.refinement.prompting import SMALLEST_CONTEXT_TOKENS
from refine.remembering.prompting import lines_of, opening, parts_of
from refine.rules.model_names import is_same_model
from refine.settings import Settings
from refine.tools import PromoteTool, SaveToJournalTool, promote, save_to_journal

_TOOLS: dict[str, tuple[type[PromoteTool | SaveToJournalTool], dict[str, Any]]] = {
    "reflection": (PromoteTool, promote.DEFINITION),
    "extraction": (SaveToJournalTool, save_to_journal.DEFINITION),
}
_NOTHING_TO_READ = "nothing was written in its journal of the last week"
_TOO_LARGE = "a single entry is too large for the context of the agent's model"


def remember(
    task_id: uuid.UUID, settings: Settings, *, is_stopping: Callable[[], bool] = lambda: False
) -> MemoryTask | None:
    """Work on a queued task to its end; None where it is not to be had, or we are to end already.

    ``is_stopping`` tells that this process was asked to end: the task is then given up at its next
    step, and tried again if nothing was kept yet. Commits at every step. A fault of ours gives the
    task up, too, and is raised again.
    """
    if is_stopping():
        db.session.rollback()
        return None
    task = db.session.get_one(MemoryTask, task_id)
    lease_token = task.claim()
    db.session.commit()
    if lease_token is None:
        return None
    run = _Run(task, lease_token, settings, is_stopping)
    with beating(task_id, lease_token, MemoryTask):
        run.whole()
    return task


class _Run:
    """One worker's hold on one task."""

    def __init__(
        self,
        task: MemoryTask,
        lease_token: uuid.UUID,
        settings: Settings,
        is_stopping: Callable[[], bool],
    ) -> None:
        # read afresh after every commit
        self._task = task
        self._task_id = task.id
        self._lease_token = lease_token
        self._settings = settings
        self._is_stopping = is_stopping
        self._deadline = time.monotonic() + settings.max_seconds
        self._messages: list[Message] = []
        self._turns = self._cut = 0
        tool, self._definition = _TOOLS[task.kind]
        self._execute: Execute = tool(self._task_id, lease_token).execute
        db.session.commit()

    def whole(self) -> None:
        """Go through all of it, and write its end, whatever happens; a fault is raised again."""
        ending: Ended | None = None
        try:
            try:
                self.to_its_end()
                ending = Ended("completed", "")
            except Ended as reached:
                ending = reached
            self.finish(ending)
        except LeaseLost:
            # another process ended this task, or put it off, and said why
            db.session.rollback()
        except BaseException as fault:
            let_go()
            self.finish(ending or ending_of(fault))
            raise

    def to_its_end(self) -> None:
        """Read part after part; raises Ended where it ends otherwise than completed."""
        lines = lines_of(self._task)
        model_id = self._task.model_id
        db.session.commit()
        if not lines:
            raise Ended("skipped", _NOTHING_TO_READ)
        try:
            with client_for(model_id, self._settings) as client:
                parts = self._parts(lines, client)
                for number, part in enumerate(parts, start=1):
                    self._messages = opening(self._task, part, number, len(parts))
                    db.session.commit()
                    self._read(client)
        except ProviderError as fault:
            raise Ended(None, str(fault), fault.kind) from None

    def finish(self, ending: Ended) -> None:
        """Write the end, unless the task ended or was taken away meanwhile."""
        try:
            task = self._held()
        except LeaseLost:
            db.session.rollback()
            return
        if ending.status is None:
            task.give_up(ending.reason, ending.error_kind)
        else:
            status = cast(EndStatus, ending.status)
            task.finish(status, ending.reason or None, error_kind=ending.error_kind)
        db.session.commit()

    # -- the steps --------------------------------------------------------------------------------

    def _parts(self, lines: list[str], client: OpenRouter) -> list[list[str]]:
        """The lines in parts that fit; the model's context is looked up only where it matters."""
        task = self._held()
        task.prompt_version = prompts.version()
        model_id = task.model_id
        parts = parts_of(lines, task, SMALLEST_CONTEXT_TOKENS)
        db.session.commit()
        if parts is None or len(parts) > 1:
            context_tokens = client.context_tokens(model_id) or self._settings.context_tokens
            parts = parts_of(lines, self._task, context_tokens)
            db.session.commit()
        if parts is None:
            raise Ended("failed", _TOO_LARGE, "too_large")
        return parts

    def _read(self, client: OpenRouter) -> None:
        """One part, until the model answers without calling the tool."""
        while True:
            if self._turns >= self._settings.max_turns:
                raise Ended(
                    "incomplete", f"the limit of {self._settings.max_turns} turns was reached"
                )
            self._turns += 1
            reply = self._ask(client)
            self._cut += reply.is_cut
            if self._cut > MAX_CUT_REPLIES:
                raise Ended("incomplete", "the model's answers were cut at the output limit")
            if not reply.tool_calls:
                return
            for call in reply.tool_calls:
                self._carry_out(call)

    def _carry_out(self, call: ToolCall) -> None:
        task = self._held()
        self._stop_if_asked()
        if task.tool_calls >= MAX_TOOL_CALLS:
            raise Ended("incomplete", f"the limit of {MAX_TOOL_CALLS} tool calls was reached")
        task.tool_calls += 1
        db.session.commit()
        result = result_of(self._execute, self._definition, call)
        self._messages.append(tool_message(call, as_line(result)))

    def _ask(self, client: OpenRouter) -> Reply:
        """Ask for the next message, with no transaction open, and count what it cost."""
        self._stop_if_asked()
        task = self._task
        model_id, privacy = task.model_id, privacy_of(task.agent, task.id)
        db.session.commit()
        try:
            reply = client.generate(
                model_id,
                self._messages,
                [self._definition],
                privacy,
                deadline=self._deadline,
                is_cancelled=once_a_second(self._is_stopping, self._is_unwanted),
            )
        except Cancelled:
            self._held()
            raise _stopped() from None
        except ProviderError as fault:
            if fault.kind == "deadline" or time.monotonic() >= self._deadline:
                raise self._out_of_time() from None
            raise
        self._count_call(reply)
        if not is_same_model(model_id, reply.model):
            raise ProviderError("another model than the agent's own answered", kind="other_model")
        self._messages.append(reply.message)
        return reply

    def _count_call(self, reply: Reply) -> None:
        task = self._held()
        task.llm_calls += 1
        task.prompt_tokens += reply.usage.prompt_tokens
        task.cached_tokens += reply.usage.cached_tokens
        task.completion_tokens += reply.usage.completion_tokens
        task.cost_usd += reply.usage.cost_usd
        db.session.commit()

    # -- the task ---------------------------------------------------------------------------------

    def _held(self) -> MemoryTask:
        return MemoryTask.held(self._task_id, self._lease_token)

    def _stop_if_asked(self) -> None:
        if self._is_stopping():
            raise _stopped()
        if time.monotonic() >= self._deadline:
            raise self._out_of_time()

    def _out_of_time(self) -> Ended:
        reason = f"the limit of {self._settings.max_seconds} seconds was reached"
        return Ended(None, reason, "timeout")

    def _is_unwanted(self) -> bool:
        unwanted = self._task.lease_token != self._lease_token
        db.session.commit()
        return unwanted


def _stopped() -> Ended:
    return Ended(None, "its process was asked to end", "worker_stopped")
