"""Times code against a floor in the same run, and prints one table of goals."""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console

from refine.cli.output import console, table
from refine.extensions import db

Unit = Literal["ms", "MB"]

# Does something once, and returns how many milliseconds it took.
Stopwatch = Callable[[], float]

COLUMNS = ("name", "ours", "floor", "ratio", "goal", "")

_progress = Console(stderr=True, highlight=False, markup=False)


@dataclass(frozen=True)
class Figure:
    """A measured figure, with its floor if it has one, and what it is to be at most.

    ``at_most_times`` bounds the ratio of ours to the floor, ``at_most`` our figure itself.
    """

    name: str
    ours: float
    floor: float | None = None
    at_most_times: float | None = None
    at_most: float | None = None
    unit: Unit = "ms"

    @property
    def ratio(self) -> float | None:
        """How many times the floor ours is; None without a floor."""
        return self.ours / self.floor if self.floor else None

    @property
    def is_met(self) -> bool:
        """Whether the goals are reached."""
        is_close = self.at_most_times is None or (self.ratio or 0) <= self.at_most_times
        return is_close and (self.at_most is None or self.ours <= self.at_most)

    def cells(self) -> tuple[str, ...]:
        """Return the line of the table, as in ``COLUMNS``."""
        return (
            self.name,
            self._amount(self.ours),
            "–" if self.floor is None else self._amount(self.floor),
            "–" if self.ratio is None else f"{self.ratio:.1f} ×",
            self._goal(),
            "met" if self.is_met else "missed",
        )

    def _goal(self) -> str:
        times = None if self.at_most_times is None else f"{self.at_most_times:g} ×"
        amount = None if self.at_most is None else self._amount(self.at_most)
        return ", ".join(filter(None, (amount, times)))

    def _amount(self, figure: float) -> str:
        digits = 0 if figure >= 100 else 1 if figure >= 10 else 2
        return f"{figure:,.{digits}f} {self.unit}"


@dataclass(frozen=True)
class Broken:
    """A benchmark that raised an error: a missed goal."""

    name: str
    error: str
    is_met: bool = False

    def cells(self) -> tuple[str, ...]:
        """Return the line of the table, as in ``COLUMNS``."""
        return (self.name, self.error, "–", "–", "–", "missed")


class Unexpected(Exception):
    """The measured code did not do what the benchmark needs."""


@dataclass(frozen=True)
class Benchmark:
    """A name, and a function that yields figures."""

    name: str
    measure: Callable[[], Iterable[Figure]]


def run(benchmarks: Iterable[Benchmark]) -> Iterator[Figure | Broken]:
    """Run one after another, with their names on stderr; a failing one stops no other."""
    for benchmark in benchmarks:
        began = time.monotonic()
        try:
            yield from benchmark.measure()
        except Exception as error:
            db.session.rollback()
            yield Broken(benchmark.name, type(error).__name__)
            _progress.print(f"{benchmark.name}: {type(error).__name__}: {str(error)[:200]}")
        finally:
            db.session.rollback()
            db.session.expunge_all()
        tell(benchmark.name, began)


def tell(what: str, began: float) -> None:
    """Report a step and its duration on stderr."""
    _progress.print(f"{what}: {time.monotonic() - began:.1f} s")


def print_goals(lines: Sequence[Figure | Broken]) -> None:
    """Print the table, and below it the number of goals met."""
    table(COLUMNS, [line.cells() for line in lines], empty="")
    met = sum(line.is_met for line in lines)
    console.print(f"goals: {met} met, {len(lines) - met} missed")


def interleaved(repetitions: int, *stopwatches: Stopwatch, warm_ups: int = 1) -> tuple[float, ...]:
    """Take turns; return the median milliseconds of each."""
    rounds = [[stopwatch() for stopwatch in stopwatches] for _ in range(warm_ups + repetitions)]
    return tuple(map(statistics.median, zip(*rounds[warm_ups:], strict=True)))


def p95(times: Sequence[float]) -> float:
    """Return the time that at least 95 of 100 do not exceed."""
    return sorted(times)[math.ceil(0.95 * len(times)) - 1]


def timed(work: Callable[[], Any]) -> Stopwatch:
    """Return the stopwatch of this work."""

    def measure() -> float:
        began = time.perf_counter()
        work()
        return (time.perf_counter() - began) * 1000

    return measure


def plain_connection() -> Any:
    """Return a connection of psycopg, outside the pool, for floors; a ``with`` block closes it."""
    connection = db.engine.raw_connection()
    plain = connection.driver_connection
    connection.detach()
    return plain
