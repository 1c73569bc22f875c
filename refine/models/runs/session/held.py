"""What an edit works on, and how it is written: plain statements in one transaction.

Thousands of sessions run in a night, so an edit costs little more than its three statements:
lock the session, its agent and the end of the agent's chain (``held``); lock the memories, with
what is counted for them (``look_up``); write record, memories, entries and session (``write``).
"""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self, cast

from refine.errors import RowAltered
from refine.extensions import canonical_json, db
from refine.models.agent import Agent
from refine.models.attested import require_genuine_values, signed
from refine.models.audit import Chain, Subject
from refine.models.audit.chain import StoredHead
from refine.models.audit.linking import Event, StoredRecord, next_records
from refine.models.audit.record import appended
from refine.models.columns import array
from refine.models.keys import WrappedKey, key_owner_name
from refine.models.ledger import Change
from refine.models.ledger.memory import about_changes
from refine.models.ledger.stored import COLUMNS, StoredMemory, added, altered
from refine.models.runs.session import breaker
from refine.models.runs.session.entry import Entry, SessionEntry, counted, genuine_entry
from refine.models.runs.session.session import RefinementSession
from refine.models.runs.session.state import MAX_MUTATIONS
from refine.models.runs.session.statements import (
    FIGURES,
    HOLD,
    LOOK_UP,
    PARTS,
    WRITE,
    WRITE_WITH_NEW,
)
from refine.rules.retention import trips_breaker
from refine.sealing import DataKey


@dataclass(frozen=True)
class Edit:
    """One edit: its changes, and memories, entries and the ``new`` memory as they are after it.

    ``stat`` names a figure of the session's stats and its increase; ``removed_tokens`` no longer
    count.
    """

    operation: str
    subject_id: int
    changes: list[Change]
    memories: list[StoredMemory]
    entries: list[Entry]
    stat: tuple[str, int]
    removed_tokens: int = 0
    new: StoredMemory | None = None

    @property
    def is_mutation(self) -> bool:
        """Whether the cap counts it."""
        return self.operation != "protect"


@dataclass
class Lookup:
    """Locked memories by id, their entries, and what else an edit must know before it is made."""

    memories: dict[int, StoredMemory]
    entries: dict[int, Entry]
    record_id: int = 0
    new_memory_id: int | None = None
    copy_id: int | None = None


@dataclass(frozen=True)
class HeldAgent:
    """The agent of a held session."""

    id: int
    account_id: int
    core_tokens: int
    ledger_version: int
    key: DataKey

    def data_key(self) -> DataKey:
        """Return the agent's key."""
        return self.key

    @property
    def chain(self) -> Chain:
        """The agent's audit chain."""
        return Chain(self.account_id, self.id, self.key)


