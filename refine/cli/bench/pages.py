"""The speed of pages and API, compared with bare routes and their main query in the same run."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import click
from flask import current_app
from sqlalchemy import text

from refine import clock
from refine.cli.bench import asking
from refine.cli.bench.asking import Client, bearer
from refine.cli.bench.measuring import (
    Benchmark,
    Figure,
    interleaved,
    plain_connection,
    print_goals,
    run,
    statements_of,
    timed,
)
from refine.cli.bench.world import CONTENT, DEFAULT, Size, World, seeded
from refine.extensions import db
from refine.models import Account, Agent
from refine.sealing import Place

AT_MOST_TIMES = 3.0
AT_MOST_QUERIES = 25
AT_MOST_QUERIES_OF_AGENTS = 6
FLAT_TIMES = 1.5

_ROWS = 50

_AGENTS = (
    "SELECT id, name, model_id, core_token_budget, active, paused FROM agents {where} LIMIT 50"
)
_RECORDS = """
SELECT id, chain_id, sequence, account_id, agent_id, user_id, session_id, action, created_at
FROM audit_logs WHERE id = ANY(%(records)s)
"""
_SESSIONS = """
SELECT refinement_sessions.*, agents.name FROM refinement_sessions
JOIN agents ON agents.id = agent_id WHERE refinement_sessions.id = ANY(%(sessions)s)
"""
_DAYS = """
SELECT created_at::date, status, count(*), sum(prompt_tokens), sum(cost_usd)
FROM refinement_sessions WHERE created_at > now() - interval '30 days' GROUP BY 1, 2
"""
_MASSES = """
SELECT created_at, data ->> 'mass_after', action, session_id FROM audit_logs
WHERE agent_id = %(agent)s ORDER BY sequence DESC LIMIT 2000
"""
_KEPT = """
SELECT id, created_at, memory_type, content FROM agent_memories
WHERE agent_id = %(agent)s AND discarded_at IS NULL
  AND (memory_type = 'core' OR created_at > now() - interval '7 days')
ORDER BY memory_type, created_at, id
"""
_LEDGER = """
SELECT id, memory_type, constitutional, tags, token_estimate, created_at, discarded_at
FROM agent_memories WHERE agent_id = %(agent)s AND discarded_at IS NULL
ORDER BY created_at DESC, id DESC LIMIT 51
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


@dataclass(frozen=True)
class Asked:
    """What is asked: by its name, with the bare route and the plain query that are its floor."""

    name: str
    ask: Callable[[], Any]
    bare: Callable[[], Any]
    query: str | None = None
    values: Any = None
    then: Callable[[list[Any]], Any] = len
    """What must be done with the rows of the query by all means."""
    at_most_times: float = AT_MOST_TIMES
    at_most_queries: int | None = AT_MOST_QUERIES


