"""Runs go on while PostgreSQL is away: none ends, nothing is done twice, no model call is repeated.

``test_nth_failure.py`` cuts every call in turn, and loses the answer of every commit.
"""

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from flask import Flask

from refine.embedded import database_url
from refine.extensions import db
from refine.jobs.tick import run_tick
from refine.models import RefinementSession
from refine.refinement.loop import refine
from refine.settings import Settings
from tests import factories
from tests.chains import verify_agent
from tests.conftest import emptied, migrated
from tests.scripted_model import ScriptedModel
from tests.servers import Server


class World(NamedTuple):
    """An application on a database that can be taken away."""

    server: Server
    settings: Settings
    model: ScriptedModel


@pytest.fixture(scope="module")
def installation(
    tmp_path_factory: pytest.TempPathFactory, environ: dict[str, str]
) -> Iterator[tuple[Server, Flask, dict[str, str]]]:
    folder = tmp_path_factory.mktemp("outages")
    server = Server(folder)
    server.start()
    own = {**environ, "DATABASE_URL": database_url(folder), "REFINE_DATA_DIR": str(folder)}
    with migrated(own) as app:
        yield server, app, own
    server.stop()


@pytest.fixture
def world(
    installation: tuple[Server, Flask, dict[str, str]], model: ScriptedModel
) -> Iterator[World]:
    server, app, own = installation
    settings = Settings.from_environ({**own, "OPENROUTER_BASE_URL": model.base_url})
    with emptied(app):
        yield World(server, settings, model)


def scripted(world: World) -> RefinementSession:
    """A session that deletes three memories, one after the other, and completes."""
    agent = factories.agent("Twice said", "Twice said ")
    ids = [memory.id for memory in factories.ledger(agent, *[25] * 14)]
    world.model.say("YES, gladly.").calls(*({"action": "delete", "id": id_} for id_ in ids[:2]))
    world.model.call("delete", id=ids[2]).call("complete", summary="All is well.")
    session = RefinementSession.queue(agent, "cli")
    db.session.commit()
    return session


@pytest.mark.parametrize("asked", [1, 3], ids=["consent", "turn"])
def test_a_session_outlives_a_restart_of_postgresql_while_its_model_is_asked(world, asked):
    session = scripted(world)
    answers = world.model._script
    answer = answers[asked - 1]

    def answer_after_a_restart(handler: Any) -> None:
        world.server.restart(seconds_away=2)  # the check for a stop comes once a second
        answer(handler)

    answers[asked - 1] = answer_after_a_restart

    refine(session.id, world.settings)

    db.session.rollback()
    db.session.refresh(session)
    assert (session.status, session.end_reason) == ("completed", "the agent completed it")
    assert (session.mutation_count, session.tool_calls, session.llm_calls) == (3, 4, 4)
    assert [record.action for record in factories.records(session.agent)][-6:] == [
        "refinement_queued",
        "memory_refinement_dedup",
        *["memory_refinement_delete"] * 3,
        "memory_refinement_complete",
    ]
    assert verify_agent(session.agent).problem is None
    assert len(world.model.requests) == 4


def test_a_tick_without_postgresql_fails_and_the_next_one_ends_lost_runs(world):
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


def test_a_process_that_is_asked_to_stop_does_not_wait_for_the_database(world, monkeypatch):
    monkeypatch.setattr("refine.outages.STOPPING_SECONDS", 0.0)
    id_, is_down = scripted(world).id, threading.Event()

    def stop(_handler: Any) -> None:
        world.server.stop()
        is_down.set()

    world.model._script[0] = stop

    with pytest.raises(Exception, match="connection"):
        refine(id_, world.settings, is_stopping=is_down.is_set)

    world.server.start()
    db.session.remove()
    left = db.session.get_one(RefinementSession, id_)
    assert left.status == "running"
    factories.fall_silent(left)
    assert left.end_if_lost()
    db.session.commit()
