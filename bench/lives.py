"""One agent, week by week, and which of its memories still stand."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any

from sqlalchemy import select

from bench.corpus import Planted, World
from bench.saying import Standing, saying_of
from refine import clock
from refine.extensions import db
from refine.models import Account, Agent, AgentMemory, AuditLog, RefinementSession
from refine.models.ledger.image import changes_in, is_kept
from refine.models.runs.session.session import MUTATIONS
from refine.refinement.loop import SessionEvent, refine
from refine.settings import Settings
from refine.tools import SaveMemoryTool

# Sessions on days 0, 7, 14, 21 and 28: as many weekly ones as thirty days hold.
SESSIONS_IN_A_MONTH = 5


@dataclass(frozen=True)
class Loss:
    """An edit after which a memory no longer stood: the text that had said it, and the new one."""

    week: int
    action: str
    said: str
    before: str
    after: str | None


class Life:
    """One agent, its planted memories, and their fates."""

    def __init__(
        self, account: Account, model_id: str, world: World, memories: int, **settings: Any
    ) -> None:
        agent = Agent(account=account, name="Keeper", model_id=model_id, **settings)
        db.session.add(agent)
        db.session.flush()
        self.world = world
        self.standing: list[Standing] = []
        self.losses: list[Loss] = []
        self.calls: Counter[tuple[str, str]] = Counter()
        self.ends: Counter[str] = Counter()
        self.kept: dict[int, str] = {}
        self.mass = 0
        self.month_share = 1.0
        self.agent_id = agent.id
        self._known: set[str] = set()
        self._left: set[int] = set()
        self._retired: set[int] = set()
        self._ids: list[int] = []
        self._merged_into: dict[int, int] = {}
        self._starting_masses: list[int] = []
        self._begin(agent, world.begin(memories))
        db.session.commit()

    def pass_week(self, settings: Settings, planted: int, own: Sequence[str]) -> None:
        """Save the week's memories and those of the model (``own``), then run a session."""
        agent = db.session.get_one(Agent, self.agent_id)
        for memory in self.world.grow(planted):
            self._plant(memory, self._save(agent, memory.text))
        for text in own:
            self._save(agent, text)
        self.note(self.run_session(settings))
        db.session.commit()
        db.session.expunge_all()

    def run_session(self, settings: Settings) -> RefinementSession:
        """Run a session to its end, and count its calls."""
        session = RefinementSession.queue(db.session.get_one(Agent, self.agent_id), "weekly")
        refine(session.id, settings, observe=self._observe)
        return session

    def note(self, session: RefinementSession) -> None:
        """Count an ended session, and read the agent's memories."""
        # a model whose every call is refused fails by itself
        is_refused = session.error_kind == "refused_calls"
        self.ends["refused" if is_refused else session.status] += 1
        if session.mass_before is not None:
            recent = self._starting_masses[1 - SESSIONS_IN_A_MONTH :]
            self._starting_masses = [*recent, session.mass_before]
        edits = self._edits(session)
        self._follow_merges(edits)
        self._read(session.agent)
        self._look(edits)

    def is_left(self, positions: Iterable[int], *, or_retired: bool = False) -> bool:
        """Tell whether one of these planted memories still stands, or may be restored."""
        left = self._left | self._retired if or_retired else self._left
        return not left.isdisjoint(positions)

    def now_in(self, position: int) -> int | None:
        """Return the kept memory that a planted one is, or was merged into; None if discarded."""
        id_ = self._ids[position]
        while id_ in self._merged_into:
            id_ = self._merged_into[id_]
        return id_ if id_ in self.kept else None

    def places(self, positions: Iterable[int]) -> list[int]:
        """Return the kept memories that now hold these planted ones."""
        return sorted({id_ for id_ in map(self.now_in, positions) if id_ is not None})

    # -- what is planted --------------------------------------------------------------------------

    def _begin(self, agent: Agent, memories: Sequence[Planted]) -> None:
        """Store memories as an import does, which may hold exact duplicates."""
        for days_ago, memory in zip(range(len(memories), 0, -1), memories, strict=True):
            at = clock.now() - timedelta(days=7 + days_ago)
            if memory.on is not None:
                at = datetime.combine(memory.on, time(12), UTC)
            row = AgentMemory(agent=agent, content=memory.text, created_at=at, source="bench")
            db.session.add(row)
            db.session.flush()
            self._plant(memory, row.id)

    def _plant(self, memory: Planted, id_: int) -> None:
        self._left.add(len(self._ids))
        self._ids.append(id_)
        self.standing.append(Standing(saying_of(memory)))

    def _save(self, agent: Agent, text: str) -> int:
        saved = SaveMemoryTool(agent).execute(content=text, memory_type="core")
        return int(saved["id"])

    # -- its outcome ------------------------------------------------------------------------------

    def _observe(self, event: SessionEvent) -> None:
        if event.kind == "tool_call":
            self.calls[event.facts["action"], event.facts["result"]] += 1

    def _edits(self, session: RefinementSession) -> Sequence[AuditLog]:
        if session.status == "rolled_back":
            return ()
        edits = select(AuditLog).where(
            AuditLog.session_id == session.id, AuditLog.action.in_(MUTATIONS)
        )
        return db.session.scalars(edits.order_by(AuditLog.sequence)).all()

    def _follow_merges(self, edits: Sequence[AuditLog]) -> None:
        for record in edits:
            if record.action == "memory_refinement_consolidate":
                for change in changes_in(record.data, record.sealed):
                    if change.before is not None:
                        self._merged_into[change.memory_id] = int(str(record.auditable_id))

    def _read(self, agent: Agent) -> None:
        memories = db.session.scalars(agent.ledger.core()).all()
        self.kept = {memory.id: memory.content for memory in memories}
        mass = sum(memory.token_estimate for memory in memories)
        if self._starting_masses:
            self.month_share = mass / max(1, self._starting_masses[0])
        self.mass = mass

    def _look(self, edits: Sequence[AuditLog]) -> None:
        kept = set(self.kept.values())
        added, self._known = kept - self._known, kept
        for position, standing in enumerate(self.standing):
            before = standing.carrier
            if standing.look(kept, added):
                self._left.add(position)
            else:
                self._left.discard(position)
                if before is not None:
                    self._lose(position, before, edits)

    def _lose(self, position: int, before: str, edits: Sequence[AuditLog]) -> None:
        for record in edits:
            changes = changes_in(record.data, record.sealed)
            lost = [c for c in changes if c.before and c.before["content"] == before]
            if any(change.after["retired_reason"] for change in lost):
                self._retired.add(position)
            elif lost:
                after = [c.after["content"] for c in changes if is_kept(c.after)]
                week, action = self.ends.total(), record.action.rpartition("_")[2]
                said = self.standing[position].saying.text
                self.losses.append(Loss(week, action, said, before, next(iter(after), None)))
            if lost:
                return
