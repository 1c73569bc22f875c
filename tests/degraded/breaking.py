"""A Valkey of one's own that can be stopped, frozen, filled or made a replica, and mended again."""

import signal
from pathlib import Path
from typing import Literal, get_args

from redis import Redis

from refine.embedded import redis_url, valkey
from tests.servers import Server

Fault = Literal["down", "frozen", "full", "copying"]
FAULTS: tuple[Fault, ...] = get_args(Fault)


class BreakableRedis:
    """Runs in a folder of its own until ``close``."""

    def __init__(self, folder: Path) -> None:
        self.url = redis_url(folder)
        self._server = Server(folder, valkey.running)
        self._server.start()

    def break_down(self, fault: Fault) -> None:
        """Have it end, stand still, take nothing more, or take it from another alone."""
        match fault:
            case "down":
                self._server.stop()
            case "frozen":
                self._server.send(signal.SIGSTOP)
            case "full":
                self._configure("1")
            case "copying":
                self._copy("127.0.0.1", "1")

    def mend(self, fault: Fault) -> None:
        """Undo it."""
        match fault:
            case "down":
                self._server.start()
            case "frozen":
                self._server.send(signal.SIGCONT)
            case "full":
                self._configure("0")
            case "copying":
                self._copy("NO", "ONE")

    def connection(self) -> Redis:
        return Redis.from_url(self.url)

    def close(self) -> None:
        self._server.stop()

    def _configure(self, max_memory: str) -> None:
        with self.connection() as connection:
            connection.config_set("maxmemory", max_memory)

    def _copy(self, host: str, port: str) -> None:
        with self.connection() as connection:
            connection.replicaof(host, port)
