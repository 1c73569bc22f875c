"""PostgreSQL busy, without room, or away: a clear answer, and nothing half done."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

from refine.extensions import CONNECT_ARGS, db
from refine.models import Account, Agent, ApiToken, User
from refine.models.runs.run import LOST_AFTER
from refine.running.run_worker import INTERVAL_SECONDS
from tests import factories
from tests.api.conftest import Program, bearing, refusing_memories
from tests.cli.conftest import row_counts
from tests.commands import UNUSED_PORT, refine
from tests.web.conftest import Browser, signed_in_browser, words_of

NEW = {"content": "a new memory", "memory_type": "core"}


@pytest.fixture
def agent(account: Account) -> Agent:
    made = factories.agent("a memory", account=account, name="Ada", model_id="rehearsal/x")
    db.session.commit()
    return made


@pytest.fixture
def desk(app: Flask, admin: User) -> Browser:
    return signed_in_browser(app, admin)


@pytest.fixture
def program(app: Flask, agent: Agent) -> Program:
    _, secret = ApiToken.mint(account=agent.account, agent=agent)
    db.session.commit()
    return bearing(app, secret)


@contextmanager
def nobody_waits_long_for_a_lock() -> Iterator[None]:
    def hurry(connection: Connection) -> None:
        connection.exec_driver_sql("SET LOCAL lock_timeout = '50ms'")

    event.listen(Engine, "begin", hurry)
    try:
        yield
    finally:
        event.remove(Engine, "begin", hurry)


@pytest.fixture
def held(agent: Agent) -> Iterator[None]:
    """Somebody else holds the agent."""
    agent_id = agent.id
    db.session.rollback()
    with nobody_waits_long_for_a_lock(), db.engine.connect() as elsewhere:
        elsewhere.exec_driver_sql(f"SELECT 1 FROM agents WHERE id = {agent_id} FOR UPDATE")
        yield


def test_a_locked_row_is_reported_as_busy_and_nothing_is_changed(
    desk: Browser, program: Program, agent: Agent, environ: dict[str, str], held: None
) -> None:
    before = row_counts()
    page = desk.submit(f"/agents/{agent.id}/sessions")
    answer = program.post("/memories", json=NEW)
    done = refine("agent", "set", "Ada", "--paused", environ=environ)

    assert (page.status_code, answer.status_code, done.returncode) == (503, 503, 1)
    assert "Refine is busy Another request is changing the same rows" in words_of(page.text)
    assert answer.json["type"] == "urn:refine:problem:busy"
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert done.stderr.startswith("refine: the database is busy. Another request")
    for said in (words_of(page.text), answer.json["detail"], done.stderr):
        assert "Nothing was changed. Try again in a moment." in said
    assert [each.headers["Retry-After"] for each in (page, answer)] == ["5", "5"]
    assert row_counts() == before


def test_a_full_disk_leaves_nothing_half_done_and_work_resumes_when_there_is_room(
    desk: Browser, program: Program, agent: Agent, environ: dict[str, str], tmp_path: Path
) -> None:
    program.get("/context")  # a token's first use is a record
    before = row_counts()
    file = tmp_path / "memories.json"
    file.write_text('[{"id": "1", "memory": "imported"}]')
    with refusing_memories("53100"):
        answer = program.post("/memories", json=NEW)
        done = refine("import", "Ada", str(file), "--format", "mem0", environ=environ)
        # each page reads; none needs room
        pages = [desk.get(path).status_code for path in ("/", "/agents", "/sessions", "/ops")]
    during = row_counts()
    after = program.post("/memories", json=NEW)

    assert (answer.status_code, answer.json["type"]) == (503, "urn:refine:problem:database-full")
    assert "out of disk space or memory" in answer.json["detail"]
    assert pages == [200] * 4
    assert done.returncode == 1, done
    assert done.stderr.startswith(
        "refine: the database is full. The database is out of disk space or memory"
    )
    assert during == before
    assert after.status_code == 201


def test_a_server_that_vanished_without_a_word_is_given_up_before_a_lease_is_lost() -> None:
    noticed_after = timedelta(milliseconds=CONNECT_ARGS["tcp_user_timeout"])

    assert noticed_after < LOST_AFTER - timedelta(seconds=INTERVAL_SECONDS)


@pytest.mark.parametrize(
    "arguments",
    [("agent", "list"), ("run", "Ada"), ("run", "Ada", "--enqueue"), ("sweep",), ("reflect", "Ada")]
    + [("tick",), ("worker", "--burst"), ("audit", "verify"), ("session", "list")],
    ids=" ".join,
)
def test_a_command_says_in_one_line_that_the_database_is_away(
    environ: dict[str, str], arguments: tuple[str, ...]
) -> None:
    away = {**environ, "DATABASE_URL": f"postgresql://127.0.0.1:{UNUSED_PORT}/x"}

    done = refine(*arguments, environ=away)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "refine: nothing listens at the address in DATABASE_URL; start PostgreSQL, or fix host and "
        "port\n"
    )
