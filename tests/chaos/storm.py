"""What is to break, and when, as a seed decides; and how it is broken, and mended."""

import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.chaos.fleet import CLOCK, POSTGRES, VALKEY, WEB, WORKERS, Fleet
from tests.interleaving.model import PlayedModel
from tests.providers.faults import FAULTS

MODEL = "model"
_LOOK_SECONDS = 0.05
_RESTART_SECONDS = 1.0
_PAUSE_SECONDS = (1.5, 6.5)
_STOPS = {
    "stop fast": signal.SIGINT,
    "stop immediately": signal.SIGQUIT,
    "terminate": signal.SIGTERM,
    "kill": signal.SIGKILL,
}
_FAILURES = [fault.play for fault in FAULTS.values() if not fault.endless]


@dataclass(frozen=True)
class Fault:
    """``at`` so many seconds after the start, and over after so many ``seconds``."""

    at: float
    kind: str
    target: str
    seconds: float = 0.0


# Each kind of fault, on what, for how long at most (a lease outlives twelve seconds without
# PostgreSQL), and how often it comes in one deck.
_DECK = (
    ("kill", WORKERS, 4.0, 6),
    ("terminate", WORKERS, 4.0, 3),
    ("freeze", WORKERS, 50.0, 3),
    ("kill", (CLOCK,), 4.0, 1),
    ("freeze", (CLOCK,), 20.0, 1),
    ("kill", (WEB,), 4.0, 1),
    ("terminate", (WEB,), 4.0, 1),
    ("kill", (VALKEY,), 4.0, 1),
    ("freeze", (VALKEY,), 6.0, 1),
    ("flush", (VALKEY,), 0.0, 2),
    ("stop fast", (POSTGRES,), 12.0, 1),
    ("stop immediately", (POSTGRES,), 12.0, 1),
    ("slow", (MODEL,), 15.0, 1),
    ("failing", (MODEL,), 15.0, 2),
)


def plan(seed: int, seconds: float) -> list[Fault]:
    """Return the faults of so many seconds, in order; none lasts longer than a third of them."""
    dice, at, faults = Random(seed), 3.0, list[Fault]()
    while True:
        deck = [card[:3] for card in _DECK for _ in range(card[3])]
        dice.shuffle(deck)
        for kind, targets, longest in deck:
            at += dice.uniform(*_PAUSE_SECONDS)
            if at >= seconds:
                return faults
            lasting = dice.uniform(0, min(longest, seconds / 3))
            faults.append(Fault(at, kind, dice.choice(targets), lasting))


class Storm:
    """Strikes the processes of a fleet and their model, and starts again what ended."""

    def __init__(self, fleet: Fleet, model: PlayedModel) -> None:
        self.done: Counter[str] = Counter()
        self._fleet, self._model = fleet, model
        self._back_at: dict[str, tuple[float, Callable[[], None]]] = {}
        self._dice = Random(0)

    def blow(self, faults: Sequence[Fault], seconds: float) -> None:
        """Strike by the plan for so many seconds."""
        began, left = time.monotonic(), deque(faults)
        while (passed := time.monotonic() - began) < seconds:
            while left and left[0].at <= passed:
                self._strike(left.popleft())
            self.mend()
            time.sleep(_LOOK_SECONDS)

    def abate(self) -> None:
        """Bring everything back, whether it is due or not."""
        for _, bring_back in [self._back_at.pop(key) for key in list(self._back_at)]:
            bring_back()
        self.mend()

    def mend(self) -> None:
        """Bring back what is due, and start what ended; to be called again and again."""
        for name, (at, bring_back) in list(self._back_at.items()):
            if time.monotonic() >= at:
                del self._back_at[name]
                bring_back()
        for name in self._fleet.names:
            if not self._fleet.is_running(name) and name not in self._back_at:
                self._later(name, _RESTART_SECONDS, lambda name=name: self._fleet.start(name))

    def _later(self, name: str, seconds: float, bring_back: Callable[[], None]) -> None:
        self._back_at[name] = (time.monotonic() + seconds, bring_back)

    def _strike(self, fault: Fault) -> None:
        """Break it, unless it is broken already."""
        target = fault.target
        if target in self._back_at or not (
            target in self._fleet.servers or target == MODEL or self._fleet.is_running(target)
        ):
            return
        self.done[fault.kind] += 1
        if target == MODEL:
            self._change_mood(fault)
        elif fault.kind == "flush":
            self._fleet.flush()
        elif target in self._fleet.servers:
            self._strike_server(fault)
        else:
            self._strike_process(fault)

    def _strike_server(self, fault: Fault) -> None:
        server = self._fleet.servers[fault.target]
        if fault.kind == "freeze":
            server.send(signal.SIGSTOP)
            self._later(fault.target, fault.seconds, lambda: server.send(signal.SIGCONT))
        else:
            server.stop(_STOPS[fault.kind])
            self._later(fault.target, fault.seconds, server.start)

    def _strike_process(self, fault: Fault) -> None:
        fleet, name = self._fleet, fault.target
        match fault.kind:
            case "freeze":
                fleet.send(name, signal.SIGSTOP)
                self._later(name, fault.seconds, lambda: fleet.send(name, signal.SIGCONT))
            case "terminate":
                fleet.send(name, signal.SIGTERM)
            case _:
                fleet.kill(name)
                self._later(name, fault.seconds, lambda: fleet.start(name))

    def _change_mood(self, fault: Fault) -> None:
        """Let seven of ten answers fail, or come late."""

        def struck(usual: Callable[..., object]) -> Callable[..., object]:
            if self._dice.random() > 0.7:
                return usual
            if fault.kind == "failing":
                return self._dice.choice(_FAILURES)
            time.sleep(self._dice.uniform(2, 12))
            return usual

        def calm() -> None:
            self._model.instead = lambda usual: usual

        self._model.instead = struck
        self._later(MODEL, fault.seconds, calm)
