"""Kill a session's process before and after every commit and every HTTP call.

A process that dies anywhere between BEGIN and COMMIT leaves the same database behind, so the cut
just before the commit stands for the entire transaction, and no rollback needs a cut of its own.
"""

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests
from flask import Flask
from sqlalchemy import select, text

from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog, RefinementSession, SessionEntry
from refine.refinement.loop import refine
from refine.settings import Settings
from tests import factories
from tests.chains import verify_agent
from tests.factories import EDITS
from tests.scripted_model import ScriptedModel

CHILD = "refine-cut"
PARTS = 4


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in range(1, PARTS))]
)
def test_a_session_cut_anywhere_leaves_edits_and_records_in_step(
    app: Flask, environ: dict[str, str], model: ScriptedModel, part: int
) -> None:
    settings = Settings.from_environ({**environ, "OPENROUTER_BASE_URL": model.base_url})
    whole = run_in_child(app, settings, model, cut_at=None)
    assert whole.session().status == "completed"
    assert whole.session().mutation_count == 4
    assert whole.points > 60

    for point in range(part, whole.points, PARTS):
        cut = run_in_child(app, settings, model, cut_at=point)

        assert not cut.points, f"the session was not cut at point {point}"
        check_in_step(cut, point)
        end_as_the_sweeper_would(cut)
        check_in_step(cut, point)


class Run:
    """One session in a process of its own; ``points`` only where it came to its end."""

    def __init__(self, agent: Agent, session: RefinementSession) -> None:
        self.agent_id = agent.id
        self.session_id = session.id
        self.before = {memory.id: state(memory) for memory in memories_of(agent.id)}
        self.points = 0

    def session(self) -> RefinementSession:
        return db.session.get_one(RefinementSession, self.session_id, populate_existing=True)


def run_in_child(app: Flask, settings: Settings, model: ScriptedModel, cut_at: int | None) -> Run:
    agent = factories.agent("twice said", "Twice said ")
    memories = factories.ledger(agent, *[25] * 14)
    session = RefinementSession.queue(agent, "cli")
    run = Run(agent, session)
    db.session.commit()
    script(model, [memory.id for memory in memories])
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        in_child(app, settings, run.session_id, cut_at, writing)
    os.close(writing)
    with os.fdopen(reading) as told:
        run.points = int(told.read() or 0)
    os.waitpid(child, 0)
    wait_until_its_connections_are_gone()
    return run


def script(model: ScriptedModel, ids: list[int]) -> None:
    model.forget()
    model.say("Yes.")
    model.call("update", id=ids[0], content="tightened, but the same moment")
    model.calls(
        {"action": "delete", "id": ids[1]},
        {"action": "consolidate", "ids": [ids[2], ids[3]], "content": "both of them " * 12},
    )
    model.call("protect", id=ids[4])
    model.call("delete", id=ids[5])
    model.call("complete", summary="four changes")


def in_child(
    app: Flask, settings: Settings, session_id: uuid.UUID, cut_at: int | None, writing: int
) -> None:
    try:
        with app.app_context():
            os.environ["PGAPPNAME"] = CHILD
            db.engine.dispose(close=False)
            points = cutting(cut_at)
            refine(session_id, settings)
            os.write(writing, str(points()).encode())
    except BaseException as fault:
        os.write(2, f"{type(fault).__name__}: {fault}\n".encode())
    finally:
        # pytest must not run on here, whatever happened and whoever handles other signals
        os.kill(os.getpid(), signal.SIGKILL)


def cutting(cut_at: int | None) -> Callable[[], int]:
    """End this process at the ``cut_at``-th point; return how many points there were so far."""
    passed = 0

    def point(*_: Any, **__: Any) -> None:
        nonlocal passed
        if passed == cut_at:
            os.kill(os.getpid(), signal.SIGKILL)
        passed += 1

    dialect = db.engine.dialect
    dialect.do_commit = between(dialect.do_commit, point)
    requests.Session.send = between(requests.Session.send, point)  # type: ignore[method-assign]
    return lambda: passed


def between(action: Callable[..., Any], point: Callable[[], None]) -> Callable[..., Any]:
    def with_points(*args: Any, **kwargs: Any) -> Any:
        point()
        result = action(*args, **kwargs)
        point()
        return result

    return with_points


# -- what must hold ---------------------------------------------------------------------------


def check_in_step(run: Run, point: int) -> None:
    with one_reading():
        agent = db.session.get_one(Agent, run.agent_id)
        assert verify_agent(agent).problem is None, f"cut at point {point}"
        recorded = {
            memory["id"]
            for record in db.session.scalars(
                select(AuditLog).where(AuditLog.agent_id == run.agent_id)
            )
            for memory in record.data.get("memories", [])
        }
        for memory in memories_of(run.agent_id):
            if memory.id not in recorded:
                assert state(memory) == run.before[memory.id], f"an edit without record, {point}"
        check_figures(run, point)


def check_figures(run: Run, point: int) -> None:
    session = run.session()
    edits = db.session.scalars(
        select(AuditLog.action).where(
            AuditLog.session_id == run.session_id, AuditLog.action.in_(EDITS)
        )
    ).all()
    mutating = ("consolidate", "update", "delete")
    mutations = sum(action.removeprefix("memory_refinement_") in mutating for action in edits)
    entries = db.session.scalars(
        select(SessionEntry.counting_tokens).where(SessionEntry.session_id == run.session_id)
    ).all()
    assert session.mutation_count == mutations, f"cut at point {point}"
    if session.is_live:
        assert session.removed_tokens == (session.mass_before or 0) - sum(entries)
    else:
        assert entries == []
    assert session.removed_tokens <= session.removable_tokens
    kept = sum(
        memory.token_estimate
        for memory in memories_of(run.agent_id)
        if memory.memory_type == "core" and not memory.discarded
    )
    assert session.mass_before is None or kept >= session.mass_before - session.removable_tokens


def end_as_the_sweeper_would(run: Run) -> None:
    session = run.session()
    if session.status == "queued":
        session.request_stop()
    elif session.status == "running":
        factories.fall_silent(session)
        assert session.end_if_lost()
        expected = "incomplete" if session.mutation_count else "failed"
        assert session.status == expected
    db.session.commit()
    assert not session.is_live


# -- help -------------------------------------------------------------------------------------


def memories_of(agent_id: int) -> list[AgentMemory]:
    return list(
        db.session.scalars(
            select(AgentMemory)
            .where(AgentMemory.agent_id == agent_id)
            .execution_options(populate_existing=True)
        )
    )


def state(memory: AgentMemory) -> dict[str, Any]:
    return {**memory.image(), "row_digest": memory.row_digest}


@contextmanager
def one_reading() -> Iterator[None]:
    db.session.commit()
    yield
    db.session.commit()


def wait_until_its_connections_are_gone() -> None:
    """The server rolls back what a dead process had open, as soon as it notices."""
    theirs = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :child")
    deadline = time.monotonic() + 20
    while db.session.scalar(theirs, {"child": CHILD}):
        db.session.rollback()
        assert time.monotonic() < deadline, "the server did not notice that its client is gone"
        time.sleep(0.002)
    db.session.rollback()
