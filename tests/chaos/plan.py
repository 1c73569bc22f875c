"""The plan of faults: what is to break, and when. It follows from a seed alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

WORKERS = tuple(f"worker-{number}" for number in range(1, 5))
CLOCKS = ("clock-1", "clock-2")
WEB = "web"
MODEL, VALKEY, POSTGRES = "model", "valkey", "postgres"

# How a model may answer for a while.
MOODS = ("slow", "lying", "flooding", "failing")

# A lease outlives so long an outage of PostgreSQL; see LOST_AFTER.
_LONGEST_OUTAGE_SECONDS = 12.0
_LONGEST_PAUSE_SECONDS = 4.0
_PAUSE_BETWEEN_SECONDS = (1.5, 6.5)
_CALM_AT_START_SECONDS = 3.0


@dataclass(frozen=True)
class Fault:
    """One fault: ``at`` so many seconds after the start, for so many ``seconds``.

    ``seconds`` is how long a frozen process stands still, a server or process stays away before it
    is started again, or the model stays in its mood.
    """

    at: float
    kind: str
    target: str
    seconds: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.kind} {self.target}{lasting}"


# Each kind of fault, on what, for how long at most, and how often it comes in one deck.
_DECK = (
    ("kill", WORKERS, _LONGEST_PAUSE_SECONDS, 4),
    ("kill child of", WORKERS, 0.0, 4),
    ("terminate", WORKERS, _LONGEST_PAUSE_SECONDS, 3),
    ("freeze", WORKERS, 50.0, 3),
    ("kill", CLOCKS, _LONGEST_PAUSE_SECONDS, 1),
    ("terminate", CLOCKS, _LONGEST_PAUSE_SECONDS, 1),
    ("freeze", CLOCKS, 20.0, 1),
    ("kill", (WEB,), _LONGEST_PAUSE_SECONDS, 1),
    ("terminate", (WEB,), _LONGEST_PAUSE_SECONDS, 1),
    ("kill", (VALKEY,), _LONGEST_PAUSE_SECONDS, 1),
    ("terminate", (VALKEY,), _LONGEST_PAUSE_SECONDS, 1),
    ("freeze", (VALKEY,), 6.0, 1),
    ("flush", (VALKEY,), 0.0, 2),
    ("stop fast", (POSTGRES,), _LONGEST_OUTAGE_SECONDS, 1),
    ("stop immediately", (POSTGRES,), _LONGEST_OUTAGE_SECONDS, 1),
    *((mood, (MODEL,), 15.0, 1) for mood in MOODS),
)


def plan(seed: int, seconds: float) -> list[Fault]:
    """Return the faults of a run of so many seconds, in order; every kind in turn, shuffled.

    Short runs have short faults: none lasts longer than a third of the run.
    """
    random = Random(seed)
    faults, at = [], _CALM_AT_START_SECONDS
    for kind, targets, longest in _cards(random):
        at += random.uniform(*_PAUSE_BETWEEN_SECONDS)
        if at >= seconds:
            return faults
        lasting = random.uniform(0, min(longest, seconds / 3))
        faults.append(Fault(round(at, 2), kind, random.choice(targets), round(lasting, 2)))
    raise AssertionError  # the cards never end


def _cards(random: Random) -> Iterator[tuple[str, tuple[str, ...], float]]:
    while True:
        deck = [card[:3] for card in _DECK for _ in range(card[3])]
        random.shuffle(deck)
        yield from deck
