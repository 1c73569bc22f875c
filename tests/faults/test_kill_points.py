"""Kill a session's process before and after every commit and every HTTP call.

A process that dies anywhere between BEGIN and COMMIT leaves the same database behind, so the cut
just before the commit stands for the entire transaction, and no rollback needs a cut of its own.
"""

import os
import signal
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import requests
from flask import Flask
from sqlalchemy import text

from refine.extensions import db
from refine.models import RefinementSession
from refine.refinement.loop import refine
from refine.settings import Settings
from tests import factories
from tests.faults.invariants import Before, breaches, sweep
from tests.scripted_model import ScriptedModel

CHILD = "refine-cut"
PARTS = 8


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in range(1, PARTS))]
)
def test_a_session_cut_anywhere_leaves_edits_and_records_in_step(app, environ, model, part):
    settings = Settings.from_environ({**environ, "OPENROUTER_BASE_URL": model.base_url})
    whole = run_in_child(app, settings, model, cut_at=None)
    assert whole.session().status == "completed"
    assert whole.session().mutation_count == 4
    assert whole.points > 60

    for point in range(part, whole.points, PARTS):
        cut = run_in_child(app, settings, model, cut_at=point)

        assert not cut.points, f"the session was not cut at point {point}"
        assert breaches(cut.before, at_rest=False) == [], f"cut at point {point}"
        end_as_the_sweeper_would(cut)
        assert breaches(cut.before) == [], f"cut at point {point}, and ended"


class Run:
    """One session in a process of its own; ``points`` only where it came to its end."""

    def __init__(self, before: Before, session_id: uuid.UUID) -> None:
        self.before = before
        self.session_id = session_id
        self.points = 0

    def session(self) -> RefinementSession:
        return db.session.get_one(RefinementSession, self.session_id, populate_existing=True)


def end_as_the_sweeper_would(run: Run) -> None:
    if run.session().status == "queued":
        run.session().request_stop()
        db.session.commit()
    sweep(run.before.agent_id)
    session = run.session()
    assert not session.is_live
    if session.error_kind == "worker_lost":
        assert session.status == ("incomplete" if session.mutation_count else "failed")


def run_in_child(app: Flask, settings: Settings, model: ScriptedModel, cut_at: int | None) -> Run:
    agent = factories.agent("twice said", "Twice said ")
    memories = factories.ledger(agent, *[25] * 14)
    db.session.commit()
    before = Before.of(agent)
    run = Run(before, RefinementSession.queue(agent, "cli").id)
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
    model.call("update", id=ids[0], content="it is the same, as it was")
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
            for calls in (2, 0):  # a second worker continues
                shift(session_id, settings, calls)
            os.write(writing, str(points()).encode())
    except BaseException as fault:
        os.write(2, f"{type(fault).__name__}: {fault}\n".encode())
    finally:
        # pytest must not run on here, whatever happened and whoever handles other signals
        os.kill(os.getpid(), signal.SIGKILL)


def shift(session_id: uuid.UUID, settings: Settings, calls: int) -> None:
    """The time of a worker, which is asked to stop after so many tool calls; 0: never."""
    seen: list[str] = []
    refine(
        session_id,
        settings,
        observe=lambda happened: seen.append(happened.kind),
        is_stopping=lambda: 0 < calls <= seen.count("tool_call"),
    )


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


def wait_until_its_connections_are_gone() -> None:
    """The server rolls back what a dead process had open, as soon as it notices."""
    theirs = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :child")
    deadline = time.monotonic() + 20
    while db.session.scalar(theirs, {"child": CHILD}):
        db.session.rollback()
        assert time.monotonic() < deadline, "the server did not notice that its client is gone"
        time.sleep(0.002)
    db.session.rollback()
