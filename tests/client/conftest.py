"""A served Refine, an agent's client of it, and an admin at the dashboard."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

import pytest
from flask import Flask
from redis import Redis
from sqlalchemy import select

from refine import clock
from refine.extensions import db
from refine.models import Agent, AgentMemory, ApiToken, RefinementSession
from refine.models.ledger.memory import NOTE
from refine_client import Refine
from tests import factories
from tests.browser.serving import free_port, serving
from tests.chains import problems
from tests.commands import Service, eventually, services
from tests.web.conftest import Browser, ended_session, signed_in_browser

# What the agent has kept for two days: of this, a quarter may go in a day.
KEPT = (
    "The boathouse key hangs behind the kitchen clock.",
    "Mira takes her tea without milk since the winter in Oslo.",
    "The ferry at four is the last one that stops at the island.",
    "I promised to read the letters aloud on the first of May, and on no other day of that month.",
)


@dataclass
class Home:
    """An agent at a Refine with this address."""

    app: Flask
    url: str
    agent: Agent
    token: str

    @cached_property
    def refine(self) -> Refine:
        return Refine(self.token, self.url)

    @cached_property
    def admin(self) -> Browser:
        return signed_in_browser(self.app, factories.user(account=self.agent.account))

    def after_a_session(self) -> RefinementSession:
        """Add memories that say the same, and a session that deleted one of them."""
        one, *_ = factories.ledger(self.agent, *[25] * 20)
        session = ended_session(self.agent, one)
        db.session.commit()
        return session

    def lock(self, memory_id: int) -> None:
        """Lock a memory, as an admin does on the ledger's page."""
        self._press(memory_id, "constitutional", {"constitutional": "1"})

    def restore(self, memory_id: int) -> None:
        """Restore a memory, likewise."""
        self._press(memory_id, "restore", {})

    def _press(self, memory_id: int, button: str, fields: dict[str, str]) -> None:
        path = f"/agents/{self.agent.id}/memories/{memory_id}/{button}"
        assert self.admin.submit(path, fields).status_code == 303

    @property
    def memories(self) -> list[AgentMemory]:
        """The kept core memories, oldest first."""
        db.session.rollback()
        mine = self.agent.ledger.core().order_by(AgentMemory.id)
        return list(db.session.scalars(mine))

    @property
    def core(self) -> list[str]:
        return [memory.content for memory in self.memories]

    @property
    def told(self) -> list[str]:
        """What the verified records say was done to memories, oldest first, but not in notes."""
        db.session.rollback()
        assert problems() == []
        notes = db.session.scalars(select(AgentMemory.id).where(AgentMemory.source == NOTE))
        noted = {str(id_) for id_ in notes}
        return [
            record.action
            for record in factories.records(self.agent)
            if record.auditable_type == "AgentMemory" and record.auditable_id not in noted
        ]


@pytest.fixture(scope="session")
def port() -> int:
    """Where Refine is served, in one test after another."""
    return free_port()


@pytest.fixture
def home(app: Flask, redis: Redis, port: int) -> Iterator[Home]:
    agent = factories.agent(name="Wren")
    for content in KEPT:
        factories.memory(agent, content, recorded_at=clock.now() - timedelta(days=2))
    _, token = ApiToken.mint(account=agent.account, agent=agent)
    db.session.commit()
    with serving(app, port):
        yield Home(app, f"http://localhost:{port}", agent, token)


@pytest.fixture(scope="session")
def mcp_url(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where `refine mcp --http` serves the Refine that the tests serve."""
    own = free_port()
    with services({"REFINE_URL": f"http://localhost:{port}"}, tmp_path_factory.mktemp("mcp")) as up:
        server = up("mcp", "--http", "--port", str(own))
        eventually(lambda: _says_it_runs(server))
        yield f"http://127.0.0.1:{own}/mcp"


def _says_it_runs(server: Service) -> bool:
    assert server.is_running(), server.said
    return "Uvicorn running" in server.said
