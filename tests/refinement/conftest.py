"""A world for sessions: an agent with a ledger, its model scripted, and the loop run on it."""

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog, RefinementSession
from refine.refinement.loop import SessionEvent, refine
from refine.settings import Settings
from tests import factories
from tests.scripted_model import ScriptedModel


class World:
    """An agent with 20 memories of 25 tokens, of which a session may remove 125."""

    def __init__(self, app: Flask, environ: dict[str, str], model: ScriptedModel) -> None:
        self.app = app
        self.model = model
        self.agent: Agent = factories.agent()
        self.memories: list[AgentMemory] = factories.ledger(self.agent, *[25] * 20)
        self.events: list[SessionEvent] = []
        self.variables: dict[str, str] = {}
        self.is_stopping: Callable[[], bool] = lambda: False
        self._environ = environ

    @property
    def ids(self) -> list[int]:
        return [memory.id for memory in self.memories]

    def use(self, agent: Agent) -> None:
        """Let sessions be about another agent."""
        self.agent, self.memories = agent, list(db.session.scalars(agent.ledger.core()))

    def settings(self, **variables: str) -> Settings:
        own = {"OPENROUTER_BASE_URL": self.model.base_url}
        return Settings.from_environ({**self._environ, **own, **self.variables, **variables})

    def queue(self) -> RefinementSession:
        session = RefinementSession.queue(self.agent, "cli")
        db.session.commit()
        return session

    def refine(self, session: RefinementSession | None = None, **options: Any) -> RefinementSession:
        """Run a session to its end, as a worker does."""
        session = session or self.queue()
        options = {"observe": self.events.append, "is_stopping": self.is_stopping, **options}
        refine(session.id, self.settings(), **options)
        db.session.rollback()
        db.session.expire_all()
        return session

    def elsewhere(self, work: Callable[[RefinementSession], object]) -> Callable[[], None]:
        """Act on the agent's live session as another process, in a transaction of its own."""
        agent_id = self.agent.id

        def done() -> None:
            with self.app.app_context():
                session = RefinementSession.live_of(db.session.get_one(Agent, agent_id))
                assert session is not None
                work(session)
                db.session.commit()

        return done

    def kept(self) -> list[int]:
        return [memory.id for memory in db.session.scalars(self.agent.ledger.core())]

    def journal(self) -> list[str]:
        return [memory.content for memory in factories.journal(self.agent)]

    def records(self, session: RefinementSession) -> list[AuditLog]:
        """The session's records, oldest first."""
        mine = db.select(AuditLog).where(AuditLog.session_id == session.id)
        return list(db.session.scalars(mine.order_by(AuditLog.sequence)))

    def asked(self, number: int) -> list[dict[str, Any]]:
        """The messages of one of the requests that the model got."""
        return list(self.model.requests[number]["messages"])

    def results(self) -> list[str]:
        """The tool's results, from the last request."""
        return [said["content"] for said in self.asked(-1) if said["role"] == "tool"]


@pytest.fixture
def world(app: Flask, environ: dict[str, str], model: ScriptedModel) -> World:
    made = World(app, environ, model)
    db.session.commit()
    return made
