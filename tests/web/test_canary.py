"""What a memory or a prompt says is on no page, in no header, no export and no error."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from flask import Flask

from refine import clock
from refine.extensions import db
from refine.models import Agent, AuditLog, RefinementSession
from refine.models.agent import configuring
from refine.models.runs.task import saving
from refine.tools import RefinementTool
from tests import factories, sql
from tests.commands import UNUSED_PORT
from tests.web.conftest import Browser, SignedIn, browser_of, ended_session, person
from tests.web.crawling import CANARY, crawl, kind_of

# What a human wrote is not the agent's: the admins of its account may see why somebody asks.
PURPOSE = "to hear why it fell silent"


@pytest.fixture
def agent(app: Flask) -> Agent:
    """An agent all of whose own words are the canary's."""
    owner = factories.agent(
        name="Ada",
        model_id="test/ada",
        **{
            prompt: f"{CANARY} in the {prompt}"
            for prompt in (
                "system_prompt",
                "reflection_prompt",
                "memory_reflection_prompt",
                "refinement_prompt",
            )
        },
    )
    memories = [factories.memory(owner, f"{CANARY} {factories.text_of(25)}") for _ in range(12)]
    factories.memory(owner, f"{CANARY} in a journal", memory_type="journal")
    admin = person(account=owner.account)
    memories[0].set_constitutional(True, user=admin)
    memories[1].discard(user=admin)
    owner.ledger.remember(f"{CANARY} once more", "core")
    configuring.author(owner, "name", "Ada the second")
    configuring.author(owner, "memory_reflection_prompt", f"{CANARY} reflects")
    factories.grant(owner, purpose=f"{PURPOSE}, and nothing else", reply=f"NO, says {CANARY}")
    edited(owner, memories[2].id, memories[3].id, memories[4].id)
    ended_session(owner, memories[5], summary=f"{CANARY} is gone")
    factories.ended_task(owner, status="failed", reason="it failed", error_kind="timeout")
    factories.extraction(owner, f"{CANARY} in a conversation")
    task = factories.extraction(owner, f"{CANARY} is read", at=clock.now() - timedelta(hours=1))
    assert task.claim()
    assert saving.save(task, f"{CANARY} was heard")
    ended_with(owner, "declined", f"NO, says {CANARY}")
    ended_with(owner, "failed", f"YES, says {CANARY}")
    db.session.commit()
    return owner


def edited(owner: Agent, first: int, second: int, third: int) -> None:
    """A session with one of each edit."""
    session = factories.session(owner)
    tool = RefinementTool(session)
    for action, params in (
        ("consolidate", {"ids": [first, second], "content": f"{CANARY} {factories.text_of(50)}"}),
        ("update", {"id": third, "content": f"{CANARY} tightened " + factories.text_of(22)}),
        ("protect", {"id": third}),
        ("complete", {"summary": f"{CANARY} was merged"}),
    ):
        assert tool.execute(action=action, **params)["type"] != "error"


def ended_with(owner: Agent, status: str, reply: str) -> None:
    session = RefinementSession.queue(owner, "manual")
    session.claim()
    session.consent_reply = reply
    session.finish(status, "so it ended")  # type: ignore[arg-type]
    db.session.commit()


@pytest.fixture
def dashboard(agent: Agent, signed_in: SignedIn) -> Browser:
    return signed_in(person(site_admin=True))


def test_no_reachable_page_shows_content(dashboard: Browser) -> None:
    pages = dict(crawl(dashboard))

    assert [url for url, said in pages.items() if CANARY in said.lower()] == []
    assert {kind_of(url) for url, said in pages.items() if PURPOSE in said} == {"/access/0?"}
    kinds = {kind_of(url).partition("?")[0] for url in pages}
    assert kinds >= {
        "/",
        "/access",
        "/access/0",
        "/access/new",
        "/accounts",
        "/agents",
        "/agents/0",
        "/agents/0/ledger",
        "/agents/0/settings",
        "/agents/0/tasks",
        "/audit",
        "/audit/0",
        "/audit/export.csv",
        "/audit/export.jsonl",
        "/ops",
        "/profile",
        "/schedule",
        "/sessions",
        "/sessions/0",
        "/sessions/0/undo",
        "/tokens",
        "/users",
    }


def test_the_canary_is_really_stored(agent: Agent) -> None:
    records = factories.records(agent)

    hidden = [record for record in records if CANARY in json.dumps(record.sealed).lower()]

    assert {record.action for record in hidden} >= {
        "agent_settings_update",
        "memory_constitutional_toggle",
        "memory_discarded",
        "memory_refinement_complete",
        "memory_refinement_consolidate",
        "memory_refinement_declined",
        "memory_refinement_delete",
        "memory_refinement_failed",
        "memory_refinement_update",
        "memory_saved",
    }


