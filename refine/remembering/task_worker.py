"""A memory task from its id to its end: its parts are read one after the other, in a conversation
for each part.

    system      a line of the agent's own, and its system prompt
    user        the core memories and the lines, as data; the rules; the agent's own prompt
    assistant   tool calls …, each answered by a tool message

Every memory, entry or message is one line of JSON, so that it cannot pose as another line, a rule
or a role.
"""

from dataclasses import dataclass
from functools import partial
from typing import cast

from refine import clock, prompts
from refine.errors import InvalidValue
from refine.extensions import db
from refine.llm.messages import Message, user_message
from refine.models import MemoryTask
from refine.models.runs import task as tasks
from refine.models.runs.task import MAX_KEPT, EndStatus
from refine.prompts import as_block, as_entry, as_line
from refine.rules.tokens import Room, last_that_fit, packed, tokens_at_most
from refine.running import ModelWorker, RunEnded
from refine.running.model_calls import answer_to_question
from refine.tools import ErasePersonTool, PromoteTool, SaveToJournalTool

_TOOLS: dict[str, type[PromoteTool | SaveToJournalTool | ErasePersonTool]] = {
    "reflection": PromoteTool,
    "extraction": SaveToJournalTool,
    "data_subject": ErasePersonTool,
}
_NOTHING_TO_READ = "nothing was written in its journal of the last week"
_TOO_LARGE = "a single entry is too large for the context of the agent's model"


# The agent's own prompt that goes into the template of a kind of task.
_OWN_PROMPTS = {"reflection": "memory_reflection_prompt", "extraction": "reflection_prompt"}


def lines_of(task: MemoryTask) -> list[str]:
    """Return unread journal entries or messages, each as one line of JSON."""
    if task.kind == "extraction":
        return [as_line(message) for message in task.messages()[-task.lines_unread :]]
    return [
        as_entry(entry.ledger_entry()) for entry in db.session.scalars(tasks.journal_entries(task))
    ]


@dataclass(frozen=True)
class Layout:
    core: list[str]
    core_memories: int
    parts: list[list[str]]


def layout_of(lines: list[str], task: MemoryTask, room: Room) -> Layout | None:
    """Return how lines fit, core memories in at most half of the room; None if a line does not."""
    own_texts = [message["content"] for message in opening(task, Layout([], 0, [[]]))]
    room_tokens = room.for_content(own_texts)
    kept = db.session.scalars(task.agent.ledger.core())
    memories = [as_line(memory.dated_content()) for memory in kept]
    longest = max(map(tokens_at_most, lines), default=0)
    core = last_that_fit(memories, min(room_tokens // 2, room_tokens - longest))
    try:
        parts = packed(lines, room_tokens - sum(map(tokens_at_most, core)))
    except InvalidValue:
        return None
    return Layout(core, len(memories), parts)


def opening(task: MemoryTask, layout: Layout, part: int = 1) -> list[Message]:
    """Return the first messages of a part, counted from 1."""
    style, _is_default = task.agent.effective(_OWN_PROMPTS[task.kind])
    shown = prompts.render(
        task.kind,
        today=f"{clock.now():%Y-%m-%d}",
        core=layout.core,
        core_memories=layout.core_memories,
        core_tokens=task.agent.core_token_usage,
        budget_tokens=task.agent.core_token_budget,
        lines=layout.parts[part - 1],
        part=part,
        parts=len(layout.parts),
        max_kept=MAX_KEPT[task.kind],
        style=as_block(style),
    )
    return [{"role": "system", "content": task.agent.system_message}, user_message(shown)]


def question(task: MemoryTask) -> list[Message]:
    task.prompt_version = prompts.version()
    shown = prompts.render("data_subject", words=as_line({"words": task.conversation}))
    return [{"role": "system", "content": task.agent.system_message}, user_message(shown)]


class TaskWorker(ModelWorker[MemoryTask]):
    """Works on one task, which is retried later if it kept nothing."""

    _kind = MemoryTask

    def _work(self) -> None:
        kind = self._committed(lambda: self._run.kind)
        self._definition = _TOOLS[kind].definition
        self._execute = _TOOLS[kind](self._run_id, self._lease_token, self._retry).execute
        if kind == "data_subject":
            self._search()
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

    def _search(self) -> None:
        """Ask for consent, then let the model search and say what is to be erased."""
        with self._connected():
            self._messages = self._committed(lambda: question(self._held()))
            _, has_agreed = answer_to_question(self._ask_model, self._messages)
            if not has_agreed:
                raise RunEnded("skipped", "the agent declined")
            self._messages.append(user_message(prompts.render("data_subject", words=None)))
            self._read(0)
        raise RunEnded("completed", "")

    def _end(self, run: MemoryTask, ending: RunEnded) -> None:
        status = cast(EndStatus, ending.status)
        if status == "incomplete" and run.kind != "reflection":
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
