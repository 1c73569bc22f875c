"""The operations of the API that are measured."""

from collections.abc import Callable
from typing import Any

from bench import asking
from bench.asked import AT_MOST_QUERIES, Asked
from bench.asking import Client, bearer
from bench.world import World

AT_MOST_QUERIES_OF_AGENTS = 6
FLAT_TIMES = 1.5


class Operations:
    """The API of a world, and its metrics."""

    def __init__(self, world: World, program: Client) -> None:
        self._world = world
        self._program = program

    def asked(self) -> list[Asked]:
        """Return what is asked."""
        return [
            Asked(
                "metrics",
                lambda: self._program.ask("/metrics"),
                lambda: self._program.ask(asking.BARE_METRICS),
            ),
            self._of_platform("GET /agents", AT_MOST_QUERIES_OF_AGENTS),
            self._of_platform("GET /usage"),
            self._context("GET /context", self._world.reader_id),
            self._context("GET /context, with expired entries", self._world.expired_id),
            self._expired_context(),
            self._unchanged_context(self._world.reader_id),
        ]

    def _of_platform(self, name: str, queries: int = AT_MOST_QUERIES) -> Asked:
        headers = bearer(self._world.platform_token)
        path = f"/api/v1{name.removeprefix('GET ')}"
        return Asked(
            name,
            lambda: self._program.ask(path, headers),
            lambda: self._program.ask(asking.BARE_PLATFORM, headers),
            at_most_queries=queries,
        )

    def _context(self, name: str, agent_id: int) -> Asked:
        headers = bearer(self._world.tokens[agent_id])
        return Asked(
            name,
            lambda: self._program.ask("/api/v1/context", headers),
            lambda: self._program.ask(asking.BARE_AGENT, headers),
        )

    def _expired_context(self) -> Asked:
        """Entries that are no longer shown should cost nothing."""

        def asks(agent_id: int) -> Callable[[], Any]:
            headers = bearer(self._world.tokens[agent_id])
            return lambda: self._program.ask("/api/v1/context", headers)

        return Asked(
            f"GET /context, {self._world.size.expired:,} expired entries against none",
            asks(self._world.expired_id),
            asks(self._world.reader_id),
            at_most_times=FLAT_TIMES,
            at_most_queries=None,
        )

    def _unchanged_context(self, agent_id: int) -> Asked:
        headers = bearer(self._world.tokens[agent_id])
        found = self._program.ask("/api/v1/context", headers).headers["ETag"]
        again = {**headers, "If-None-Match": found}
        return Asked(
            "GET /context, unchanged (304)",
            lambda: self._program.ask("/api/v1/context", again, 304),
            lambda: self._program.ask(asking.BARE_AGENT, headers),
        )
