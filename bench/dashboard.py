"""The pages of the dashboard that are measured."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import text

from bench import asking
from bench.asked import Asked
from bench.asking import Client
from bench.world import World
from refine import clock
from refine.extensions import db
from refine.models import Account


class Page(NamedTuple):
    """A page and its path."""

    name: str
    path: str
    has_main_query: bool = True

    def asked(self, browser: Client) -> Asked:
        """Return what this browser asks for."""
        return Asked(
            self.name,
            lambda: browser.ask(self.path),
            lambda: browser.ask(asking.BARE_PAGE),
            has_main_query=self.has_main_query,
        )


def pages(world: World) -> Iterator[Page]:
    """Yield every page, as a site admin sees it."""
    yield Page("overview", "/")
    yield from _of_agents(world)
    yield from _of_sessions(world)
    yield Page("usage", "/usage")
    yield Page("usage by month", "/usage?by=month")
    yield from _of_records(world)
    yield from _of_access(world)
    yield from _of_installation(world)


def _of_agents(world: World) -> Iterator[Page]:
    agent_id, ledger_id = world.bulk_agent_id, world.tidied_ids[0]
    memory_id = _first("SELECT max(id) FROM agent_memories WHERE agent_id = :agent", ledger_id)
    at = f"/agents/{agent_id}"
    yield Page("agents", "/agents")
    yield Page("many agents", f"/agents/many?work=refine&who=all&account={_slug(world)}")
    yield Page("an agent", at)
    yield Page("its ledger", f"/agents/{ledger_id}/ledger")
    yield Page("a memory", f"/agents/{ledger_id}/memories/{memory_id}")
    yield Page("its settings", f"{at}/settings")
    yield Page("its tasks", f"{at}/tasks")


def _of_sessions(world: World) -> Iterator[Page]:
    done = "SELECT id FROM refinement_sessions WHERE agent_id = :agent LIMIT 1"
    session_id = _first(done, world.bulk_agent_id)
    yield Page("sessions", "/sessions")
    yield Page("a session", f"/sessions/{session_id}")
    yield Page("sessions compared", f"/sessions/compare?b={session_id}")
    yield Page("its undo", f"/sessions/{session_id}/undo")


def _of_records(world: World) -> Iterator[Page]:
    slug = _slug(world)
    since = (clock.now() - timedelta(days=365)).date()
    until = since + timedelta(days=14)
    last = "SELECT max(id) FROM audit_logs WHERE agent_id = :agent"
    yield Page("audit", "/audit")
    yield Page("audit by account", f"/audit?account={slug}")
    yield Page("audit by dates", f"/audit?since={since}&until={until}")
    yield Page("audit by action", "/audit?action=memory_refinement_rollback")
    yield Page("audit by kind", f"/audit?kind=sessions&account={slug}")
    yield Page("a record", f"/audit/{_first(last, world.tidied_ids[0])}")


def _of_access(world: World) -> Iterator[Page]:
    yield Page("access", "/access")
    yield Page("an access", f"/access/{world.grant_id}")
    yield Page("asking for access", f"/access/new?agent={world.bulk_agent_id}")


def _of_installation(world: World) -> Iterator[Page]:
    slug = _slug(world)
    token_id = _first("SELECT max(id) FROM api_tokens WHERE agent_id = :agent", world.reader_id)
    yield Page("schedule", f"/schedule?account={slug}")
    yield Page("run now", f"/schedule/run?account={slug}")
    yield Page("operations", "/ops")
    yield Page("users", "/users")
    yield Page("tokens", "/tokens")
    yield Page("revoking a token", f"/tokens/{token_id}/revoke")
    yield Page("accounts", "/accounts")
    yield Page("profile", "/profile")
    yield Page("find", "/find?q=Agent+1")


def _first(query: str, agent_id: int) -> Any:
    return db.session.scalars(text(query), {"agent": agent_id}).one()


def _slug(world: World) -> str:
    return db.session.get_one(Account, world.account_ids[0]).slug
