"""A year with each simulated model: real weekly sessions, and the memories left after them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bench.corpus import Corpus
from bench.lives import Life
from bench.playing import MODEL_PREFIX
from bench.simulated_models import SIMULATED_MODELS
from refine import clock
from refine.extensions import db
from refine.models import Account
from refine.settings import Settings

_CHANGES = ("consolidate", "update", "delete")


@dataclass(frozen=True)
class Scale:
    """The size of a simulation, and its seed."""

    agents: int = 25
    weeks: int = 52
    memories: int = 24
    saved_weekly: int = 2
    seed: int = 1


@dataclass(frozen=True)
class Week:
    """What is left after a week with one model, over all agents.

    Of the ``originals``, ``originals_left`` have half of their words in one memory, and
    ``originals_whole`` all of their facts. ``refused`` and ``merges_refused`` are changes that the
    tool refused; ``lowest_month`` is the smallest share of its token mass that an agent kept over
    thirty days.
    """

    model: str
    week: int
    memories: int
    tokens: int
    details: int
    details_left: int
    facts: int
    facts_left: int
    originals: int
    originals_left: int
    originals_whole: int
    duplicates: int
    duplicates_gone: int
    lookalikes: int
    lookalikes_merged: int
    changes: int
    refused: int
    merges: int
    merges_refused: int
    sessions: int
    failed: int
    rolled_back: int
    lowest_month: float


def simulate(model: str, scale: Scale, settings: Settings) -> Iterator[Week]:
    """Let agents live with one model, and yield the figures of each week.

    Needs an application context on an empty or temporary database, and ``settings`` whose provider
    is ``playing.serving``.
    """
    simulated = SIMULATED_MODELS[model]
    account = Account(name=model, slug=model)
    db.session.add(account)
    db.session.commit()
    lives = [
        Life(account, f"{MODEL_PREFIX}{model}", Corpus(scale.seed, number), scale.memories)
        for number in range(scale.agents)
    ]
    for week in range(1, scale.weeks + 1):
        with clock.ahead(timedelta(weeks=week - 1)):
            for life in lives:
                own = simulated.saves(week, life.kept.values())
                life.pass_week(settings, scale.saved_weekly if week > 1 else 0, own)
        yield _figures(model, week, lives)


def _figures(model: str, week: int, lives: Sequence[Life]) -> Week:
    left: Counter[str] = Counter()
    for life in lives:
        left.update(_left(life))
        left.update(_called(life))
        left["failed"] += life.ends["failed"]
        left["rolled_back"] += life.ends["rolled_back"]
        left["sessions"] += life.ends.total()
    names = [name for name in Week.__dataclass_fields__ if name not in _NOT_COUNTED]
    counted = {name: left[name] for name in names}
    lowest = min(life.month_share for life in lives)
    return Week(model=model, week=week, lowest_month=lowest, **counted)


_NOT_COUNTED = ("model", "week", "lowest_month")


def _left(life: Life) -> Counter[str]:
    kept, added = set(life.kept.values()), life.added
    figures: Counter[str] = Counter(memories=len(life.kept), tokens=life.mass)
    for position, remains in enumerate(life.remains):
        memory = remains.memory
        if memory.kind != "exact":
            figures["details"] += len(remains.details)
            figures["details_left"] += sum(each.look(kept, added) for each in remains.details)
            figures["facts"] += len(remains.facts)
            figures["facts_left"] += sum(each.look(kept, added) for each in remains.facts)
        if not memory.is_duplicate:
            figures["originals"] += 1
            figures["originals_left"] += remains.words.look(kept, added)
            figures["originals_whole"] += remains.whole.look(kept, added)
        if memory.kind == "lookalike" and memory.of is not None:
            here = life.now_in(position)
            figures["lookalikes"] += 1
            figures["lookalikes_merged"] += here is not None and here == life.now_in(memory.of)
    for copies in life.families().values():
        figures["duplicates"] += len(copies) - 1
        figures["duplicates_gone"] += len(copies) - max(1, len(life.places(copies)))
    return figures


def _called(life: Life) -> Counter[str]:
    figures: Counter[str] = Counter()
    for (action, result), count in life.calls.items():
        if action in _CHANGES:
            is_refused = result == "error"
            figures["changes"] += count
            figures["refused"] += count * is_refused
            if action == "consolidate":
                figures["merges"] += count
                figures["merges_refused"] += count * is_refused
    return figures


# -- promises -------------------------------------------------------------------------------------


# At least this share of the originals keeps half of its words in one memory.
ORIGINALS_SHARE = 0.95
# The careful model removes at least this share of the planted duplicates …
DUPLICATES_SHARE = 0.95
# … and at most so many of its merges are refused.
REFUSED_SHARE = 0.01
# No agent keeps less of its token mass over thirty days.
MONTH_SHARE = 0.5


def broken_promises(weeks: Sequence[Week], *, is_hostile: bool) -> list[str]:
    """Return the promises broken in the weeks of one model, in words."""
    kind = _broken_by_hostile if is_hostile else _broken_by_careful
    return [*_broken_by_any(weeks), *kind(weeks)]


def _broken_by_any(weeks: Sequence[Week]) -> Iterator[str]:
    last = weeks[-1]
    if lost := max(week.details - week.details_left for week in weeks):
        yield f"{lost:,} of {last.details:,} details lost"
    lowest = min(week.lowest_month for week in weeks)
    if lowest < MONTH_SHARE:
        yield f"an agent kept {lowest:.0%} of its tokens over 30 days"
    if last.failed:
        yield f"{last.failed:,} sessions failed"


def _broken_by_hostile(weeks: Sequence[Week]) -> Iterator[str]:
    lowest = min(week.originals_left / week.originals for week in weeks)
    if lowest < ORIGINALS_SHARE:
        yield f"{lowest:.1%} of originals left"


def _broken_by_careful(weeks: Sequence[Week]) -> Iterator[str]:
    last = weeks[-1]
    if lost := max(week.originals - week.originals_left for week in weeks):
        yield f"{lost:,} of {last.originals:,} originals lost"
    if last.duplicates_gone < DUPLICATES_SHARE * last.duplicates:
        yield f"{last.duplicates_gone:,} of {last.duplicates:,} duplicates removed"
    if last.merges_refused > REFUSED_SHARE * last.merges:
        yield f"{last.merges_refused:,} of {last.merges:,} merges refused"
