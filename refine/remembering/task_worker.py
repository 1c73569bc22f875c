"""A memory task from its id to its end: its parts are read one after the other."""

from functools import partial
from typing import cast

from refine import prompts
from refine.models import MemoryTask
from refine.models.runs.task import EndStatus
from refine.remembering.prompting import Layout, layout_of, lines_of, opening
from refine.running import ModelWorker, RunEnded
from refine.tools import PromoteTool, SaveToJournalTool

_TOOLS: dict[str, type[PromoteTool | SaveToJournalTool]] = {
    "reflection": PromoteTool,
    "extraction": SaveToJournalTool,
}
_NOTHING_TO_READ = "nothing was written in its journal of the last week"
_TOO_LARGE = "a single entry is too large for the context of the agent's model"


class TaskWorker(ModelWorker[MemoryTask]):
    """Works on one task, which is retried later if it kept nothing."""

    _kind = MemoryTask

    def _work(self) -> None:
        tool = _TOOLS[self._committed(lambda: self._run.kind)]
        self._definition = tool.definition
        self._execute = tool(self._run_id, self._lease_token, self._retry).execute
        lines = self._committed(lambda: lines_of(self._run))
        if not lines:
            raise RunEnded("skipped", _NOTHING_TO_READ)
        with self._connected():
            layout = self._committed(lambda: self._layout(lines))
            if layout is None:
                raise self._committed(self._does_not_fit)
            unread = len(lines)
            for part, shown in enumerate(layout.parts, start=1):
                self._messages = self._committed(partial(opening, self._run, layout, part))
                self._read(unread := unread - len(shown))
        raise RunEnded("completed", "")

    def _end(self, run: MemoryTask, ending: RunEnded) -> None:
        status = cast(EndStatus, ending.status)
        if status == "incomplete" and run.kind == "extraction":
            run.give_up(ending.reason, ending.error_kind)
            return
        run.finish(status, ending.reason or None, error_kind=ending.error_kind)

    def _layout(self, lines: list[str]) -> Layout | None:
        task = self._held()
        task.prompt_version = prompts.version()
        if task.kind == "extraction":
            task.lines_unread = len(lines)
        return layout_of(lines, task, self._room)

    def _does_not_fit(self) -> RunEnded:
        """A conversation waits: until it lapses, its agent may be given another model."""
        status = None if self._held().kind == "extraction" else "failed"
        return RunEnded(status, _TOO_LARGE, "too_large")

    def _too_large(self) -> RunEnded:
        """An orderly end: the first request fits, and another attempt would grow as large."""
        grown = super()._too_large()
        return RunEnded("incomplete", grown.reason, grown.error_kind)

    def _read(self, unread_after: int) -> None:
        self._turns = 0
        kept = self._committed(lambda: self._run.memories_kept)
        while calls := self._turn().tool_calls:
            for call in calls:
                self._begin_tool_call()
                self._carry_out(call)
                self._committed(partial(self._note_read, unread_after, kept))
        self._committed(partial(self._note_read, unread_after))

    def _note_read(self, unread_after: int, kept_before: int = -1) -> None:
        task = self._held()
        if task.kind == "extraction" and task.memories_kept > kept_before:
            task.lines_unread = unread_after


run_task = TaskWorker.work_on
