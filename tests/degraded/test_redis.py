"""Redis down, frozen, full or a replica: pages work, what is asked for waits in the database."""

import re
import time
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from flask import Flask
from sqlalchemy import select

from refine.extensions import db
from refine.jobs.queue import RUNS
from refine.jobs.tick import run_tick
from refine.models import AccessGrant, Account, Agent, ApiToken, MemoryTask, RefinementSession
from tests import factories
from tests.api.conftest import bearing
from tests.commands import refine
from tests.degraded.breaking import FAULTS, BreakableRedis, Fault
from tests.web.conftest import Browser, words_of

Mend = Callable[[], None]

every_fault = pytest.mark.parametrize("fault", FAULTS)

PAGES = (
    *("/", "/agents", "/sessions", "/schedule", "/audit", "/usage", "/access", "/tokens"),
    *("/users", "/accounts", "/profile", "/ops", "/healthz", "/readyz", "/metrics"),
)
# Redis is waited for two seconds at a time, and a page asks it once or twice.
LONGEST_SECONDS = 10

TERMS = {
    "reason": "failed_session",
    "purpose": "to see why its last session failed",
    "duration_minutes": "30",
}


def agents_of(account: Account, count: int, model_id: str = "rehearsal/x") -> list[Agent]:
    made = [
        factories.agent(
            *(factories.text_of(25) for _ in range(4)),
            account=account,
            name=f"Agent {number}",
            model_id=model_id,
            core_token_budget=10,
        )
        for number in range(count)
    ]
    db.session.commit()
    return made


def runs() -> list[RefinementSession | MemoryTask | AccessGrant]:
    db.session.rollback()
    kinds = (RefinementSession, MemoryTask, AccessGrant)
    return [each for kind in kinds for each in db.session.scalars(select(kind))]


def in_redis(redis: BreakableRedis) -> set[str]:
    with redis.connection() as connection:
        return {id_.decode() for id_ in connection.lrange(f"rq:queue:{RUNS}", 0, -1)}


@every_fault
def test_every_page_works_within_seconds(
    dashboard: Browser, account: Account, broken: Mend, fault: Fault
) -> None:
    agents_of(account, 1)
    seconds, statuses = {}, {}

    for path in PAGES:
        began = time.monotonic()
        statuses[path] = dashboard.get(
            path, headers={"Authorization": "Bearer a token"}
        ).status_code
        seconds[path] = time.monotonic() - began

    assert {path for path, status in statuses.items() if status != 200} == {"/readyz"}
    assert "Redis" in dashboard.get("/readyz").json["redis"]
    assert "Redis" in words_of(dashboard.get("/ops").text)
    assert max(seconds.values()) < LONGEST_SECONDS


@pytest.mark.parametrize("fault", ["frozen", pytest.param("full", marks=pytest.mark.nightly)])
def test_requested_sessions_wait_and_run_when_redis_is_back(
    dashboard: Browser,
    its_app: Flask,
    its_environ: dict[str, str],
    account: Account,
    breakable: BreakableRedis,
    broken: Mend,
) -> None:
    clicked, chosen, asked, read, queued, retried, *_ = agents = agents_of(account, 7)
    elsewhere = agents_of(factories.account(), 1, "test/x")
    failed = factories.session(retried)
    failed.give_up("the provider could not be reached", "timeout")
    _, secret = ApiToken.mint(account=account, agent=asked)
    db.session.commit()
    program = bearing(its_app, secret)

    answers = [
        program.post("/sessions"),
        program.post("/conversations", json={"messages": [{"role": "user", "content": "Hello."}]}),
        dashboard.submit(f"/access/new?agent={read.id}", TERMS),
    ]
    said = [
        words_of(dashboard.submit(f"/agents/{clicked.id}/sessions", follow_redirects=True).text),
        many_refined(dashboard, chosen),
    ]
    done = [
        refine("run", str(queued.id), "--enqueue", environ=its_environ),
        refine("run", str(retried.id), "--enqueue", environ=its_environ),
    ]
    done += [refine("sweep", environ=its_environ)]

    assert [answer.status_code for answer in answers] == [202, 202, 303]
    assert "Waiting for a worker" in said[0]
    assert "1 agent asked for a session" in said[1]
    assert [each.returncode for each in done] == [0, 0, 0], done
    waiting = [run for run in runs() if run.is_waiting]
    assert {run.agent_id for run in waiting} == {agent.id for agent in [*agents, *elsewhere]}

    broken()
    with its_app.app_context():
        run_tick()
        db.session.remove()

    asked_for = {str(run.id) for run in waiting if not run.is_automatic}
    assert asked_for <= in_redis(breakable)
    worked = refine("worker", "--burst", environ=its_environ)
    assert worked.returncode == 0
    assert {run.is_live for run in runs() if str(run.id) in asked_for} == {False}


def many_refined(dashboard: Browser, agent: Agent) -> str:
    """What the list says after an agent was chosen to be refined."""
    form = {"work": "refine", "who": "page", "on_page": str(agent.id)}
    page = dashboard.get(f"/agents/many?{urlencode(form)}").text
    (digest,) = re.findall(r'name="digest" value="(\w+)"', page)
    answer = dashboard.submit("/agents/many", {**form, "digest": digest}, follow_redirects=True)
    return words_of(answer.text)
