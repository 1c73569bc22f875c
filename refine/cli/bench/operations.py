"""The operations of the API that are measured, and their main queries."""

from collections.abc import Callable
from typing import Any

from refine.cli.bench import asking
from refine.cli.bench.asked import AT_MOST_QUERIES, Asked
from refine.cli.bench.asking import Client, bearer
from refine.cli.bench.world import CONTENT, World
from refine.extensions import db
from refine.models import Agent
from refine.sealing import Place

AT_MOST_QUERIES_OF_AGENTS = 6
FLAT_TIMES = 1.5

_AGENTS = """
SELECT id, name, model_id, core_token_budget, active, paused FROM agents
WHERE account_id = %(account)s ORDER BY id DESC LIMIT 50
"""
_KEPT = """
SELECT id, created_at, memory_type, content FROM agent_memories
WHERE agent_id = %(agent)s AND discarded_at IS NULL
  AND (memory_type = 'core' OR created_at > now() - interval '7 days')
ORDER BY memory_type, created_at, id
"""
_USAGE = """
SELECT agent_id, date_trunc('month', created_at), count(*), sum(prompt_tokens), sum(cost_usd)
FROM refinement_sessions WHERE agent_id = ANY(ARRAY(
  SELECT id FROM agents WHERE account_id = %(account)s ORDER BY id DESC LIMIT 50))
GROUP BY 1, 2
"""
_SUMS = """
SELECT status, trigger, error_kind, count(*), sum(prompt_tokens), sum(cost_usd)
FROM refinement_sessions GROUP BY 1, 2, 3
"""


class Operations:
    """The API of a world, and its metrics."""

    def __init__(self, world: World, program: Client) -> None:
        self._world = world
        self._program = program

    def asked(self) -> list[Asked]:
        """Return what is asked."""
        account = {"account": self._world.account_ids[0]}
        return [
            Asked(
                "metrics",
                lambda: self._program.ask("/metrics"),
                lambda: self._program.ask(asking.BARE_METRICS),
                _SUMS,
            ),
            self._of_platform("GET /agents", _AGENTS, account, AT_MOST_QUERIES_OF_AGENTS),
            self._of_platform("GET /usage", _USAGE, account),
            self._context("GET /context", self._world.reader_id),
            self._context("GET /context, with expired entries", self._world.expired_id),
            self._expired_context(),
            self._unchanged_context(self._world.reader_id),
        ]

    def _of_platform(
        self, name: str, query: str, values: Any, queries: int = AT_MOST_QUERIES
    ) -> Asked:
        headers = bearer(self._world.platform_token)
        path = f"/api/v1{name.removeprefix('GET ')}"
        return Asked(
            name,
            lambda: self._program.ask(path, headers),
            lambda: self._program.ask(asking.BARE_PLATFORM, headers),
            query,
            values,
            at_most_queries=queries,
        )

    def _context(self, name: str, agent_id: int) -> Asked:
        """The floor also opens what it fetched."""
        headers = bearer(self._world.tokens[agent_id])
        owner = db.session.get_one(Agent, agent_id)
        key = owner.data_key()

        def opened(rows: list[Any]) -> list[str]:
            return [key.open(row[3], Place(CONTENT, row[0])) for row in rows]

        return Asked(
            name,
            lambda: self._program.ask("/api/v1/context", headers),
            lambda: self._program.ask(asking.BARE_AGENT, headers),
            _KEPT,
            {"agent": agent_id},
            opened,
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
