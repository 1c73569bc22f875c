"""Weeks with each simulated model: real sessions, and what is left of the memories after them."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from math import inf, log
from random import Random

from bench.corpus import Question, World, families
from bench.lives import Life, Loss
from bench.playing import MODEL_PREFIX
from bench.retrieval import Search
from bench.simulated_models import SIMULATED_MODELS
from refine import clock
from refine.extensions import db
from refine.models import Account
from refine.rules.content import token_estimate
from refine.settings import Settings

_CHANGES = ("consolidate", "update", "delete")
_RESAMPLES = 2_000


@dataclass(frozen=True)
class Scale:
    """The size of a simulation, and its seed; a question may retrieve ``budget`` tokens."""

    agents: int = 6
    weeks: int = 8
    memories: int = 24
    saved_weekly: int = 2
    budget: int = 100
    seed: int = 1


@dataclass(frozen=True)
class Week:
    """What is left after a week, over all agents.

    Of the ``questions`` about the memories, ``stored`` are still answered by a kept one, and
    ``retired`` by one that was retired, which its agent or an admin may restore.
    ``refused`` are changes that the tool refused; ``lowest_month`` is the smallest share of its
    token mass that an agent kept over thirty days.
    """

    week: int
    memories: int
    tokens: int
    questions: int
    stored: int
    retired: int
    duplicates: int
    duplicates_gone: int
    lookalikes: int
    lookalikes_merged: int
    changes: int
    refused: int
    sessions: int
    failed: int
    rolled_back: int
    lowest_month: float


# The part of something that is left, and the whole, for each agent.
Shares = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Outcome:
    """All weeks with one model, and the end of the last one, for each agent.

    ``retrieved``: the questions that a search answers from the kept memories; ``untouched``: from
    all memories; ``at_random``: those still answered after random deletions of as many tokens.
    """

    weeks: Sequence[Week]
    stored: Shares
    retrieved: Shares
    untouched: Shares
    at_random: Shares
    losses: Sequence[Loss]

    @property
    def half_life(self) -> float:
        """In how many sessions half of the questions would be lost, at the same pace."""
        share = share_of(self.stored)
        return self.weeks[-1].week * log(0.5) / log(share) if 0 < share < 1 else inf * share


def simulate(
    model: str,
    worlds: Iterable[World],
    scale: Scale,
    settings: Settings,
    tell: Callable[[str], object] = lambda _progress: None,
) -> Outcome:
    """Let an agent live in each world with one model.

    Needs an application context on an empty or temporary database, and ``settings`` whose provider
    is ``playing.serving``.
    """
    simulated = SIMULATED_MODELS[model]
    account = Account(name=model, slug=f"life-{uuid.uuid4()}")
    db.session.add(account)
    db.session.commit()
    lives = [Life(account, f"{MODEL_PREFIX}{model}", each, scale.memories) for each in worlds]
    weeks: list[Week] = []
    for week in range(1, scale.weeks + 1):
        with clock.ahead(timedelta(weeks=week - 1)):
            for life in lives:
                own = simulated.saves(week, life.kept.values())
                life.pass_week(settings, scale.saved_weekly if week > 1 else 0, own)
        weeks.append(_figures(week, lives))
        tell(f"{model}, week {week} of {scale.weeks}")
    return Outcome(
        weeks=weeks,
        stored=[_stored(life) for life in lives],
        retrieved=[_retrieved(life, list(life.kept.values()), scale.budget) for life in lives],
        untouched=[
            _retrieved(life, [each.text for each in life.world.memories], scale.budget)
            for life in lives
        ],
        at_random=[_at_random(life, scale.seed) for life in lives],
        losses=[loss for life in lives for loss in life.losses],
    )


def _figures(week: int, lives: Sequence[Life]) -> Week:
    counted: Counter[str] = Counter()
    for life in lives:
        stored, questions = _stored(life)
        counted.update(memories=len(life.kept), tokens=life.mass)
        counted.update(questions=questions, stored=stored, sessions=life.ends.total())
        counted.update(retired=_stored(life, or_retired=True)[0] - stored)
        counted.update(failed=life.ends["failed"], rolled_back=life.ends["rolled_back"])
        counted.update(_copies(life))
        for (action, result), count in life.calls.items():
            if action in _CHANGES:
                counted.update(changes=count, refused=count * (result == "error"))
    lowest = min(life.month_share for life in lives)
    return Week(week=week, lowest_month=lowest, **{name: counted[name] for name in _COUNTED})


_COUNTED = set(Week.__dataclass_fields__) - {"week", "lowest_month"}


def _copies(life: Life) -> Counter[str]:
    figures: Counter[str] = Counter()
    memories = life.world.memories
    for copies in families(memories).values():
        figures["duplicates"] += len(copies) - 1
        figures["duplicates_gone"] += len(copies) - max(1, len(life.places(copies)))
    for position, memory in enumerate(memories):
        if memory.kind == "lookalike" and memory.of is not None:
            here = life.now_in(position)
            figures["lookalikes"] += 1
            figures["lookalikes_merged"] += here is not None and here == life.now_in(memory.of)
    return figures


# -- questions ------------------------------------------------------------------------------------


def _stored(life: Life, *, or_retired: bool = False) -> tuple[int, int]:
    asked = life.world.questions()
    is_left = partial(life.is_left, or_retired=or_retired)
    return sum(all(map(is_left, question.answered_by)) for question in asked), len(asked)


def _retrieved(life: Life, texts: Sequence[str], budget: int) -> tuple[int, int]:
    asked = life.world.questions()
    searches = {language: Search(texts, language) for language in {q.language for q in asked}}
    answered = sum(
        _answers(life, question, searches[question.language].found(question.text, budget))
        for question in asked
    )
    return answered, len(asked)


def _answers(life: Life, question: Question, texts: Sequence[str]) -> bool:
    return all(
        any(life.standing[at].saying.stands_in(text) for at in group for text in texts)
        for group in question.answered_by
    )


def _at_random(life: Life, seed: int) -> tuple[int, int]:
    """Return how many questions are answered if as many tokens had been deleted at random."""
    left = [each.text.strip() for each in life.world.memories]
    Random(seed).shuffle(left)  # noqa: S311 - nothing secret
    mass = sum(map(token_estimate, left))
    while left and mass > life.mass:
        mass -= token_estimate(left.pop())
    asked = life.world.questions()
    return sum(_answers(life, question, left) for question in asked), len(asked)


# -- shares ---------------------------------------------------------------------------------------


def share_of(shares: Shares) -> float:
    whole = sum(whole for _, whole in shares)
    return sum(part for part, _ in shares) / whole if whole else 1.0


def interval(shares: Shares) -> tuple[float, float]:
    """Return where the share lies in 95 of 100 draws of as many agents, with replacement."""
    chance = Random(1)  # noqa: S311 - nothing secret
    drawn = sorted(share_of(chance.choices(shares, k=len(shares))) for _ in range(_RESAMPLES))
    return drawn[_RESAMPLES // 40], drawn[-_RESAMPLES // 40]


# -- goals ----------------------------------------------------------------------------------------


# With a hostile model, at least this share of the questions is still answered, by the reader.
STORED = {"none": 0.95, "honest": 0.97, "waves": 0.88}
# The careful model removes at least this share of the planted duplicates.
DUPLICATES = 0.95
# No agent keeps less of its token mass over thirty days.
MONTH = 0.5


def missed_goals(outcome: Outcome, *, is_hostile: bool, reader: str = "none") -> list[str]:
    """Return what the weeks with one model fell short of, in words."""
    return list(_missed(outcome, 1.0 if not is_hostile else STORED[reader], is_hostile=is_hostile))


def _missed(outcome: Outcome, goal: float, *, is_hostile: bool) -> Iterator[str]:
    last = outcome.weeks[-1]
    if last.stored + last.retired < goal * last.questions:
        yield f"{last.stored / last.questions:.1%} stored"
    if not is_hostile and last.duplicates_gone < DUPLICATES * last.duplicates:
        yield f"{last.duplicates_gone:,} of {last.duplicates:,} duplicates removed"
    lowest = min(week.lowest_month for week in outcome.weeks)
    if lowest < MONTH:
        yield f"an agent kept {lowest:.0%} of its tokens over 30 days"
    if last.failed:
        yield f"{last.failed:,} sessions failed"
