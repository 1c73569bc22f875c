"""Servers of their own that can be taken away, and a line to one that can be cut at a commit."""

import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

from refine.embedded import postgres

Cut = Literal["before", "after"]
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


class Line:
    """A socket that leads to a server's, and is cut at a commit: ``cut(number, when)``.

    ``before``: the server never hears of the commit; ``after``: it commits, and its answer is lost.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        self.commits = 0
        self._server = str(server)
        self._cut: tuple[int, Cut] | None = None
        self._lock = threading.Lock()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / ".s.PGSQL.5432"))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, number: int, when: Cut) -> None:
        """Cut it at this commit from now on, the first being 1."""
        self.commits, self._cut = 0, (number, when)

    def mend(self) -> None:
        """Cut it no more, and count commits from 0 again."""
        self.commits, self._cut = 0, None

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._lead, args=(client,), daemon=True).start()

    def _lead(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self._server)
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for end, other in ((client, server), (server, client)):
                    if end in ready:
                        sent = end.recv(1 << 16)
                        if not sent or (end is client and self._is_cut(sent, server)):
                            return
                        other.sendall(sent)

    def _is_cut(self, sent: bytes, server: socket.socket) -> bool:
        if b"COMMIT\x00" not in sent:
            return False
        with self._lock:
            self.commits += 1
            if self._cut is None or self._cut[0] != self.commits:
                return False
            when = self._cut[1]
        if when == "after":
            server.sendall(sent)
            server.recv(1 << 16)
        return True


@contextmanager
def server_of_its_own(folder: Path) -> Iterator[Server]:
    """Run a PostgreSQL in the folder until the block ends."""
    server = Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def line_to(server: Path, folder: Path) -> Iterator[Line]:
    """A line to the socket of a server, in a folder of its own."""
    os.makedirs(folder, mode=0o700)
    line = Line(folder, server)
    try:
        yield line
    finally:
        line.close()