def test_no_record_or_session_page_shows_content(agent: Agent, dashboard: Browser) -> None:
    records = [f"/audit/{record.id}" for record in factories.records(agent)]
    ids = db.session.scalars(db.select(RefinementSession.id)).all()
    sessions = [f"/sessions/{id_}" for id_ in ids]

    answers = [dashboard.get(url) for url in records + sessions]

    assert {answer.status_code for answer in answers} == {200}
    assert not [answer.request.path for answer in answers if CANARY in answer.text.lower()]


def test_a_search_finds_no_content(agent: Agent, dashboard: Browser) -> None:
    answer = dashboard.get("/agents", query_string={"q": "canary"})

    assert "No agents match." in answer.text


def test_no_answer_to_an_action_shows_content(agent: Agent, dashboard: Browser) -> None:
    memory = db.session.scalars(agent.ledger.core()).first()
    assert memory is not None
    path = f"/agents/{agent.id}"

    answers = [
        dashboard.submit(f"{path}/settings", {"core_token_budget": "much"}),
        dashboard.submit(f"{path}/settings", {"core_token_budget": "4000"}, follow_redirects=True),
        dashboard.submit(f"{path}/refinement-prompt/clear", follow_redirects=True),
        dashboard.submit(f"{path}/memories/{memory.id}/constitutional", follow_redirects=True),
        dashboard.submit(f"{path}/sessions", follow_redirects=True),
    ]

    assert [answer.status_code for answer in answers] == [422, 200, 200, 200, 200]
    assert not [answer.request.path for answer in answers if CANARY in answer.text.lower()]


def test_a_conflicting_undo_shows_no_content(agent: Agent, dashboard: Browser) -> None:
    consolidated = db.session.scalars(
        db.select(AuditLog).where(AuditLog.action == "memory_refinement_update")
    ).one()
    memory_id = consolidated.data["memories"][0]["id"]
    dashboard.submit(f"/agents/{agent.id}/memories/{memory_id}/constitutional")

    answers = [
        dashboard.get(f"/sessions/{consolidated.session_id}/undo"),
        dashboard.submit(f"/sessions/{consolidated.session_id}/undo"),
        dashboard.submit(
            f"/sessions/{consolidated.session_id}/undo", {"and_after": "1"}, follow_redirects=True
        ),
    ]

    assert [answer.status_code for answer in answers] == [409, 409, 200]
    assert not [answer.text for answer in answers if CANARY in answer.text.lower()]


def test_no_error_page_shows_content(dashboard: Browser) -> None:
    expected = {"/canary": 404, "/sign-out": 405, "/audit?page=nonsense": 400}

    answers = {path: dashboard.get(path) for path in expected}

    assert {path: answer.status_code for path, answer in answers.items()} == expected
    assert not [path for path, answer in answers.items() if CANARY in answer.text.lower()]


def test_an_internal_error_hides_its_message(
    agent: Agent, dashboard: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    record = factories.records(agent)[-1]
    image = {"created_at": "", "token_estimate": CANARY}
    broken = {"memories": [{"id": 1, "before": None, "after": image}]}
    sql.tamper(f"UPDATE audit_logs SET data = '{json.dumps(broken)}' WHERE id = {record.id}")

    answer = dashboard.get(f"/audit/{record.id}")

    assert answer.status_code == 500
    assert "Internal error" in answer.text
    assert "'fault': 'ValueError'" in caplog.text
    assert CANARY not in f"{answer.headers}{answer.text}{caplog.text}".lower()


def test_a_changed_row_is_reported_without_content(agent: Agent, dashboard: Browser) -> None:
    sql.tamper(f"UPDATE agents SET system_prompt = decode('00ff', 'hex') WHERE id = {agent.id}")

    answer = dashboard.get(f"/agents/{agent.id}/settings")

    assert answer.status_code == 409
    assert f"Agent {agent.id} was changed outside the application" in answer.text
    assert CANARY not in answer.text.lower()


def test_no_page_shows_content_without_the_database(
    dashboard: Browser, with_settings: Callable[..., Flask]
) -> None:
    nowhere = with_settings(DATABASE_URL=f"postgresql://{CANARY}:x@127.0.0.1:{UNUSED_PORT}/x")
    cookie = dashboard.get_cookie("session")
    assert cookie is not None
    cut_off = browser_of(nowhere)
    cut_off.set_cookie("session", cookie.value)

    answer = cut_off.get("/agents")

    assert answer.status_code == 503
    assert "The database cannot be reached" in answer.text
    assert CANARY not in answer.text.lower()
