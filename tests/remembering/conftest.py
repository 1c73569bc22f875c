"""A world for memory tasks: an agent with a journal, its model scripted, and tasks run on it."""

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog, MemoryTask
from refine.remembering.task_worker import run_task
from refine.settings import Settings
from tests import factories
from tests.scripted_model import ScriptedModel


class World:
    """An agent with one core memory and four journal entries."""

    def __init__(self, app: Flask, environ: dict[str, str], model: ScriptedModel) -> None:
        self.app = app
        self.model = model
        self.agent: Agent = factories.agent("a core memory")
        self.entries: list[AgentMemory] = [
            factories.entry(self.agent, f"the canary sang song {number}") for number in range(4)
        ]
        self.variables: dict[str, str] = {}
        self.is_stopping: Callable[[], bool] = lambda: False
        self._environ = environ

    @property
    def ids(self) -> list[int]:
        return [entry.id for entry in self.entries]

    def settings(self) -> Settings:
        own = {"OPENROUTER_BASE_URL": self.model.base_url}
        return Settings.from_environ({**self._environ, **own, **self.variables})

    def calls(self, *arguments: dict[str, Any] | str, **fields: Any) -> ScriptedModel:
        """Script calls of the tool that takes such arguments."""
        promotes = isinstance(arguments[0], dict) and "ids" in arguments[0]
        self.model.tool = "promote" if promotes else "save_memory"
        return self.model.calls(*arguments, **fields)

    def reflect(self, trigger: Any = "daily") -> MemoryTask:
        """Queue a reflection and work on it, as a worker does."""
        return self.work(MemoryTask.reflect(self.agent, trigger))

    def extract(self, *contents: str) -> MemoryTask:
        """Queue an extraction of a conversation and work on it, as a worker does."""
        return self.work(factories.extraction(self.agent, *contents))

    def work(self, task: MemoryTask) -> MemoryTask:
        db.session.commit()
        run_task(task.id, self.settings(), is_stopping=self.is_stopping)
        db.session.rollback()
        db.session.expire_all()
        return task

    def elsewhere(self, work: Callable[[MemoryTask], object]) -> Callable[[], None]:
        """Act on the agent's live task as another process, in a transaction of its own."""
        agent_id = self.agent.id

        def done() -> None:
            with self.app.app_context():
                (task,) = factories.live_tasks(db.session.get_one(Agent, agent_id))
                work(task)
                db.session.commit()

        return done

    def core(self) -> list[str]:
        return [memory.content for memory in db.session.scalars(self.agent.ledger.core())]

    def journal(self) -> list[str]:
        return [memory.content for memory in factories.journal(self.agent)]

    def records(self) -> list[AuditLog]:
        return factories.records(self.agent)

    def asked(self, number: int = -1) -> list[dict[str, Any]]:
        """The messages of one of the requests that the model got."""
        return list(self.model.requests[number]["messages"])

    def results(self) -> list[str]:
        """The tool's results, from the last request."""
        return [said["content"] for said in self.asked() if said["role"] == "tool"]


@pytest.fixture
def world(app: Flask, environ: dict[str, str], model: ScriptedModel) -> World:
    made = World(app, environ, model)
    db.session.commit()
    return made
