"""One agent, week by week, and the share of its memories that is still kept."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

from sqlalchemy import select

from bench.corpus import Corpus, Planted
from bench.language import Fact
from refine import clock
from refine.extensions import db
from refine.models import Account, Agent, AgentMemory, AuditLog, RefinementSession
from refine.models.ledger import images_in
from refine.refinement.loop import SessionEvent, refine
from refine.rules.meaning.keeping import Keeping, says
from refine.rules.meaning.ledger import Ledger
from refine.rules.meaning.reading import Reading, read
from refine.settings import Settings
from refine.tools import SaveMemoryTool

# Sessions on days 0, 7, 14, 21 and 28: as many weekly ones as thirty days hold.
SESSIONS_IN_A_MONTH = 5


HALF = 0.5
# As much as a text shares that speaks of the same thing.
_RELATED = 0.2

# A letter or digit; those of scripts without spaces bound no word.
_OF_WORD = "[^\\W_\u3040-\u30ff\u3400-\u9fff]"

reading = lru_cache(maxsize=200_000)(read)


class Standing:
    """Whether one thing that was said still stands; asked again week by week.

    ``stands_in`` tells it of one text. Texts that were there before are not asked twice.
    """

    def __init__(self, stands_in: Callable[[str], bool], text: str) -> None:
        self._stands_in = stands_in
        self._carrier: str | None = text

    def look(self, kept: Collection[str], added: Collection[str]) -> bool:
        """Tell whether one of ``kept`` contains it; ``added``: the new ones among them."""
        if self._carrier in kept:
            return True
        candidates = added if self._carrier is None else kept
        self._carrier = next(filter(self._stands_in, candidates), None)
        return self._carrier is not None


class Remains:
    """The details, facts and words of one planted memory.

    Details are what the rules protect, by their own judgement. Facts are what the corpus knows to
    have put in, so they also measure what the rules overlook: each must stand beside another fact
    of the same memory. A memory is ``whole`` where one text states all of its facts.
    """

    def __init__(self, memory: Planted) -> None:
        text = memory.text.strip()
        original = reading(text)
        self.memory = memory
        self.details = [
            Standing(partial(_carries, original, key), text) for key in original.details
        ]
        self.facts = [Standing(partial(_states, fact, memory.facts), text) for fact in memory.facts]
        self.whole = Standing(partial(_states_all, memory.facts), text)
        self.words = Standing(partial(_resembles, original), text)


def _carries(original: Reading, key: str, text: str) -> bool:
    other = reading(text)
    return says(other, key, original) and _likeness(original, other) >= _RELATED


def _resembles(original: Reading, text: str) -> bool:
    return _likeness(original, reading(text)) >= HALF


def _likeness(original: Reading, other: Reading) -> float:
    """Return the share (0 to 1, by weight) of a text that another text contains."""
    return Keeping(original, Ledger(), Decimal(0), is_deletion=False).rough_share(other)


def _states(fact: Fact, facts: tuple[Fact, ...], text: str) -> bool:
    others = [each for each in facts if each != fact]
    return _names(text, fact) and (not others or any(_names(text, each) for each in others))


def _states_all(facts: tuple[Fact, ...], text: str) -> bool:
    return bool(facts) and all(_names(text, fact) for fact in facts)


def _names(text: str, fact: Fact) -> bool:
    return any(_occurs(writing, text) for writing in fact)


def _occurs(writing: str, text: str) -> bool:
    return _whole(writing).search(text) is not None


@lru_cache(maxsize=10_000)
def _whole(writing: str) -> re.Pattern[str]:
    """Return a pattern for a writing that is not part of a longer number or word."""
    start = rf"(?<!{_OF_WORD})" if re.match(_OF_WORD, writing[0]) else ""
    end = rf"(?!{_OF_WORD})" if re.match(_OF_WORD, writing[-1]) else ""
    return re.compile(f"{start}{re.escape(writing)}{end}", re.IGNORECASE)


class Life:
    """One agent, its planted memories, and their fates."""

    def __init__(
        self, account: Account, model_id: str, corpus: Corpus, memories: int, **settings: Any
    ) -> None:
        agent = Agent(account=account, name="Keeper", model_id=model_id, **settings)
        db.session.add(agent)
        db.session.flush()
        self.corpus = corpus
        self.remains: list[Remains] = []
        self.calls: Counter[tuple[str, str]] = Counter()
        self.ends: Counter[str] = Counter()
        self.kept: dict[int, str] = {}
        self.added: set[str] = set()
        self.mass = 0
        self.month_share = 1.0
        self.agent_id = agent.id
        self._ids: list[int] = []
        self._merged_into: dict[int, int] = {}
        self._starting_masses: list[int] = []
        self._begin(agent, corpus.begin(memories))
        db.session.commit()

    def pass_week(self, settings: Settings, planted: int, own: Sequence[str]) -> None:
        """Save the week's memories and those of the model (``own``), then run a session."""
        agent = db.session.get_one(Agent, self.agent_id)
        for memory in self.corpus.grow(planted):
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
        self.ends[session.status] += 1
        if session.mass_before is not None:
            recent = self._starting_masses[1 - SESSIONS_IN_A_MONTH :]
            self._starting_masses = [*recent, session.mass_before]
        self._follow_merges(session)
        self._read(session.agent)

    def now_in(self, position: int) -> int | None:
        """Return the kept memory that a planted one is, or was merged into; None if discarded."""
        id_ = self._ids[position]
        while id_ in self._merged_into:
            id_ = self._merged_into[id_]
        return id_ if id_ in self.kept else None

    def places(self, positions: Iterable[int]) -> list[int]:
        """Return the kept memories that now hold these planted ones."""
        return sorted({id_ for id_ in map(self.now_in, positions) if id_ is not None})

    def families(self) -> dict[int, list[int]]:
        """Return the positions of all copies of each original, its own among them."""
        found: dict[int, list[int]] = {}
        for position, memory in enumerate(self.corpus.memories):
            root = memory.of if memory.is_duplicate and memory.of is not None else position
            found.setdefault(root, []).append(position)
        return found

    # -- what is planted --------------------------------------------------------------------------

    def _begin(self, agent: Agent, memories: Sequence[Planted]) -> None:
        """Store memories as an import does, which may hold exact duplicates."""
        for days_ago, memory in zip(range(len(memories), 0, -1), memories, strict=True):
            at = clock.now() - timedelta(days=7 + days_ago)
            row = AgentMemory(agent=agent, content=memory.text, created_at=at)
            db.session.add(row)
            db.session.flush()
            self._plant(memory, row.id)

    def _plant(self, memory: Planted, id_: int) -> None:
        self._ids.append(id_)
        self.remains.append(Remains(memory))

    def _save(self, agent: Agent, text: str) -> int:
        saved = SaveMemoryTool(agent).execute(content=text, memory_type="core")
        return int(saved["id"])

    # -- its outcome ------------------------------------------------------------------------------

    def _observe(self, event: SessionEvent) -> None:
        if event.kind == "tool_call":
            self.calls[event.facts["action"], event.facts["result"]] += 1

    def _follow_merges(self, session: RefinementSession) -> None:
        if session.status == "rolled_back":
            return
        merges = select(AuditLog).where(
            AuditLog.session_id == session.id, AuditLog.action == "memory_refinement_consolidate"
        )
        for record in db.session.scalars(merges):
            for memory in images_in(record.data):
                if memory["before"] is not None:
                    self._merged_into[memory["id"]] = int(str(record.auditable_id))

    def _read(self, agent: Agent) -> None:
        memories = db.session.scalars(agent.ledger.core()).all()
        before = set(self.kept.values())
        self.kept = {memory.id: memory.content for memory in memories}
        self.added = set(self.kept.values()) - before
        mass = sum(memory.token_estimate for memory in memories)
        if self._starting_masses:
            self.month_share = mass / max(1, self._starting_masses[0])
        self.mass = mass
