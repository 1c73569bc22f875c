"""`refine doctor` and `refine tick`."""

import json
import re
import subprocess
from datetime import datetime, timedelta
from functools import partial

import pytest
from flask import Flask
from redis import Redis

from refine import clock
from refine.extensions import db
from refine.models import Account, Agent, PeriodicWork, RefinementSession
from tests import factories, sql
from tests.cli.conftest import Run
from tests.commands import UNUSED_PORT
from tests.mail_server import MailServer
from tests.scripted_model import ScriptedModel

NOWHERE = f"127.0.0.1:{UNUSED_PORT}"
FAR_AWAY = datetime.fromisoformat("2999-01-01T00:00Z")


@pytest.fixture
def run(run: Run, redis: Redis, model: ScriptedModel) -> Run:
    """Run a command of an installation with Redis and a provider."""
    return partial(run, OPENROUTER_BASE_URL=model.base_url)


@pytest.fixture
def account(app: Flask) -> Account:
    """An account whose next slot is far away."""
    made = factories.account(schedule="0 0 1 1 *", next_due_at=FAR_AWAY)
    db.session.commit()
    return made


@pytest.fixture
def agent(account: Account) -> Agent:
    owner = factories.agent(account=account)
    factories.ledger(owner, *[25] * 19)
    factories.memory(owner, "the canary sings at dawn")
    db.session.commit()
    return owner


def is_due(agent: Agent) -> None:
    agent.account.next_due_at = clock.now() - timedelta(minutes=1)
    db.session.commit()


def test_tick_prints_what_it_did(agent, run):
    is_due(agent)

    done, again = run("tick"), run("tick")

    assert (done.returncode, done.stderr) == (0, "")
    assert (done.stdout, again.stdout) == (
        "tick: 1 queued, 1 announced\n",
        "tick: nothing was due\n",
    )


def test_tick_without_redis_queues_sessions_but_fails(agent, run):
    is_due(agent)

    done = run("tick", REDIS_URL=f"redis://{NOWHERE}/0")

    session = RefinementSession.live_of(agent)
    warnings = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1
    assert re.fullmatch(r"tick: 1 queued, \d faults?\n", done.stdout)
    assert {line["fault"] for line in warnings} == {
        "Redis does not answer at REDIS_URL; start it, or fix REDIS_URL (ConnectionRefusedError)"
    }
    assert session is not None
    assert session.status == "queued"


def test_services_need_an_installation(tmp_path, monkeypatch, run_under):
    monkeypatch.chdir(tmp_path)

    for command in ("worker", "clock", "tick", "doctor", "agent list"):
        done = run_under({}, *command.split())

        assert (done.returncode, done.stdout) == (1, ""), command
        assert done.stderr.startswith(f"refine: no installation found in {tmp_path}/.refine;")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def healthy(agent: Agent) -> Agent:
    """An agent of an installation without problems."""
    PeriodicWork.note("tick", clock.now())
    PeriodicWork.note("worker", clock.now())
    db.session.commit()
    return agent


def found(done: "subprocess.CompletedProcess[str]") -> dict[str, tuple[str, str]]:
    """Return the mark (ok or fix) and the text of each check."""
    parted = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    return {name: (mark, words) for mark, name, words in parted}


@pytest.mark.parametrize(
    ("change", "name", "says"),
    [
        (
            "DELETE FROM periodic_work WHERE event = 'tick'",
            "clock",
            "the clock has never run; start `refine clock`",
        ),
        (
            "UPDATE periodic_work SET at = now() - interval '6 minutes' WHERE event = 'tick'",
            "clock",
            "the last tick was 6 minutes ago; start `refine clock`",
        ),
        (
            "UPDATE periodic_work SET at = now() + interval '6 minutes' WHERE event = 'tick'",
            "clock",
            "the last tick is in the future; check that the machines'",
        ),
        (
            "UPDATE accounts SET next_due_at = now() - interval '61 minutes'",
            "schedule",
            "1 account with a missed run; check the clock",
        ),
    ],
)
def test_doctor_reports_what_does_not_run(healthy, run, change, name, says):
    sql.run(change)

    done = run("doctor")

    faulty = [each for each, (mark, _) in found(done).items() if mark == "fix"]
    assert (done.returncode, done.stderr, faulty) == (1, "", [name])
    assert found(done)[name][1].startswith(says)


