"""Whole sessions with each strict player: consent, several turns, and the end.

The model thinks, searches, merges, writes broken arguments, talks where it should call, and ends;
whatever it did, no later request may break a rule of its provider.
"""

from collections.abc import Iterator
from decimal import Decimal

import pytest
from flask import Flask

from refine.access.asking import run_access_request
from refine.extensions import db
from refine.llm.provider import configured_provider
from refine.models import AccessGrant, Agent, MemoryTask, RefinementSession
from refine.models.runs.access.asking_rules import AccessTerms
from refine.refinement.loop import refine
from refine.remembering.task_worker import run_task
from refine.settings import Settings
from tests import factories
from tests.providers.player import Player
from tests.providers.providers import PROVIDERS, Message, Step, calls

pytestmark = pytest.mark.slow

# They differ most in what messages and calls must carry; tasks and requests keep to the same rules.
DIFFERENT = ("openrouter", "anthropic", "gemini", "mistral")

SEARCH = {"action": "search", "query": "abc"}
COMPLETE = {"action": "complete", "summary": "I merged two."}
BROKEN = '{"action": "delete", "id": 7'


class Session:
    """A session of an agent with twenty memories, whose model is played by ``player``."""

    def __init__(self, player: "ScriptedPlayer", environ: dict[str, str]) -> None:
        self.player = player
        self.agent: Agent = factories.agent(model_id=player.provider.model)
        self.ids = [memory.id for memory in factories.ledger(self.agent, *[25] * 20)]
        own = {"OPENROUTER_BASE_URL": player.base_url, "REFINE_DIALECT": player.provider.name}
        self.settings = Settings.from_environ({**environ, **own})

    def run(self, *steps: Step) -> RefinementSession:
        """Play these steps one after the other, from the consent to the end."""
        self.player.script = list(steps)
        session = RefinementSession.queue(self.agent, "cli")
        db.session.commit()
        refine(session.id, self.settings)
        db.session.expire_all()
        return session

    @property
    def merging(self) -> dict[str, object]:
        return {"action": "consolidate", "ids": self.ids[:2], "content": factories.text_of(48)}

    @property
    def deleting(self) -> dict[str, object]:
        return {"action": "delete", "id": self.ids[2]}


class ScriptedPlayer(Player):
    """A player that goes through a list of steps."""

    script: list[Step]

    def __init__(self, name: str) -> None:
        super().__init__(PROVIDERS[name], self._next)

    def _next(self, _messages: list[Message]) -> Step:
        return self.script.pop(0)


@pytest.fixture(params=PROVIDERS)
def session(
    request: pytest.FixtureRequest, app: Flask, environ: dict[str, str]
) -> Iterator[Session]:
    with ScriptedPlayer(request.param) as player:
        yield Session(player, environ)


def test_a_session_is_completed_and_no_request_is_refused(session: Session) -> None:
    ended = session.run(
        Step("YES, gladly."),
        calls(SEARCH, SEARCH, words="I will look first."),
        calls(session.merging),
        calls(session.deleting, SEARCH),
        calls(COMPLETE),
    )

    assert session.player.refused == []
    assert (ended.status, ended.error_kind) == ("completed", None)
    assert (ended.stats["consolidated"], ended.stats["deleted"]) == (2, 1)
    provider, answers = session.player.provider, len(session.player.said)
    assert ended.cached_tokens == answers * provider.cached_tokens
    if provider.cost_usd is not None:
        assert ended.cost_usd == answers * Decimal(provider.cost_usd)


def test_whatever_the_model_does_the_next_request_keeps_the_rules(session: Session) -> None:
    for steps, ending in (
        (
            (
                calls(SEARCH),
                Step("YES, after all."),
                calls(session.merging, BROKEN),
                Step("Let me think."),
                calls("", "null", "[]"),
                calls(BROKEN, words="Again."),
                calls(COMPLETE),
            ),
            "completed",
        ),
        (
            (
                Step("YES, bec", is_cut=True),
                Step("YES."),
                Step(None, (session.deleting, BROKEN), is_cut=True),
                Step(""),
                calls(SEARCH),
                Step("I will", is_cut=True),
            ),
            "incomplete",
        ),
    ):
        ended = session.run(*steps)

        assert session.player.refused == []
        assert (ended.status, ended.error_kind, ended.mutation_count) == (ending, None, 1)


@pytest.mark.parametrize(
    "session",
    [
        name if name in DIFFERENT else pytest.param(name, marks=pytest.mark.nightly)
        for name in PROVIDERS
    ],
    indirect=True,
)
def test_memory_tasks_and_access_requests_keep_the_rules_too(session: Session) -> None:
    entry = factories.entry(session.agent, "Tomasz bakes bread on Sundays.")
    reader = factories.user(account=session.agent.account)
    terms = {"reason": "agent_asked", "purpose": "to see why it declined", "duration_minutes": 30}
    grant = AccessGrant.request(session.agent, reader, AccessTerms.checked(**terms))
    tasks = [MemoryTask.reflect(session.agent, "daily"), factories.extraction(session.agent)]
    db.session.commit()

    session.player.script = [calls({"ids": [entry.id]}), Step("Done.")]
    run_task(tasks[0].id, session.settings)
    saved = {"content": "A new song.", "memory_type": "journal", "tags": []}
    session.player.script = [calls(saved, BROKEN), Step("Done.")]
    run_task(tasks[1].id, session.settings)
    session.player.script = [Step("YES.")]
    run_access_request(grant.id, session.settings)
    db.session.expire_all()

    assert session.player.refused == []
    assert [task.status for task in tasks] == ["completed", "completed"]
    assert grant.status == "granted"


def test_the_list_of_models_gives_the_context_if_it_names_one(session: Session) -> None:
    client = configured_provider(session.settings)
    assert client is not None

    listed = client.catalogue.find(session.player.provider.model)

    named = listed.context_tokens if listed is not None else None
    assert named == session.player.provider.context_tokens
    if session.player.provider.lists:
        assert session.player.unknown_paths == []