class Pages:
    """The pages and operations of a world, asked again as it grows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._app: Any = current_app._get_current_object()  # type: ignore[attr-defined]
        if "bench" not in self._app.blueprints:
            asking.add_bare_routes(self._app)
        self._program = Client(self._app, self._app.response_class)
        self._browser = asking.signed_in(self._app, world.sign_in)
        self._first: dict[str, float] = {}

    def benchmarks(self, suffix: str = "") -> list[Benchmark]:
        """Return a benchmark for each; from the second time on, also how flat it stayed."""
        return [
            Benchmark(f"{asked.name}{suffix}", partial(self._measured, asked, suffix))
            for asked in (*self._pages(), *self._operations())
        ]

    def _measured(self, asked: Asked, suffix: str) -> Iterator[Figure]:
        gc.collect()
        gc.freeze()  # as gunicorn does before it forks
        with plain_connection() as connection:
            works = (asked.ask, _floor(asked, connection), asked.bare)
            ours, floor, bare = interleaved(self._world.size.repetitions, *map(timed, works))
        yield Figure(f"{asked.name}{suffix}", ours, floor, at_most_times=asked.at_most_times)
        if asked.at_most_queries is not None:
            queries = statements_of(asked.ask)
            named = f"{asked.name}{suffix}: queries"
            yield Figure(named, queries, at_most=asked.at_most_queries, unit="queries")
        times_bare = self._first.setdefault(asked.name, ours / bare)
        if suffix:
            # the machine may be busier by now, which slows bare routes just as much
            named = f"{asked.name}: grown, against before"
            yield Figure(named, ours, times_bare * bare, at_most_times=FLAT_TIMES)

    # -- what is asked ----------------------------------------------------------------------------

    def _pages(self) -> list[Asked]:
        account_id = self._world.account_ids[0]
        slug = db.session.get_one(Account, account_id).slug
        agent_id, ledger_id = self._world.bulk_agent_id, self._world.tidied_ids[0]
        since = (clock.now() - timedelta(days=365)).date()
        until = since + timedelta(days=14)
        of_account = f"account_id = {account_id}"
        of_days = f"created_at >= '{since}' AND created_at < '{until}'"
        of_action = "action = 'memory_refinement_rollback'"
        agents = _AGENTS.format(where="ORDER BY lower(name), id")
        audit, sessions = "/audit", {"sessions": self._sessions()}
        return [
            self._page("frame of every page", asking.FRAME),
            self._page("overview", "/", _DAYS),
            self._page("agents", "/agents", agents),
            self._page("sessions", "/sessions", _SESSIONS, sessions),
            self._page("audit", audit, _RECORDS, self._records("true")),
            self._page(
                "audit by account",
                f"{audit}?account={slug}",
                _RECORDS,
                self._records(of_account),
            ),
            self._page(
                "audit by dates",
                f"{audit}?since={since}&until={until}",
                _RECORDS,
                self._records(of_days),
            ),
            self._page(
                "audit by action",
                f"{audit}?action=memory_refinement_rollback",
                _RECORDS,
                self._records(of_action),
            ),
            self._page("an agent", f"/agents/{agent_id}", _MASSES, {"agent": agent_id}),
            self._page("its ledger", f"/agents/{ledger_id}/ledger", _LEDGER, {"agent": ledger_id}),
            Asked(
                "metrics",
                lambda: self._program.ask("/metrics"),
                lambda: self._program.ask(asking.BARE_METRICS),
                _SUMS,
            ),
        ]

    def _page(self, name: str, path: str, query: str | None = None, values: Any = None) -> Asked:
        return Asked(
            name,
            lambda: self._browser.ask(path),
            lambda: self._browser.ask(asking.BARE_PAGE),
            query,
            values,
        )

    def _operations(self) -> list[Asked]:
        account = {"account": self._world.account_ids[0]}
        agents = _AGENTS.format(where="WHERE account_id = %(account)s ORDER BY id DESC")
        return [
            self._of_platform("GET /agents", "/api/v1/agents", agents, account),
            self._of_platform("GET /usage", "/api/v1/usage", _USAGE, account),
            self._context("GET /context", self._world.reader_id),
            self._context("GET /context, with expired entries", self._world.expired_id),
            self._expired_context(),
            self._unchanged_context(self._world.reader_id),
        ]

    def _of_platform(self, name: str, path: str, query: str, values: Any) -> Asked:
        headers = bearer(self._world.platform_token)
        most = AT_MOST_QUERIES_OF_AGENTS if path.endswith("/agents") else AT_MOST_QUERIES
        return Asked(
            name,
            lambda: self._program.ask(path, headers),
            lambda: self._program.ask(asking.BARE_PLATFORM, headers),
            query,
            values,
            at_most_queries=most,
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

    # -- the rows that pages show -----------------------------------------------------------------

    def _records(self, condition: str) -> dict[str, Any]:
        """The ids of what a page of the log shows: fetching them is the least that it must do."""
        found = f"SELECT id FROM audit_logs WHERE {condition} ORDER BY id DESC LIMIT {_ROWS}"  # noqa: S608
        return {"records": list(db.session.scalars(text(found)))}

    def _sessions(self) -> list[Any]:
        found = f"SELECT id FROM refinement_sessions ORDER BY created_at DESC, id LIMIT {_ROWS}"  # noqa: S608
        return list(db.session.scalars(text(found)))


def _floor(asked: Asked, connection: Any) -> Callable[[], None]:
    def floor() -> None:
        asked.bare()
        if asked.query is not None:
            asked.then(connection.execute(asked.query, asked.values).fetchall())
            connection.commit()

    return floor


@click.command("pages")
@click.option(
    "--agents",
    type=click.IntRange(2, 100_000),
    default=DEFAULT.agents,
    show_default=True,
    help="How many agents there are.",
)
@click.option(
    "--records",
    type=click.IntRange(1, 10_000),
    default=DEFAULT.records_each,
    show_default=True,
    help="How many audit records each agent has.",
)
@click.option(
    "--repetitions",
    type=click.IntRange(1, 1_000),
    default=DEFAULT.repetitions,
    show_default=True,
    help="How often each page is asked.",
)
def bench_pages(agents: int, records: int, repetitions: int) -> None:
    """Ask pages and API of a large installation; print times, queries and which goals are met.

    The floor of a page is a bare route, which looks up who is signed in and says nothing, and the
    page's main query, sent by psycopg; that of an operation a bare route, which checks the token
    and counts the request, and its query. Both take turns, and the medians are compared.

    \b
    Examples:
      refine bench pages
      refine bench pages --agents 100 --records 50 --repetitions 3
    """
    expired = min(DEFAULT.expired, agents * DEFAULT.expired // DEFAULT.agents)
    size = Size(
        agents=agents,
        records_each=records,
        ledgers=(100, 100),
        tidied_agents=1,
        expired=expired,
        repetitions=repetitions,
    )
    with seeded(size) as world:
        print_goals(list(run(Pages(world).benchmarks())))
