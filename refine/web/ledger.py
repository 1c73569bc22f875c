"""Which memories a ledger page lists: its filter, and the names of each kind."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sqlalchemy import Select, select

from refine import clock
from refine.models import Agent, AgentMemory
from refine.models.ledger import Composition, is_of_kind
from refine.rules.content import TAGS


class Kind(NamedTuple):
    """A kind of memories: its name, how many there are, and what to say if there are none."""

    name: str
    count: Callable[[Composition], int]
    none: str


KINDS = {
    "core": Kind(
        "core", lambda kept: kept.core, "No core memories: there is nothing to refine yet."
    ),
    "constitutional": Kind(
        "constitutional", lambda kept: kept.constitutional, "No constitutional memories."
    ),
    "journal": Kind(
        "journal, last week",
        lambda kept: kept.journal_shown,
        "No journal memories from the last week.",
    ),
    "expired": Kind(
        "journal, expired", lambda kept: kept.journal_expired, "No expired journal memories."
    ),
    "discarded": Kind("discarded", lambda kept: kept.discarded, "No discarded memories."),
}


class LedgerFilter(NamedTuple):
    kind: str
    tag: str
    locked: bool

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> "LedgerFilter":
        """Read the filter from a URL or form; invalid values are ignored."""
        kind, tag = fields.get("kind", ""), fields.get("tag", "")
        return cls(
            kind=kind if kind in KINDS else "core",
            tag=tag if tag in TAGS else "",
            locked=bool(fields.get("locked")),
        )

    @property
    def is_narrowed(self) -> bool:
        return bool(self.tag) or self.locked

    def fields(self) -> dict[str, str]:
        return {"kind": self.kind, "tag": self.tag, "locked": "1" if self.locked else ""}

    def query(self, agent: Agent) -> Select[AgentMemory]:
        query = (
            select(AgentMemory)
            .where(AgentMemory.agent_id == agent.id, is_of_kind(self.kind, clock.now()))
            .order_by(AgentMemory.created_at.desc(), AgentMemory.id.desc())
        )
        if self.locked:
            query = query.where(AgentMemory.is_locked)
        if self.tag:
            query = query.where(AgentMemory.tags.contains([self.tag]))
        return query


def counted_kinds(kept: Composition) -> list[tuple[str, str, int]]:
    return [(kind, each.name, each.count(kept)) for kind, each in KINDS.items()]
