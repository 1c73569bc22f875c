"""Lists for people and, with ``--json``, for programs."""

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from refine.extensions import db
from refine.models import Account, Agent, RefinementSession
from tests import factories
from tests.commands import refine

NOON = datetime(2026, 3, 4, 12, 30, tzinfo=UTC)
DAY = timedelta(days=1)
EMPTY = {
    "agent list": "no agents; `refine agent add NAME --account SLUG --model ID` adds one",
    "session list": "no sessions",
    "sweep": "no agents",
}


def rows(done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    """What a command with ``--json`` listed."""
    assert (done.returncode, done.stderr) == (0, "")
    listed: list[dict[str, Any]] = json.loads(done.stdout)
    return listed


@pytest.fixture
def agents(demo: Account) -> list[Agent]:
    """An agent of the demo account with a failed session, and one elsewhere with a queued one."""
    ada = factories.agent("a memory of the canary", account=demo, name="Ada")
    eve = factories.agent(account=factories.account(slug="other"), name="Eve")
    failed = RefinementSession.queue(ada, "manual", at=NOON)
    failed.finish("failed", "the provider is away", error_kind="unreachable", at=NOON)
    RefinementSession.queue(eve, "cli", at=NOON + 2 * DAY)
    db.session.commit()
    return [ada, eve]


@pytest.mark.parametrize("command", EMPTY)
def test_nothing_to_list_is_a_sentence_or_an_empty_array(app, environ, command):
    said = refine(*command.split(), environ=environ)
    listed = refine(*command.split(), "--json", environ=environ)

    assert (said.returncode, said.stdout) == (0, f"{EMPTY[command]}\n")
    assert rows(listed) == []


def test_sessions_are_listed_newest_first(agents, environ):
    waiting, failed = rows(refine("session", "list", "--json", environ=environ))
    table = refine("session", "list", environ=environ).stdout.splitlines()

    assert (waiting["agent"], waiting["status"], waiting["trigger"]) == ("Eve", "queued", "cli")
    assert (waiting["account"], waiting["agent_id"]) == ("other", agents[1].id)
    assert failed["created_at"] == failed["ended_at"] == "2026-03-04T12:30:00.000000+00:00"
    assert (failed["end_reason"], failed["error_kind"]) == ("the provider is away", "unreachable")
    assert failed["cost_usd"] in ("0", "0.000000")
    assert waiting["ended_at"] is None
    assert table[0].split() == [
        *("id", "agent", "account", "status", "trigger", "requested"),
        *("saved", "changes", "cost", "reason"),
    ]
    assert [line.split()[:4] for line in table[1:]] == [
        [waiting["id"], "Eve", "other", "queued"],
        [failed["id"], "Ada", "demo", "failed"],
    ]
    assert "2026-03-04 12:30Z" in table[2]


@pytest.mark.parametrize(
    ("narrowed", "names"),
    [
        (("--account", "DEMO"), ["Ada"]),
        (("--agent", "eve"), ["Eve"]),
        (("--status", "failed"), ["Ada"]),
        (("--trigger", "cli"), ["Eve"]),
        (("--since", "2026-03-05"), ["Eve"]),
        (("--since", "2026-03-04T12:30"), ["Eve", "Ada"]),
        (("--until", "2026-03-04T12:30"), []),
        (("--since", "2026-03-04T14:00+02:00", "--until", "2026-03-05"), ["Ada"]),
        (("--account", "demo", "--status", "queued"), []),
    ],
)
def test_sessions_are_narrowed(agents, environ, narrowed, names):
    listed = rows(refine("session", "list", "--json", *narrowed, environ=environ))

    assert [session["agent"] for session in listed] == names


def test_a_session_is_shown_with_its_steps(agents, environ):
    session = db.session.scalars(db.select(RefinementSession).filter_by(status="failed")).one()
    session.stats = {**session.stats, "refused_doubtful": 2}
    db.session.commit()

    shown = refine("session", "show", str(session.id), environ=environ)
    as_json = refine("session", "show", str(session.id), "--json", environ=environ)

    told = json.loads(as_json.stdout)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert [step["action"] for step in told["steps"]] == [
        "refinement_queued",
        "memory_refinement_failed",
    ]
    assert (told["threshold"], told["stats"]["deleted"]) == ("0.7500", 0)
    assert told["stats"]["refused_doubtful"] == 2
    assert "2 refused for lost words" in shown.stdout
    assert re.search("^reason +the provider is away$", shown.stdout, re.MULTILINE)
    assert "memory_refinement_failed" in shown.stdout.splitlines()[-1]


def test_agents_are_listed_for_programs(agents, environ):
    ada, eve = rows(refine("agent", "list", "--json", environ=environ))
    failed = rows(refine("agent", "list", "--state", "failed", "--json", environ=environ))
    first = refine("agent", "list", "--limit", "1", "--json", environ=environ)

    assert (ada["name"], ada["account"], ada["model_id"]) == ("Ada", "demo", "test/model")
    assert (ada["core_memories"], ada["core_token_budget"]) == (1, 5000)
    assert (ada["active"], ada["paused"], ada["over_budget"]) == (True, False, False)
    assert ada["last_session_status"] == "failed"
    assert [one["id"] for one in failed] == [ada["id"]]
    assert first.stderr == "refine: these are the first 1; --limit lists more\n"
    assert eve["id"] == agents[1].id


def test_an_agent_is_shown_without_content(agents, environ):
    shown = refine("agent", "show", "ADA", environ=environ)
    told = json.loads(refine("agent", "show", "ADA", "--json", environ=environ).stdout)

    assert (shown.returncode, shown.stderr) == (0, "")
    assert re.search("^refinement threshold +0.75$", shown.stdout, re.MULTILINE)
    assert "canary" not in shown.stdout
    assert (told["id"], told["erased"], told["reflects_daily"]) == (agents[0].id, False, False)
