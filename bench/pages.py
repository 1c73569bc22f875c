"""The response times of every page and of the API's reads, on a large installation."""

import contextvars
import gc
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import click
from flask import current_app
from flask.testing import FlaskClient
from sqlalchemy import text

from bench.measuring import Benchmark, Figure, p95, print_goals, run, timed
from bench.world import DEFAULT, LARGER, Size, World, grow, seeded
from refine import clock
from refine.extensions import db
from refine.models import Account

AT_MOST_MS = 120.0
GROWN_AT_MOST_TIMES = 1.5


class UnexpectedAnswer(Exception):
    """An answer has an unexpected status."""


class Client(FlaskClient):
    """Asks each time in a context of its own, as a server does."""

    def ask(self, path: str, **headers: str) -> None:
        """Send a GET, which must succeed."""
        asked = partial(super().open, path, headers=headers, buffered=True)
        answer = contextvars.Context().run(asked)
        if answer.status_code != 200:
            raise UnexpectedAnswer(f"{path}: {answer.status_code}")


class Page(NamedTuple):
    """A page, or an operation of the API with its token."""

    name: str
    path: str
    token: str | None = None


def pages(world: World) -> Iterator[Page]:
    """Yield every page, as a site admin sees it."""
    agent_id, ledger_id, slug = world.bulk_agent_id, world.tidied_ids[0], _slug(world)
    memory_id = _first("SELECT max(id) FROM agent_memories WHERE agent_id = :agent", ledger_id)
    session = "SELECT id FROM refinement_sessions WHERE agent_id = :agent LIMIT 1"
    session_id = _first(session, agent_id)
    record_id = _first("SELECT max(id) FROM audit_logs WHERE agent_id = :agent", ledger_id)
    user = "SELECT max(user_id) FROM access_grants WHERE agent_id = :agent"
    token_id = _first("SELECT max(id) FROM api_tokens WHERE agent_id = :agent", world.reader_id)
    since = (clock.now() - timedelta(days=365)).date()
    until = since + timedelta(days=14)
    yield Page("overview", "/")
    yield Page("agents", "/agents")
    yield Page("many agents", f"/agents/many?work=refine&who=all&account={slug}")
    yield Page("an agent", f"/agents/{agent_id}")
    yield Page("its ledger", f"/agents/{ledger_id}/ledger")
    yield Page("a memory", f"/agents/{ledger_id}/memories/{memory_id}")
    yield Page("its settings", f"/agents/{agent_id}/settings")
    yield Page("its tasks", f"/agents/{agent_id}/tasks")
    yield Page("its erasure", f"/agents/{agent_id}/erasure")
    yield Page("sessions", "/sessions")
    yield Page("sessions by text", "/sessions?q=Agent+1")
    yield Page("a session", f"/sessions/{session_id}")
    yield Page("its undo", f"/sessions/{session_id}/undo")
    yield Page("usage", "/usage")
    yield Page("usage by month", "/usage?by=month")
    yield Page("deliveries", "/deliveries")
    yield Page("audit", "/audit")
    yield Page("audit by account", f"/audit?account={slug}")
    yield Page("audit by dates", f"/audit?since={since}&until={until}")
    yield Page("audit by action", "/audit?action=memory_refinement_rollback")
    yield Page("audit by kind", f"/audit?kind=sessions&account={slug}")
    yield Page("a record", f"/audit/{record_id}")
    yield Page("access", "/access")
    yield Page("an access", f"/access/{world.grant_id}")
    yield Page("asking for access", f"/access/new?agent={agent_id}")
    yield Page("schedule", f"/schedule?account={slug}")
    yield Page("run now", f"/schedule/run?account={slug}")
    yield Page("retention", f"/schedule/retention?account={slug}")
    yield Page("operations", "/ops")
    yield Page("users", "/users")
    yield Page("locking a user", f"/users/{_first(user, agent_id)}/lock")
    yield Page("tokens", "/tokens")
    yield Page("revoking a token", f"/tokens/{token_id}/revoke")
    yield Page("accounts", "/accounts")
    yield Page("locking an account", f"/accounts/{world.account_ids[0]}/lock")
    yield Page("profile", "/profile")
    yield Page("sign-ins", "/profile/sign-ins")
    yield Page("second factors", "/profile/second-factors")
    yield Page("inbox", "/inbox")
    yield Page("find", "/find?q=Agent")
    yield Page("wall", "/wall")
    yield Page("letter", f"/letter?account={slug}")