class HeldSession:
    """A running session whose lease the caller holds, locked until the transaction ends."""

    def __init__(
        self,
        values: dict[str, Any],
        lease_token: uuid.UUID | None,
        agent: HeldAgent,
        head: StoredHead,
    ) -> None:
        self._values = values
        self._lease_token = lease_token
        self._head = head
        self.agent = agent
        self.id: uuid.UUID = values["id"]

    @classmethod
    def held(cls, session_id: uuid.UUID, lease_token: uuid.UUID | None) -> Self:
        """Lock the session with its agent; LeaseLost or RowAltered as in ``Run.held``."""
        db.session.flush()
        ids = {"session_id": session_id, "lease_token": lease_token}
        rows = HOLD.execute(ids)
        if not rows:
            session = RefinementSession.held(session_id, lease_token)
            raise RowAltered(f"the audit chain of agent {session.agent_id}")
        values = iter(rows[0])
        figures, agent, head, key = (dict(zip(part, values, strict=False)) for part in PARTS)
        require_genuine_values(Agent, agent)
        require_genuine_values(RefinementSession, figures)
        owners = figures["agent_id"], head["agent_id"]
        if figures["id"] != session_id or owners != (agent["id"], agent["id"]):
            raise RowAltered(f"RefinementSession {session_id}")
        end = StoredHead.genuine(head.values())
        return cls(figures, lease_token, _held_agent(agent, WrappedKey(**key)), end)

    # -- figures ----------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """The status: ``running``, or ``rolled_back`` by an edit that removed too much."""
        return str(self._values["status"])

    @property
    def is_running(self) -> bool:
        """Whether the session continues."""
        return self.status == "running"

    @property
    def end_reason(self) -> str | None:
        """Why it was rolled back."""
        return cast(str | None, self._values["end_reason"])

    @property
    def stats(self) -> dict[str, int]:
        """What the session has done."""
        return cast(dict[str, int], self._values["stats"])

    @property
    def mutation_count(self) -> int:
        """How many mutations it has made."""
        return int(self._values["mutation_count"])

    @property
    def operations_left(self) -> int:
        """How many mutations it may still make."""
        return MAX_MUTATIONS - self.mutation_count

    @property
    def tokens_left(self) -> int:
        """How many tokens it may still remove."""
        return int(self._values["removable_tokens"] - self._values["removed_tokens"])

    def count_lost(self, details: int) -> None:
        """Count details that the edit to be written loses."""
        self._values["details_lost"] += details

    # -- looking, and writing ---------------------------------------------------------------------

    def look_up(
        self, ids: Collection[int], content_hash: str | None = None, *, is_merge: bool = False
    ) -> Lookup:
        """Return those of the agent's memories by id, locked in order of id, with their entries.

        ``content_hash`` is that of a new text, to look for a copy of it; ``is_merge``: an id for a
        new memory is needed. RowAltered if a memory, or what the session has done, is not as the
        application left it.
        """
        wanted = {
            "session_id": self.id,
            "agent_id": self.agent.id,
            "ids": array(ids),
            "content_hash": content_hash,
            "is_merge": is_merge,
        }
        lookup = Lookup({}, {})
        for row in LOOK_UP.execute(wanted):
            made, lookup.copy_id, lookup.record_id, lookup.new_memory_id, *found = row
            if made != self.mutation_count:
                raise RowAltered(f"RefinementSession {self.id}")
            memory = StoredMemory.of(found, self.agent.key)
            memory.require_genuine(self.agent.key)
            lookup.memories[memory.id] = memory
            if (entry := found[len(COLUMNS) :])[0] is not None:
                lookup.entries[memory.id] = genuine_entry(self.id, entry, self.agent.key)
        return lookup

    def show(self, memory: StoredMemory) -> None:
        """Note that the agent is shown the memory as it is; RowAltered if entries were altered."""
        session = db.session.get_one(RefinementSession, self.id, populate_existing=True)
        SessionEntry.show(session, [memory])

    def write(self, edit: Edit, record_id: int, at: datetime) -> tuple[StoredRecord, int]:
        """Write an edit, with its record; return that, and the new version of the ledger.

        The session is rolled back entirely if it removed more than it may.
        """
        removed = self._values["removed_tokens"] + edit.removed_tokens
        is_too_much = trips_breaker(
            removed,
            removable=self._values["removable_tokens"],
            memories_before=self._values["memories_before"],
        )
        event = self._event(edit)
        (record,) = next_records(self._head, [(record_id, event)], self.agent.chain, at)
        written = {
            **appended(record, self._head),
            **altered(edit.memories),
            **counted(self.id, edit.entries, self.agent.key),
            **self._figures(edit, None if is_too_much else removed),
        }
        if edit.new is None:
            WRITE.execute(written)
        else:
            WRITE_WITH_NEW.execute({**written, **added(edit.new)})
        if is_too_much:
            self._roll_back(removed, at)
        # a trigger counts each statement that writes memories
        return record, self.agent.ledger_version + (1 if edit.new is None else 2)

    def _event(self, edit: Edit) -> Event:
        agent = self.agent
        added_tokens = edit.new.token_estimate if edit.new is not None else 0
        data = {"operation": edit.operation}
        about = about_changes(edit.changes, agent.key, agent.core_tokens + added_tokens, data)
        subject: tuple[Subject, object] = ("AgentMemory", edit.subject_id)
        action = f"memory_refinement_{edit.operation}"
        return Event(action, session_id=self.id, subject=subject, **about)

    def _figures(self, edit: Edit, removed_tokens: int | None) -> dict[str, Any]:
        """Count the edit; return the figures of the session's row as they are now."""
        if removed_tokens is not None:
            self._values["removed_tokens"] = max(0, removed_tokens)
        self._values["mutation_count"] += edit.is_mutation
        name, amount = edit.stat
        self._values["stats"] = {**self.stats, name: self.stats[name] + amount}
        self._values |= signed(RefinementSession, self._values)
        figures = {**self._values, "stats": canonical_json(self.stats)}
        return {f"session_{name}": figures[name] for name in FIGURES}

    def _roll_back(self, removed_tokens: int, at: datetime) -> None:
        session = RefinementSession.held(self.id, self._lease_token)
        breaker.roll_back(session, removed_tokens, at)
        for name in ("status", "end_reason", "stats"):
            self._values[name] = getattr(session, name)


def _held_agent(values: dict[str, Any], key: WrappedKey) -> HeldAgent:
    names = ("id", "account_id", "core_tokens", "ledger_version")
    opened = key.open(key_owner_name(values["id"]))
    return HeldAgent(**{name: values[name] for name in names}, key=opened)