@pytest.mark.parametrize(
    ("has_worker", "minutes", "check"),
    [
        (False, 0, ("fix", "no worker, and 1 session waiting; start `refine worker`")),
        (True, 121, ("fix", "1 session waiting, the oldest for 2 hours; start more workers")),
        (True, 0, ("ok", "1 session waiting")),
    ],
)
def test_doctor_reports_sessions_that_no_worker_takes(healthy, run, has_worker, minutes, check):
    if not has_worker:
        sql.run("DELETE FROM periodic_work WHERE event = 'worker'")
    RefinementSession.queue(healthy, "cli", at=clock.now() - timedelta(minutes=minutes, seconds=1))

    assert found(run("doctor"))["queue"] == check


def test_doctor_finds_nothing_to_fix(healthy, run):
    done = run("doctor")

    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["ok", "settings"],
        ["ok", "database"],
        ["ok", "migrations"],
        ["ok", "keys"],
        ["ok", "redis"],
        ["ok", "server"],
        ["ok", "eviction"],
        ["ok", "rotation"],
        ["ok", "schedule"],
        ["ok", "queue"],
        ["ok", "workers"],
        ["ok", "clock"],
        ["ok", "time"],
        ["ok", "time"],
        ["warn", "verification"],
        ["warn", "role"],
        ["ok", "mail"],
        ["ok", "signing"],
        ["ok", "https"],
        ["ok", "provider"],
    ]


HTTPS = {"PUBLIC_URL": "https://refine.example.org"}


@pytest.mark.parametrize(
    ("variables", "name", "mark", "says"),
    [
        ({"REDIS_URL": f"redis://:secret-2@{NOWHERE}/0"}, "redis", "fix", "Redis does not answer"),
        (
            {"DATABASE_URL": f"postgresql://u:secret-1@{NOWHERE}/x"},
            "database",
            "fix",
            "nothing listens at the address in DATABASE_URL",
        ),
        ({"REFINE_ENCRYPTION_KEYS": "A" * 43 + "="}, "keys", "fix", "REFINE_ENCRYPTION_KEYS does"),
        (HTTPS, "proxies", "fix", "PUBLIC_URL is https but REFINE_PROXIES is 0"),
        ({**HTTPS, "REFINE_PROXIES": "1"}, "proxies", "ok", "1 proxy trusted"),
        (HTTPS, "https", "ok", "nothing leaves this machine in plain http"),
        ({"PUBLIC_URL": "http://refine.example.org"}, "https", "warn", "PUBLIC_URL: plain http"),
        (
            {"OPENROUTER_BASE_URL": "http://models.invalid/v1", "OPENROUTER_API_KEY": ""},
            "https",
            "warn",
            "OPENROUTER_BASE_URL: plain http beyond this machine; use https",
        ),
        (
            {"OPENROUTER_API_KEY": ""},
            "provider",
            "ok",
            "no OPENROUTER_API_KEY: only rehearsal/ models of the demo account answer",
        ),
        (
            {"OPENROUTER_API_KEY": "", "REFINE_REHEARSAL": "1"},
            "provider",
            "ok",
            "no OPENROUTER_API_KEY: only rehearsal/ models answer",
        ),
        ({"SECRET_KEY": "secret-" + "x" * 24}, "signing", "warn", "SECRET_KEY is shorter than 32"),
        (
            {"REFINE_MAIL_URL": f"smtp://u:secret-4@{NOWHERE}", "REFINE_MAIL_FROM": "a@b.org"},
            "mail",
            "fix",
            "the server in REFINE_MAIL_URL takes no mail (ConnectionRefusedError)",
        ),
        ({}, "role", "warn", "the role in DATABASE_URL is a superuser, who can bypass every"),
    ],
)
def test_doctor_judges_the_environment(healthy, run, variables, name, mark, says):
    done = run("doctor", **{"OPENROUTER_API_KEY": "secret-3", **variables})

    checks = found(done)
    assert checks[name][0] == mark
    assert checks[name][1].startswith(says)
    assert done.returncode == any(each == "fix" for each, _ in checks.values())
    output = done.stdout + done.stderr
    assert not [word for word in ("secret-", "canary", "A" * 43) if word in output]


def test_doctor_sends_a_mail_as_a_test(healthy, run):
    with MailServer() as server:
        mail = {"REFINE_MAIL_URL": server.url, "REFINE_MAIL_FROM": "refine@example.org"}
        answers = run("doctor", **mail), run("doctor", "--mail", "you@example.org", **mail)

        assert [found(each)["mail"] for each in answers] == [
            ("ok", "the mail server answers"),
            ("ok", "a test is on its way to you@example.org"),
        ]
        assert [each["To"] for each in server.received] == ["you@example.org"]


def test_doctor_sends_no_mail_where_it_asks_a_model(run):
    done = run("doctor", "--ask", "rehearsal/any", "--mail", "you@example.org")

    assert done.returncode == 2
    assert "send the test mail without it" in done.stderr
