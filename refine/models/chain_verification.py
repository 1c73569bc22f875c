"""The verification of one chain, step by step, and what it has found so far."""

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

from refine import clock
from refine.models.agent import Agent
from refine.models.attested import Attested, plain_digest
from refine.models.audit import ChainHead
from refine.models.audit.chain_walk import ChainBroken, Walk
from refine.models.audit.checkpoint import Position, packed, unpacked
from refine.models.audit.linking import StoredRecord
from refine.models.audit.verification import ChainResult
from refine.models.columns import DigestChange
from refine.models.ledger import recorded_digests
from refine.models.ledger.stored import StoredMemory
from refine.sealing import DataKey

# Digests by memory id, and by the name of any other row, as the last record left them.
Digests = dict[int, str | None]
RowDigests = dict[str, str | None]
_Key = TypeVar("_Key", int, str)


class ChainVerification:
    """The verification of one chain, and what it has found so far."""

    head: ChainHead
    agent: Agent | None = None
    key: DataKey | None = None
    problem: str | None = None
    last_problem: str | None = None

    def __init__(self, id_: int, *, verified: Position | None, goes_on: bool) -> None:
        self.id = id_
        if verified is not None and goes_on:
            left: Any = unpacked(verified.left_digests)
            self.walk = Walk(verified, verified, datetime.fromisoformat(left[3]))
        else:
            left = [[], {}, False]
            self.walk = Walk(None, verified)
        self._digests: Digests = dict(left[0])
        self._rows: RowDigests = left[1]
        self._was_erased: bool = left[2]
        self._position: Position | None = None
        self._memories = 0
        self._kept: list[int] = []

    def attempt(self, step: Callable[..., None], *about: Any) -> None:
        """Take a step, unless a problem was found already."""
        if self.problem is None:
            try:
                step(*about)
            except ChainBroken as broken:
                self.problem = str(broken)

    def result(self) -> ChainResult:
        """Return what was found."""
        problem = self.problem or self.last_problem
        return ChainResult(
            self.head.name, self.walk.sequence, self._memories, problem, self.id, self._position
        )

    def read(self, records: Iterable[StoredRecord]) -> None:
        """Read the next records."""
        for record in records:
            self.walk.follow(record)
            if '"memories":[{' in record.data:  # parsing takes as long as hashing
                for id_, change in recorded_digests(json.loads(record.data)).items():
                    self._take_over(self._digests, id_, change, "memory {}")
            if record.rows is not None:
                for name, change in json.loads(record.rows).items():
                    self._take_over(self._rows, name, change, "{}")
            self._was_erased |= record.action == "agent_erased"

    def _take_over(
        self, digests: dict[_Key, str | None], key: _Key, change: DigestChange, name: str
    ) -> None:
        before, after = change
        if digests.get(key, before) != before:
            raise ChainBroken(f"{name.format(key)} was set back before record {self.walk.sequence}")
        digests[key] = after

    def end(self) -> None:
        """Compare with the head, once every record was read."""
        self.walk.end(self.head)
        latest_at = clock.iso(self.walk.latest_at)
        left = packed([sorted(self._digests.items()), self._rows, self._was_erased, latest_at])
        self._position = Position(self.walk.sequence, self.walk.link, left)

    def open(self) -> None:
        """Open the agent's key; it must be there unless a record says that it was destroyed."""
        if self.agent is None:
            raise ChainBroken("the agent is gone")
        if self.agent.is_erased:
            if not self._was_erased:
                raise ChainBroken("the data key was destroyed without a record")
            return  # no key is left to check contents with
        if self._was_erased:
            raise ChainBroken("the data key was destroyed, but is back")
        if not self.agent.is_genuine:
            raise ChainBroken(f"{self.agent.row_name} was changed outside the application")
        self.key = self.agent.data_key()

    def compare_memories(self, rows: Iterable[Any]) -> None:
        """Compare memories with their digests and their last records."""
        key = self.key
        assert key is not None  # noqa: S101 - for mypy
        for memory in (StoredMemory.of(row, key) for row in rows):
            self._memories += 1
            if memory.is_kept_core:
                self._kept.append(memory.token_estimate)
            if not memory.is_genuine:
                raise ChainBroken(f"memory {memory.id} was changed outside the application")
            recorded = self._digests.pop(memory.id, None)
            if recorded is not None and recorded != memory.state_digest:
                raise ChainBroken(f"memory {memory.id} does not match its last record")

    def miss_no_memory(self) -> None:
        """Look for memories that are gone."""
        if self._digests:
            raise ChainBroken(f"memory {min(self._digests)} has records, but is gone")
        verified = self.head.verified_memories
        if self._memories < verified:
            missing = verified - self._memories
            raise ChainBroken(f"{missing} of {verified} verified memories are gone")

    def compare_figures(self, newest_session_at: datetime | None) -> None:
        """Compare the figures on the agent's row."""
        agent = self.agent
        assert agent is not None  # noqa: S101 - for mypy
        if agent.ledger.core_totals() != (len(self._kept), sum(self._kept)):
            raise ChainBroken("the figures in the agent's row do not match its memories")
        if agent.last_session_at != newest_session_at:
            raise ChainBroken("the last session in the agent's row does not match its sessions")

    def compare_row(self, kind: type[Attested], row: Any) -> None:
        """Compare an attested row with its digest and its last record."""
        name = f"{kind.__name__} {row.id}"
        if row.row_digest != plain_digest(kind, row):
            raise ChainBroken(f"{name} was changed outside the application")
        if self._rows.pop(name, row.row_digest) != row.row_digest:
            raise ChainBroken(f"{name} does not match its last record")

    def miss_no_row(self) -> None:
        """Look for attested rows that are gone."""
        if missing := [name for name, digest in self._rows.items() if digest is not None]:
            raise ChainBroken(f"{min(missing)} has records, but is gone")
