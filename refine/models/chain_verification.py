"""The verification of one chain: its records, and the rows that they name."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import orjson

from refine.errors import RefineError
from refine.models.agent import Agent
from refine.models.attested import Attested, digest_of
from refine.models.audit import ChainHead
from refine.models.audit.record import GENESIS, link_hash
from refine.models.columns import DigestChange
from refine.models.keys import WrappedKey
from refine.models.ledger.image import is_kept_core, recorded_digests
from refine.models.ledger.memory import AgentMemory, state_digest_of
from refine.models.runs.session.session import END_ACTION, ENDED, MUTATIONS, RefinementSession
from refine.sealing import DataKey

_Key = TypeVar("_Key", int, str)

# By so much a record may be dated before an earlier one of its chain. Its time is taken before it
# waits for locks, for 20 seconds at each, and by the clocks of several machines.
MAX_STEP_BACK = timedelta(minutes=5)
# A grant that has expired is recorded as of its end, whenever that is noticed.
_DATED_BACK = "memory_access_ended"

# A row that was altered when it ended stays as it is: its record alone tells of the end.
_ENDING_ACTIONS = {
    "token_revoked",
    "sign_in_ended",
    "invitation_ended",
    "memory_access_ended",
    "memory_access_revoked",
}
_ENDED_AT = {
    "ApiToken": "revoked_at",
    "SignIn": "ended_at",
    "Invitation": "used_at",
    "AccessGrant": "ended_at",
}


class ChainBroken(Exception):
    """The first bad record of a chain, or the first row that does not match its records."""


class ChainVerification:
    agent: Agent | None = None
    key: DataKey | None = None
    problem: str | None = None

    def __init__(self, head: ChainHead) -> None:
        self.head = head
        self.records = 0
        self.memories = 0
        self._hash = GENESIS
        self._latest_at = datetime.min.replace(tzinfo=UTC)
        self._platform = WrappedKey.platform_key()
        # as the last record left them: digests by memory id, and by the name of any other row
        self._memory_digests: dict[int, str | None] = {}
        self._row_digests: dict[str, str | None] = {}
        self._ended_rows: set[str] = set()
        # how many mutations of each session are recorded, and how many ends, by its id
        self._mutations: Counter[object] = Counter()
        self._ends: Counter[object] = Counter()
        self._was_erased = False
        self._core_tokens: list[int] = []

    def attempt(self, step: Callable[..., None], *about: Any) -> None:
        """Take a step, unless a problem was found already."""
        if self.problem is None:
            try:
                step(*about)
            except (ChainBroken, RefineError) as error:
                self.problem = str(error)

    # -- records ---------------------------------------------------------------------------------

    def read(self, records: Iterable[Any]) -> None:
        for record in records:
            self._follow(record)
            if '"memories":[{' in record.data:  # parsing takes as long as hashing
                for id_, change in recorded_digests(orjson.loads(record.data)).items():
                    self._take_over(self._memory_digests, id_, change, f"memory {id_}")
            if record.rows is not None:
                for name, change in orjson.loads(record.rows).items():
                    self._take_over(self._row_digests, name, change, name)
            if record.session_id is not None:
                self._count_for_session(record)
            if record.action in _ENDING_ACTIONS and record.auditable_type in _ENDED_AT:
                self._ended_rows.add(f"{record.auditable_type} {record.auditable_id}")
            self._was_erased |= record.action == "agent_erased"

    def _follow(self, record: Any) -> None:
        expected = self.records + 1
        if record.sequence != expected:
            raise ChainBroken(
                f"record {expected} is missing (the next one is {record.sequence}, id {record.id})"
            )
        if record.hash != link_hash(self._hash, vars(record), self._platform):
            raise ChainBroken(f"record {expected} (id {record.id}) was altered, added or moved")
        if record.created_at >= self._latest_at:
            self._latest_at = record.created_at
        elif self._latest_at - record.created_at > MAX_STEP_BACK and record.action != _DATED_BACK:
            raise ChainBroken(
                f"record {expected} is dated before an earlier one: time ran backwards"
            )
        self.records, self._hash = expected, record.hash

    def _count_for_session(self, record: Any) -> None:
        self._mutations[record.session_id] += record.action in MUTATIONS
        if record.action in END_ACTION.values():
            # an undo is recorded like a rollback, but without a status
            self._ends[record.session_id] += "status" in orjson.loads(record.data)

    def _take_over(
        self, digests: dict[_Key, str | None], key: _Key, change: DigestChange, name: str
    ) -> None:
        before, after = change
        if digests.get(key, before) != before:
            raise ChainBroken(
                f"{name} was reverted to an older version before record {self.records}"
            )
        digests[key] = after

    def end(self) -> None:
        """Compare with the head, after the last record."""
        head = self.head
        if (head.sequence, head.hash) != (self.records, self._hash):
            raise ChainBroken(
                f"the chain ends at record {self.records}, its head says {head.sequence}"
            )
        if not head.is_genuine:
            raise ChainBroken("the chain's head was changed in the database, not by Refine")
        if self.records < head.verified_sequence:
            raise ChainBroken(
                f"the chain ends at record {self.records}, "
                f"but {head.verified_sequence} were verified before"
            )

    # -- rows ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the agent's key; it must be there unless a record says that it was destroyed."""
        if self.agent is None:
            raise ChainBroken("the agent is gone")
        if self.agent.is_erased:
            if not self._was_erased:
                raise ChainBroken("the data key was destroyed without a record")
            return  # no key is left to check contents with
        if self._was_erased:
            raise ChainBroken("the destroyed data key was restored")
        if not self.agent.is_genuine:
            raise ChainBroken(f"{self.agent.row_name} was changed in the database, not by Refine")
        self.key = self.agent.data_key()

    def compare_memories(self, key: DataKey, rows: Iterable[Any]) -> None:
        for memory in rows:
            self.memories += 1
            if is_kept_core(memory.memory_type, memory.discarded_at):
                self._core_tokens.append(memory.token_estimate)
            if memory.row_digest != digest_of(AgentMemory, vars(memory), key):
                raise ChainBroken(f"memory {memory.id} was changed in the database, not by Refine")
            recorded = self._memory_digests.pop(memory.id, None)
            if recorded is None and memory.content_key is None:
                raise ChainBroken(f"memory {memory.id} was erased without a record")
            if recorded is not None and recorded != state_digest_of(memory, key):
                raise ChainBroken(f"memory {memory.id} does not match its last record")

    def compare_figures(self, agent: Agent, newest_session_at: datetime | None) -> None:
        """Look for recorded memories that are gone; compare the figures on the agent's row."""
        if self._memory_digests:
            raise ChainBroken(f"memory {min(self._memory_digests)} has records, but is gone")
        if agent.ledger.core_totals() != (len(self._core_tokens), sum(self._core_tokens)):
            raise ChainBroken("the figures in the agent's row do not match its memories")
        if agent.last_session_at != newest_session_at:
            raise ChainBroken("the last session in the agent's row does not match its sessions")

    def compare_row(self, kind: type[Attested], row: Any) -> None:
        name = f"{kind.__name__} {row.id}"
        if row.row_digest != digest_of(kind, vars(row), self._platform):
            raise ChainBroken(f"{name} was changed in the database, not by Refine")
        if self._row_digests.pop(name, row.row_digest) != row.row_digest:
            raise ChainBroken(f"{name} does not match its last record")
        if name in self._ended_rows:
            self._ended_rows.remove(name)
            if getattr(row, _ENDED_AT[kind.__name__]) is None:
                raise ChainBroken(f"{name} is open, but a record says that it ended")
        if kind is RefinementSession:
            self._compare_session(row)

    def _compare_session(self, session: Any) -> None:
        """An older version of a running session is genuine: its records follow later."""
        recorded = self._mutations[session.id]
        if session.mutation_count != recorded:
            raise ChainBroken(
                f"RefinementSession {session.id} counts {session.mutation_count} mutations, "
                f"its records {recorded}"
            )
        if self._ends[session.id] != (session.status in ENDED):
            raise ChainBroken(
                f"RefinementSession {session.id} is {session.status}, "
                f"but {self._ends[session.id]} ends of it are recorded"
            )

    def check_missing_rows(self) -> None:
        kept = [name for name, digest in self._row_digests.items() if digest is not None]
        # sign-ins and links are deleted in time; those that were altered leave no other trace
        kept += [name for name in self._ended_rows if name.startswith(("ApiToken", "AccessGrant"))]
        if kept:
            raise ChainBroken(f"{min(kept)} has records, but is gone")
