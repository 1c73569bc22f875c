"""An agent with something to say, somebody who asks to read it, and the agent's model, scripted."""

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from refine.access.asking import run_access_request
from refine.extensions import db
from refine.llm import provider
from refine.models import AccessGrant, Agent, AgentMemory, AuditLog, User
from refine.models.runs.access.asking_rules import AccessTerms
from refine.settings import Settings
from tests import factories
from tests.scripted_model import ScriptedModel


class World:
    """An agent, its model, and a reader who has asked."""

    def __init__(self, app: Flask, environ: dict[str, str], model: ScriptedModel) -> None:
        self.app = app
        self.model = model
        self.agent: Agent = factories.agent(name="Ada", system_prompt="You are Ada, a gardener.")
        self.memories: list[AgentMemory] = [
            factories.memory(self.agent, f"{plant} grow by the wall")
            for plant in ("Roses", "Beans", "Wild ROSES")
        ]
        self.reader: User = factories.user(account=self.agent.account, email="ines@example.org")
        self._environ = environ

    def settings(self, **variables: str) -> Settings:
        own = {"OPENROUTER_BASE_URL": self.model.base_url}
        return Settings.from_environ({**self._environ, **own, **variables})

    def request(self, **fields: Any) -> AccessGrant:
        usual = {
            "reason": "failed_session",
            "purpose": "to see why it declined",
            "duration_minutes": 30,
        }
        made = AccessGrant.request(
            self.agent, self.reader, AccessTerms.checked(**{**usual, **fields})
        )
        db.session.commit()
        return made

    def ask(self, grant: AccessGrant | None = None, **options: Any) -> AccessGrant:
        """Ask as a worker does, and return the settled request."""
        grant = grant or self.request()
        settings = options.pop("settings", None) or self.settings()
        run_access_request(grant.id, settings, **options)
        db.session.rollback()
        db.session.expire_all()
        return grant

    def grant(self, **fields: Any) -> AccessGrant:
        made = factories.live_grant(self.agent, self.reader, **fields)
        db.session.commit()
        return made

    def elsewhere(self, work: Callable[[], object]) -> Callable[[], None]:
        """Act as another process, in a transaction of its own."""

        def done() -> None:
            with self.app.app_context():
                work()
                db.session.commit()
                db.session.remove()

        return done

    def records(self, action: str) -> list[AuditLog]:
        """The agent's records of an action, as committed."""
        db.session.rollback()
        return [record for record in factories.records(self.agent) if record.action == action]


@pytest.fixture
def world(
    app: Flask, environ: dict[str, str], model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> World:
    monkeypatch.setattr(provider, "_BACKOFF_SECONDS", (0.0,))
    made = World(app, environ, model)
    db.session.commit()
    return made
