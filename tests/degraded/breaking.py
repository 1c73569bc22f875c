"""A Valkey of one's own that can be stopped, frozen, filled or made a replica, and mended again."""

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, get_args

from redis import Redis

from refine.embedded import redis_url, valkey

Fault = Literal["down", "frozen", "full", "copying"]
FAULTS: tuple[Fault, ...] = get_args(Fault)


class BreakableRedis:
    """Runs in a folder of its own until ``close``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self.url = redis_url(folder)
        self._start()

    def do_break(self, fault: Fault) -> None:
        """Have it end, stand still, take nothing more, or take it from another alone."""
        match fault:
            case "down":
                self._running.close()
            case "frozen":
                self._process.send_signal(signal.SIGSTOP)
            case "full":
                self._limit_memory("1")
            case "copying":
                self._copy("127.0.0.1", "1")

    def mend(self, fault: Fault) -> None:
        """Undo it."""
        match fault:
            case "down":
                self._start()
            case "frozen":
                self._process.send_signal(signal.SIGCONT)
            case "full":
                self._limit_memory("0")
            case "copying":
                self._copy("NO", "ONE")

    def connection(self) -> Redis:
        return Redis.from_url(self.url)

    def close(self) -> None:
        self._running.close()

    def _start(self) -> None:
        self._process = self._running.enter_context(valkey.running(self._folder))

    def _limit_memory(self, limit: str) -> None:
        with self.connection() as connection:
            connection.config_set("maxmemory", limit)

    def _copy(self, host: str, port: str) -> None:
        with self.connection() as connection:
            connection.replicaof(host, port)
