"""What an agent keeps in a task: journal entries promoted to core, or new journal memories."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import Select, or_

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models.agent import JOURNAL_SHOWN_FOR
from refine.models.image import Change
from refine.models.memory import AgentMemory, change_memories, content_hash
from refine.models.memory_task.columns import MAX_KEPT, TaskColumns
from refine.rules.content import memory_content


class Keeping(TaskColumns):
    """The verbs of the two tools; each expects the task to be held, its agent locked."""

    def entries(self) -> Select[AgentMemory]:
        """Return a query for the journal that the task is about: the week before it began.

        What was written since is for the next one.
        """
        began = self.started_at or self.created_at
        return self.agent.journal(began).where(AgentMemory.recorded_at <= began)

    def promote(
        self, ids: Sequence[int], *, at: datetime | None = None
    ) -> tuple[list[int], dict[int, int]]:
        """Make core memories of these entries, one record each (``memory_promoted``).

        Return the promoted ids, and by id the kept core memory that each of the others repeats.
        InvalidValue where one is no entry, or constitutional, or they are too many: then nothing
        is promoted.
        """
        at = at or clock.now()
        entries = self._entries(ids)
        standing = self._standing(entry.content_hash for entry in entries)
        promoted: list[int] = []
        repeating: dict[int, int] = {}
        for entry in entries:
            if (same := standing.setdefault(entry.content_hash, entry.id)) != entry.id:
                repeating[entry.id] = same
            else:
                promoted.append(entry.id)
        self._count(len(promoted))
        for entry in entries:
            if entry.id in promoted:
                before = entry.image()
                change_memories(
                    "memory_promoted",
                    [Change(entry.id, before, {**before, "memory_type": "core"})],
                    agent=self.agent,
                    subject=("AgentMemory", entry.id),
                    data=self._origin("promote"),
                    at=at,
                )
        return promoted, repeating

    def save(
        self, content: object, tags: object = (), *, at: datetime | None = None
    ) -> tuple[AgentMemory, bool]:
        """Save a journal memory; return it, and whether it is one that was there already.

        Exact duplicates of a kept core memory, or of the journal of the last week, are not saved.
        Recorded as ``memory_saved``.
        """
        at = at or clock.now()
        text = memory_content(content)
        same = self.agent.memories().where(
            AgentMemory.content_hash == content_hash(text, self.data_key()),
            or_(
                AgentMemory.memory_type == "core",
                AgentMemory.created_at > at - JOURNAL_SHOWN_FOR,
            ),
        )
        if (existing := db.session.scalar(same.limit(1))) is not None:
            return existing, True
        self._count(1)
        return self.agent.remember(text, "journal", tags, at, data=self._origin("extract"))

    def _entries(self, ids: Sequence[int]) -> list[AgentMemory]:
        AgentMemory.locked(self.agent, ids)
        found = db.session.scalars(self.entries().where(AgentMemory.id.in_(ids)))
        entries = {entry.id: entry for entry in found}
        if unknown := [id_ for id_ in ids if id_ not in entries]:
            raise InvalidValue(
                f"{_named(unknown)} not found: only the journal entries that you were shown can "
                "be promoted; nothing was done"
            )
        if locked := [id_ for id_ in ids if entries[id_].constitutional]:
            raise InvalidValue(
                f"Cannot promote constitutional {_named(locked).lower()}; nothing was done"
            )
        return [entries[id_] for id_ in ids]

    def _standing(self, hashes: Iterable[str]) -> dict[str, int]:
        """The kept core memories of these contents, by content."""
        core = self.agent.memories("core").where(AgentMemory.content_hash.in_(list(hashes)))
        columns = core.with_only_columns(AgentMemory.content_hash, AgentMemory.id)
        return dict(db.session.execute(columns).all())

    def _count(self, more: int) -> None:
        most = MAX_KEPT[self.kind]
        if self.memories_kept + more > most:
            raise InvalidValue(
                f"At most {most} memories in one {self.kind}; "
                f"{most - self.memories_kept} are left, and nothing was done"
            )
        self.memories_kept += more

    def _origin(self, operation: str) -> dict[str, str]:
        return {"operation": operation, "task_id": str(self.id)}


def _named(ids: Sequence[int]) -> str:
    if len(ids) == 1:
        return f"Memory #{ids[0]}"
    return f"Memories {', '.join(f'#{id_}' for id_ in ids)}"
