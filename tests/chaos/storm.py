"""Carries a plan of faults out, and notes what was done when."""

import json
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.error import URLError
from urllib.request import Request, urlopen

from tests.chaos.model import CALM
from tests.chaos.plan import MOODS, POSTGRES, VALKEY, Fault
from tests.chaos.processes import Fleet

_LOOK_SECONDS = 0.05
_TELL_SECONDS = 10.0
_RESTART_SECONDS = 1.0
_STOPS = {
    "stop fast": signal.SIGINT,
    "stop immediately": signal.SIGQUIT,
    "terminate": signal.SIGTERM,
    "kill": signal.SIGKILL,
}


@dataclass
class Trouble:
    """Something that was wrong with a process from one time to another (``time.time()``).

    ``last_words`` are those of a process that ended by itself.
    """

    kind: str
    target: str
    since: float
    until: float = field(default=float("inf"))
    last_words: str = ""


class Storm:
    """Strikes the processes of a fleet, and starts again what ended."""

    def __init__(self, fleet: Fleet) -> None:
        self.troubles: list[Trouble] = []
        self.done: Counter[str] = Counter()
        self._fleet = fleet
        self._back_at: dict[str, tuple[float, Callable[[], None]]] = {}
        self._terminated: dict[str, float] = {}
        self._open: dict[tuple[str, str], Trouble] = {}

    def blow(self, faults: Iterable[Fault], seconds: float, tell: Callable[[float], None]) -> None:
        """Strike by the plan for so many seconds; ``tell`` is called every ten."""
        began, told, left = time.monotonic(), 0.0, deque(faults)
        while (passed := time.monotonic() - began) < seconds:
            while left and left[0].at <= passed:
                self._strike(left.popleft())
            self.mend()
            if passed >= told + _TELL_SECONDS:
                told = passed
                tell(passed)
            time.sleep(_LOOK_SECONDS)

    def abate(self) -> None:
        """Wake and start everything, and calm the model."""
        for _, bring_back in [self._back_at.pop(key) for key in list(self._back_at)]:
            bring_back()
        self.mend()

    # -- strikes ----------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        if fault.target in (POSTGRES, VALKEY):
            is_done = self._strike_server(fault)
        elif fault.kind in MOODS:
            is_done = self._change_mood(fault)
        else:
            is_done = self._strike_process(fault)
        if is_done:
            self.done[f"{fault.kind} {fault.target.partition('-')[0]}"] += 1

    def _strike_server(self, fault: Fault) -> bool:
        server, name = self._fleet.servers[fault.target], fault.target
        if name in self._back_at:
            return False
        if fault.kind == "flush":
            return self._fleet.flush()
        self._begin(fault)
        if fault.kind == "freeze":
            server.send(signal.SIGSTOP)
            self._later(fault, lambda: server.send(signal.SIGCONT))
        else:
            server.stop(_STOPS[fault.kind])
            self._later(fault, server.start)
        return True

    def _strike_process(self, fault: Fault) -> bool:
        fleet, name = self._fleet, fault.target
        if not fleet.is_running(name):
            return False
        if fault.kind == "kill child of":
            return self._kill_child(fault)
        if fault.kind == "freeze":
            if name in self._back_at:
                return False
            self._begin(fault)
            fleet.send(name, signal.SIGSTOP, to_children=True)
            self._later(fault, lambda: self._thaw(name))
            return True
        self._begin(fault)
        if fault.kind == "terminate":
            fleet.send(name, signal.SIGTERM, to_children=False)
            self._terminated[name] = fault.seconds
        else:
            fleet.kill(name)
            self._start_later(name, fault.seconds)
        return True

    def _kill_child(self, fault: Fault) -> bool:
        self._begin(fault)
        is_done = self._fleet.kill_child(fault.target)
        self._close(fault.target, fault.kind)
        if not is_done:
            self.troubles.pop()
        return is_done

    def _thaw(self, name: str) -> None:
        if self._fleet.is_running(name):
            self._fleet.send(name, signal.SIGCONT, to_children=True)

    def _change_mood(self, fault: Fault) -> bool:
        self._close(fault.target)  # one mood takes the place of the other
        self._say_mood(fault.kind)
        self._begin(fault)
        self._later(fault, lambda: self._say_mood(CALM))
        return True

    def _say_mood(self, mood: str) -> None:
        url = f"http://127.0.0.1:{self._fleet.model_port}/mood"
        request = Request(url, json.dumps({"mood": mood}).encode(), method="POST")
        try:
            urlopen(request, timeout=5).close()
        except (URLError, OSError):
            return

    # -- what follows -----------------------------------------------------------------------------

    def _begin(self, fault: Fault) -> Trouble:
        self._close(fault.target, fault.kind)
        trouble = Trouble(fault.kind, fault.target, time.time())
        self.troubles.append(trouble)
        self._open[fault.target, fault.kind] = trouble
        return trouble

    def _later(self, fault: Fault, bring_back: Callable[[], object]) -> None:
        def back() -> None:
            bring_back()
            self._close(fault.target, fault.kind)

        self._back_at[fault.target] = (time.monotonic() + fault.seconds, back)

    def _start_later(self, name: str, seconds: float) -> None:
        def start() -> None:
            self._fleet.start(name)
            self._close(name)

        self._back_at[name] = (time.monotonic() + seconds, start)

    def _close(self, target: str, kind: str | None = None) -> None:
        """A trouble is over now: of this kind, or whatever was wrong with the process."""
        for key in [key for key in self._open if key[0] == target and kind in (None, key[1])]:
            self._open.pop(key).until = time.time()

    def mend(self) -> None:
        """Bring back what is due, and see to what ended; to be called again and again."""
        for name, (at, bring_back) in list(self._back_at.items()):
            if time.monotonic() >= at:
                del self._back_at[name]
                bring_back()
        for name in self._fleet.names:
            if not self._fleet.is_running(name):
                self._see_to(name)

    def _see_to(self, name: str) -> None:
        """Start what ended again; what nobody terminated has ended by itself."""
        if name in self._terminated:
            self._start_later(name, self._terminated.pop(name))
        elif name not in self._back_at:
            ended = self._begin(Fault(0.0, "ended by itself", name))
            ended.last_words = self._fleet.last_words_of(name)
            self.done[f"ended by itself: {name.partition('-')[0]}"] += 1
            self._start_later(name, _RESTART_SECONDS)
