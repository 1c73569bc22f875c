"""The columns of a memory task, and the words for its states; the verbs are in the files beside."""

from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import Text, text
from sqlalchemy.orm import Mapped, mapped_column

from refine import clock
from refine.models.columns import Count, Sealed, SealedText
from refine.models.run import Run
from refine.rules.content import storable

Kind = Literal["reflection", "extraction"]
KINDS: tuple[Kind, ...] = ("reflection", "extraction")

Trigger = Literal["daily", "api", "cli"]
TRIGGERS: tuple[Trigger, ...] = ("daily", "api", "cli")

EndStatus = Literal["completed", "incomplete", "skipped", "failed"]
ENDED = ("completed", "incomplete", "skipped", "failed")

# How many memories one task may promote or save.
MAX_KEPT: dict[str, int] = {"reflection": 10, "extraction": 20}
# What nobody could work on for so long is not worked on any more.
LAPSES_AFTER: dict[str, timedelta] = {
    "reflection": timedelta(days=1),
    "extraction": timedelta(days=7),
}


def _json(field: str, value: object) -> str | None:
    return None if value is None else storable(value, field=field)


class TaskColumns(Run):
    """What a task's row holds besides its lease; the conversation only as long as it is needed."""

    __tablename__ = "memory_tasks"

    kind: Mapped[str] = mapped_column(Text)
    sealed_conversation: Mapped[Sealed | None] = mapped_column("conversation", deferred=True)
    memories_kept: Mapped[Count]

    due_at: Mapped[datetime] = mapped_column(default=clock.now, server_default=text("now()"))

    conversation = SealedText(_json)