def operations(world: World) -> Iterator[Page]:
    """Yield the reads of the API, and the metrics."""
    yield Page("metrics", "/metrics")
    yield Page("GET /agents", "/api/v1/agents", world.platform_token)
    yield Page("GET /usage", "/api/v1/usage", world.platform_token)
    yield Page("GET /context", "/api/v1/context", world.token)


class Pages:
    """All pages and operations of a world, measured again as it grows."""

    def __init__(self, world: World) -> None:
        app: Any = current_app._get_current_object()  # type: ignore[attr-defined]
        self._world = world
        self._browser = Client(app, app.response_class)
        self._program = Client(app, app.response_class)
        self._before: dict[str, float] = {}
        with self._browser.session_transaction() as cookie:
            cookie.update({"_user_id": world.sign_in, "_fresh": True})

    def benchmarks(self, agents: int) -> list[Benchmark]:
        """Return a benchmark for each; from the second time on, also the growth."""
        asked = [(page, partial(self._browser.ask, page.path)) for page in pages(self._world)]
        for each in operations(self._world):
            headers = {"Authorization": f"Bearer {each.token}"} if each.token else {}
            asked.append((each, partial(self._program.ask, each.path, **headers)))
        return [
            Benchmark(page.name, partial(self._measured, f"{page.name}, {agents:,} agents", ask))
            for page, ask in asked
        ]

    def _measured(self, name: str, ask: Callable[[], None]) -> Iterator[Figure]:
        ask()
        gc.freeze()  # as `refine web` does before it forks
        ours = p95([timed(ask)() for _ in range(self._world.size.times_asked)])
        page = name.partition(",")[0]
        before = self._before.get(page)
        self._before[page] = ours
        flat = GROWN_AT_MOST_TIMES if before is not None else None
        yield Figure(name, ours, floor=before, at_most=AT_MOST_MS, at_most_times=flat)


def all_pages(world: World, *, is_grown: bool) -> Iterator[Benchmark]:
    """Yield all benchmarks of pages; those of the grown world are compared with the ones before."""
    measured = Pages(world)
    yield from measured.benchmarks(world.size.agents)
    if is_grown:
        agents = world.size.agents * LARGER
        yield Benchmark("growth", lambda: grow(world, agents))
        yield from measured.benchmarks(agents)


def _first(query: str, agent_id: int) -> Any:
    return db.session.scalars(text(query), {"agent": agent_id}).one()


def _slug(world: World) -> str:
    return db.session.get_one(Account, world.account_ids[0]).slug


def _number(name: str, at_most: int, default: int, text: str) -> Callable[[Any], Any]:
    range_ = click.IntRange(1, at_most)
    return click.option(name, type=range_, default=default, show_default=True, help=text)


@click.command("pages")
@_number("--agents", 100_000, DEFAULT.agents, "Number of agents, at least 2.")
@_number("--records", 10_000, DEFAULT.records_each, "Audit records of each agent.")
@_number("--memories", 10_000, DEFAULT.memories_each, "Memories of each agent.")
@_number("--repetitions", 1_000, DEFAULT.times_asked, "Requests for each page.")
def bench_pages(agents: int, records: int, memories: int, repetitions: int) -> None:
    """Measure the response times of pages and API on a large installation.

    Prints the 95th percentile (p95) of each, and which goals are met.

    \b
    Examples:
      refine bench pages
      refine bench pages --agents 100 --records 50 --repetitions 3
      refine bench pages --agents 10000 --records 500 --memories 100
    """
    size = Size(
        agents=max(agents, 2),
        records_each=records,
        memories_each=memories,
        ledgers=(100, 100),
        tidied_agents=1,
        times_asked=repetitions,
    )
    with seeded(size) as world:
        print_goals(list(run(all_pages(world, is_grown=False))))
