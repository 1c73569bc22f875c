"""The pages of the dashboard that are measured, and their main queries.

The main query of a list fetches the rows that it shows by their ids, which is the least that it
must do; that of any other page, the row that the page is about.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import text

from refine import clock
from refine.cli.bench import asking
from refine.cli.bench.asked import Asked
from refine.cli.bench.asking import Client
from refine.cli.bench.world import World
from refine.extensions import db
from refine.models import Account

_ROWS = 50

_DAYS = """
SELECT created_at::date, status, count(*), sum(prompt_tokens), sum(cost_usd)
FROM refinement_sessions WHERE created_at > now() - interval '90 days' GROUP BY 1, 2
"""
_MASSES = """
SELECT created_at, data ->> 'mass_after', action, session_id FROM audit_logs
WHERE agent_id = %(agent)s ORDER BY sequence DESC LIMIT 2000
"""
_LEDGER = """
SELECT id, memory_type, constitutional, tags, token_estimate, created_at, discarded_at
FROM agent_memories WHERE agent_id = %(agent)s AND discarded_at IS NULL
ORDER BY created_at DESC, id DESC LIMIT 51
"""
_AGENTS = """
SELECT model_id, paused, last_refinement_at, core_tokens FROM agents
WHERE account_id = %(account)s
"""
_SESSIONS = """
SELECT refinement_sessions.*, agents.name FROM refinement_sessions
JOIN agents ON agents.id = agent_id WHERE refinement_sessions.id = ANY(%(ids)s)
"""
_RECORDS = """
SELECT id, chain_id, sequence, account_id, agent_id, user_id, session_id, action, created_at
FROM audit_logs WHERE id = ANY(%(ids)s)
"""
_USED = """
SELECT {by}, count(*), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), sum(cost_usd)
FROM (
  SELECT agent_id, created_at, prompt_tokens, cached_tokens, completion_tokens, cost_usd
  FROM refinement_sessions
  UNION ALL
  SELECT agent_id, created_at, prompt_tokens, cached_tokens, completion_tokens, cost_usd
  FROM memory_tasks
  UNION ALL
  SELECT agent_id, created_at, prompt_tokens, cached_tokens, completion_tokens, cost_usd
  FROM access_grants
) AS runs WHERE created_at >= date_trunc('month', now()) - interval '{months} months' GROUP BY 1
"""


class Page(NamedTuple):
    """A page: its path, and the plain query that it cannot do without."""

    name: str
    path: str
    query: str | None = None
    values: Any = None

    def asked(self, browser: Client) -> Asked:
        """Return what this browser asks for."""
        return Asked(
            self.name,
            lambda: browser.ask(self.path),
            lambda: browser.ask(asking.BARE_PAGE),
            self.query,
            self.values,
        )


def pages(world: World) -> Iterator[Page]:
    """Yield every page, as a site admin sees it."""
    yield Page("overview", "/", _DAYS)
    yield from _of_agents(world)
    yield from _of_sessions(world)
    yield Page("usage", "/usage", _USED.format(by="agent_id", months=0))
    by_month = _USED.format(by="date_trunc('month', created_at)", months=11)
    yield Page("usage by month", "/usage?by=month", by_month)
    yield from _of_records(world)
    yield from _of_access(world)
    yield from _of_installation(world)


def _of_agents(world: World) -> Iterator[Page]:
    agent_id, ledger_id = world.bulk_agent_id, world.tidied_ids[0]
    memory_id = _first("SELECT max(id) FROM agent_memories WHERE agent_id = :agent", ledger_id)
    at, row = f"/agents/{agent_id}", _row("agents", agent_id)
    yield _list("agents", "/agents", "agents", "lower(name), id")
    all_of_account = f"?work=refine&who=all&account={_slug(world)}"
    yield Page("many agents", f"/agents/many{all_of_account}", _AGENTS, _account(world))
    yield Page("an agent", at, _MASSES, {"agent": agent_id})
    yield Page("its ledger", f"/agents/{ledger_id}/ledger", _LEDGER, {"agent": ledger_id})
    yield Page("a memory", f"/agents/{ledger_id}/memories/{memory_id}", *_row("agents", ledger_id))
    yield Page("its settings", f"{at}/settings", *row)
    yield Page("its import", f"{at}/import", *row)
    yield _list(
        "its tasks", f"{at}/tasks", "memory_tasks", "created_at DESC", f"agent_id = {agent_id}"
    )


def _of_sessions(world: World) -> Iterator[Page]:
    done = "SELECT id FROM refinement_sessions WHERE agent_id = :agent LIMIT 1"
    session_id = _first(done, world.bulk_agent_id)
    ids = _ids("refinement_sessions", "created_at DESC, id")
    row = _row("refinement_sessions", session_id)
    yield Page("sessions", "/sessions", _SESSIONS, ids)
    yield Page("a session", f"/sessions/{session_id}", *row)
    yield Page("sessions compared", f"/sessions/compare?b={session_id}", *row)
    yield Page("its undo", f"/sessions/{session_id}/undo", *row)


def _of_records(world: World) -> Iterator[Page]:
    slug = _slug(world)
    since = (clock.now() - timedelta(days=365)).date()
    until = since + timedelta(days=14)
    rollback = "memory_refinement_rollback"
    of_account = f"account_id = {world.account_ids[0]}"
    of_days = f"created_at >= '{since}' AND created_at < '{until}'"
    yield _audit("audit", "", "true")
    yield _audit("audit by account", f"?account={slug}", of_account)
    yield _audit("audit by dates", f"?since={since}&until={until}", of_days)
    yield _audit("audit by action", f"?action={rollback}", f"action = '{rollback}'")
    yield _audit(
        "audit by kind",
        f"?kind=sessions&account={slug}",
        f"action IN ('refinement_queued', 'memory_refinement_complete') AND {of_account}",
    )
    record_id = _first(
        "SELECT max(id) FROM audit_logs WHERE agent_id = :agent", world.tidied_ids[0]
    )
    yield Page("a record", f"/audit/{record_id}", *_row("audit_logs", record_id))


def _audit(name: str, arguments: str, condition: str) -> Page:
    return Page(name, f"/audit{arguments}", _RECORDS, _ids("audit_logs", "id DESC", condition))


def _of_access(world: World) -> Iterator[Page]:
    agent_id, grant_id = world.bulk_agent_id, world.grant_id
    yield _list("access", "/access", "access_grants", "created_at DESC")
    yield Page("an access", f"/access/{grant_id}", *_row("access_grants", grant_id))
    yield Page("asking for access", f"/access/new?agent={agent_id}", *_row("agents", agent_id))


def _of_installation(world: World) -> Iterator[Page]:
    account_id, slug = world.account_ids[0], _slug(world)
    account = _row("accounts", account_id)
    token_id = _first("SELECT max(id) FROM api_tokens WHERE agent_id = :agent", world.reader_id)
    yield Page("schedule", f"/schedule?account={slug}", *account)
    yield Page("run now", f"/schedule/run?account={slug}", _AGENTS, _account(world))
    yield Page("operations", "/ops", *_row("accounts", account_id))
    yield _list("users", "/users", "users", "id")
    yield _list("tokens", "/tokens", "api_tokens", "id")
    yield Page("revoking a token", f"/tokens/{token_id}/revoke", *_row("api_tokens", token_id))
    yield _list("accounts", "/accounts", "accounts", "id")
    yield Page("profile", "/profile", *account)
    yield _list("find", "/find?q=Agent+1", "agents", "id", "name LIKE 'Agent 1%'")


def _list(name: str, path: str, table: str, order: str, condition: str = "true") -> Page:
    query = f"SELECT * FROM {table} WHERE id = ANY(%(ids)s)"  # noqa: S608
    return Page(name, path, query, _ids(table, order, condition))


def _row(table: str, id_: object) -> tuple[str, Mapping[str, object]]:
    return f"SELECT * FROM {table} WHERE id = %(id)s", {"id": id_}  # noqa: S608


def _ids(table: str, order: str, condition: str = "true") -> dict[str, list[Any]]:
    found = f"SELECT id FROM {table} WHERE {condition} ORDER BY {order} LIMIT {_ROWS}"  # noqa: S608
    return {"ids": list(db.session.scalars(text(found)))}


def _first(query: str, agent_id: int) -> Any:
    return db.session.scalars(text(query), {"agent": agent_id}).one()


def _account(world: World) -> dict[str, int]:
    return {"account": world.account_ids[0]}


def _slug(world: World) -> str:
    return db.session.get_one(Account, world.account_ids[0]).slug
