"""Servers of their own that can be taken away."""

import signal
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from refine.embedded import postgres

Running = Callable[[Path], AbstractContextManager["subprocess.Popen[bytes]"]]


class Server:
    """A server in this folder; ``restart`` ends all connections, and it is away meanwhile.

    One thread starts it each time, because it ends with the thread that started it.
    """

    def __init__(self, folder: Path, running: Running = postgres.running) -> None:
        self._folder = folder
        self._run = running
        self._running = ExitStack()
        self._owner = ThreadPoolExecutor(max_workers=1)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it on the same data, and wait until it answers."""
        running = self._run(self._folder)
        self._process = self._owner.submit(self._running.enter_context, running).result()

    def stop(self, how: signal.Signals | None = None) -> None:
        """Stop it in order, or by a signal, frozen or not."""
        if self._process is not None:
            self.send(signal.SIGCONT)
        if how is not None and self._process is not None:
            self.send(how)
            self._process.wait(60)
        self._process = None
        self._owner.submit(self._running.close).result()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def restart(self, seconds_away: float = 0) -> None:
        self.stop()
        threading.Event().wait(seconds_away)
        self.start()
