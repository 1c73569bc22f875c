"""Runs go on while PostgreSQL is away: none ends, nothing is done twice, no model call is repeated.

The database is taken away at the consent, between tool calls and at the end, and answers to commits
are lost. ``test_nth_failure.py`` cuts every call in turn.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from flask import Flask
from flask_migrate import upgrade
from sqlalchemy import select

from refine import create_app
from refine.embedded import database_url, socket_dir
from refine.embedded.addresses import POSTGRES_SOCKET
from refine.extensions import db
from refine.jobs.tick import run_tick
from refine.models import Agent, AgentMemory, RefinementSession
from refine.outages import RetryPolicy
from refine.refinement.loop import Event, refine
from refine.settings import Settings
from refine.tools import RefinementTool
from tests import factories
from tests.chains import verify_agent
from tests.conftest import emptied
from tests.outages import Line, Server, line_to, server_of_its_own
from tests.scripted_model import ScriptedModel

YES = "YES, gladly."


class World(NamedTuple):
    """An application on a database that can be taken away."""

    server: Server
    line: Line
    settings: Settings
    model: ScriptedModel


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("outages")
    with server_of_its_own(folder) as running:
        yield running, folder


@pytest.fixture(scope="module")
def line(server: tuple[Server, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    _, folder = server
    with line_to(socket_dir(folder) / POSTGRES_SOCKET, folder / "line") as leading:
        yield leading


@pytest.fixture(scope="module")
def cut_app(
    server: tuple[Server, Path], line: Line, environ: dict[str, str]
) -> tuple[Flask, dict[str, str]]:
    _, folder = server
    url = database_url(folder).replace(str(socket_dir(folder)), str(folder / "line"))
    own = {**environ, "DATABASE_URL": url, "REFINE_DATA_DIR": str(folder)}
    app = create_app(Settings.from_environ(own))
    with app.app_context():
        upgrade()
        db.engine.dispose()
    return app, own


@pytest.fixture
def world(
    server: tuple[Server, Path],
    line: Line,
    cut_app: tuple[Flask, dict[str, str]],
    model: ScriptedModel,
) -> Iterator[World]:
    app, own = cut_app
    settings = Settings.from_environ({**own, "OPENROUTER_BASE_URL": model.base_url})
    with emptied(app):
        yield World(server[0], line, settings, model)
        line.mend()
    with app.app_context():
        db.engine.dispose()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr("refine.outages.PAUSE_SECONDS", 0.01)


# -- taken away -----------------------------------------------------------------------------------


def scripted(world: World, agent: Agent) -> RefinementSession:
    """A session that deletes three memories, one after the other, and completes."""
    core = db.session.scalars(agent.ledger.core())
    ids = [memory.id for memory in core if not memory.content.startswith("Twice")]
    world.model.say(YES).calls(*({"action": "delete", "id": id_} for id_ in ids[:2]))
    world.model.call("delete", id=ids[2]).call("complete", summary="All is well.")
    session = RefinementSession.queue(agent, "cli")
    db.session.commit()
    return session


def an_agent() -> Agent:
    agent = factories.agent("Twice said", "Twice said ")
    factories.ledger(agent, *[25] * 14)
    return agent


def check(session: RefinementSession) -> None:
    """As if nothing had happened."""
    db.session.rollback()
    db.session.refresh(session)
    assert (session.status, session.end_reason) == ("completed", "the agent completed it")
    assert (session.mutation_count, session.tool_calls, session.llm_calls) == (3, 4, 4)
    assert session.duplicates_removed == 1
    assert actions(session.agent) == [
        "refinement_queued",
        "memory_refinement_dedup",
        *["memory_refinement_delete"] * 3,
        "memory_refinement_complete",
    ]
    assert verify_agent(session.agent).problem is None


def actions(agent: Agent) -> list[str]:
    said = [record.action for record in factories.records(agent)]
    return said[said.index("refinement_queued") :] if "refinement_queued" in said else said


@pytest.mark.parametrize("asked", [1, 3, 4], ids=["consent", "turn", "end"])
def test_a_session_outlives_a_restart_of_postgresql_while_its_model_is_asked(
    world: World, asked: int
) -> None:
    session = scripted(world, an_agent())
    answers = world.model._script
    answer = answers[asked - 1]

    def answer_after_a_restart(handler: Any) -> None:
        world.server.restart(seconds_away=2)  # the check for a stop comes once a second
        answer(handler)

    answers[asked - 1] = answer_after_a_restart

    refine(session.id, world.settings)

    check(session)
    assert len(world.model.requests) == 4


def test_a_session_waits_for_postgresql_where_it_would_write(world: World) -> None:
    session = scripted(world, an_agent())
    backs: list[threading.Timer] = []
    seen: list[str] = []

    def observe(event: Event) -> None:
        if event.facts.get("result") == "deleted" and not backs:
            world.server.stop()
            backs.append(threading.Timer(2, world.server.start))
            backs[0].start()
            db.session.scalars(select(Agent.id)).all()  # the observer fails, and is asked again
        seen.append(event.kind)

    refine(session.id, world.settings, observe=observe)
    backs[0].join()

    check(session)
    assert seen[-1] == "ended"


@pytest.mark.parametrize("before", ["duplicates", "tool_call"], ids=["snapshot", "tool call"])
def test_a_step_whose_answer_was_lost_is_found_done(
    world: World, impatient: None, before: str
) -> None:
    session = scripted(world, an_agent())
    seen: list[str] = []

    def observe(event: Event) -> None:
        if event.kind == before and before not in seen:
            world.line.cut(2, "after")  # at the first commit, the step reads what it needs
        seen.append(event.kind)

    refine(session.id, world.settings, observe=observe)

    world.line.mend()
    check(session)


def test_an_end_whose_answer_was_lost_is_written_once(world: World, impatient: None) -> None:
    session = RefinementSession.queue(an_agent(), "cli")
    db.session.commit()
    world.model.say("NO")

    def observe(event: Event) -> None:
        if event.kind == "consent":
            world.line.cut(1, "after")

    refine(session.id, world.settings, observe=observe)

    assert world.line.commits > 1  # the end was cut off
    world.line.mend()
    db.session.refresh(session)
    assert (session.status, session.end_reason) == ("declined", "the agent declined")
    assert actions(session.agent).count("memory_refinement_declined") == 1


def test_a_refusal_whose_answer_was_lost_is_given_again(world: World, impatient: None) -> None:
    session = RefinementSession.start(an_agent())
    memory = db.session.scalars(session.agent.ledger.core()).all()[-1]
    id_, said = memory.id, memory.content
    db.session.commit()
    tool = RefinementTool(session, retry=RetryPolicy())
    memory.tags = ["relational"]
    db.session.commit()
    world.line.cut(1, "after")

    result = tool.execute(action="update", id=id_, content=said[:-1])

    world.line.mend()
    assert "has changed since you last saw it" in result["error"]
    assert db.session.get_one(AgentMemory, id_).content == said


# -- the tick -------------------------------------------------------------------------------------


def test_a_tick_without_postgresql_fails_and_the_next_one_ends_what_was_lost(
    world: World,
) -> None:
    lost = factories.session()
    factories.fall_silent(lost)
    db.session.commit()
    world.server.stop()

    without = run_tick()
    world.server.start()
    after = run_tick()

    db.session.refresh(lost)
    assert (without.lost, without.faults > 0, after.lost) == (0, True, 1)
    assert lost.error_kind == "worker_lost"


# -- the end of patience --------------------------------------------------------------------------


def test_a_process_that_is_asked_to_stop_does_not_wait_for_the_database(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refine.outages.STOPPING_SECONDS", 0.0)
    session = scripted(world, an_agent())
    id_, is_down = session.id, threading.Event()

    def stop() -> None:
        world.server.stop()
        is_down.set()

    world.model._script[0] = lambda handler: stop()

    with pytest.raises(Exception, match="connection"):
        refine(id_, world.settings, is_stopping=is_down.is_set)

    world.server.start()
    db.session.remove()
    left = db.session.get_one(RefinementSession, id_)
    assert left.status == "running"
    factories.fall_silent(left)
    assert left.end_if_lost()
    db.session.commit()
