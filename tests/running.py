"""`refine up` as a person runs it: web, worker, clock and their servers, in a folder of its own."""

import signal
import socket
import threading
from pathlib import Path
from typing import IO

from tests.commands import eventually, start


class Up:
    """A running `refine up`; ``said`` is what it and its processes have printed."""

    def __init__(self, folder: Path, **variables: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        self.environ = {"REFINE_DATA_DIR": str(folder), "PORT": str(self.port), **variables}
        self.process = start("up", environ=self.environ)
        self.said: list[str] = []
        streams = (self.process.stdout, self.process.stderr)
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in streams
        ]
        for reader in self._readers:
            reader.start()

    @property
    def url(self) -> str:
        """Where its dashboard is."""
        return f"http://127.0.0.1:{self.port}"

    def ready(self) -> str:
        """The line that says so."""
        eventually(lambda: any(" is ready" in line for line in self.said), seconds=60)
        return next(line for line in self.said if " is ready" in line)

    def end(self) -> int:
        """Its exit code, after it was asked to stop."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=30)
        for reader in self._readers:
            reader.join(timeout=10)
        return code

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.end()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _read(self, stream: IO[str]) -> None:
        self.said.extend(iter(stream.readline, ""))
