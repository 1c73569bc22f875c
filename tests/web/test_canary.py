"""What a memory or a prompt says is on no page, in no header, no export and no error."""

import json

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import Agent, AuditLog, RefinementSession
from refine.models.agent import configuring
from tests import factories, sql
from tests.web.conftest import Browser, SignedIn, person
from tests.web.crawling import CANARY, PURPOSE, crawl, kind_of, sing


@pytest.fixture
def agent(app: Flask) -> Agent:
    """An agent all of whose own words are the canary's."""
    owner = factories.agent(name="Ada", model_id="test/ada")
    factories.endpoint(owner.account)
    sing(owner)
    configuring.author(owner, "name", "Ada the second")
    db.session.commit()
    return owner


@pytest.fixture
def dashboard(agent: Agent, signed_in: SignedIn) -> Browser:
    return signed_in(person(site_admin=True))


def test_no_reachable_page_shows_content(dashboard):
    pages = dict(crawl(dashboard))

    assert [url for url, said in pages.items() if CANARY in said.lower()] == []
    assert {kind_of(url) for url, said in pages.items() if PURPOSE in said} == {"/access/0?"}
    kinds = {kind_of(url).partition("?")[0] for url in pages}
    assert kinds >= {
        *("/", "/access", "/access/0", "/access/new", "/accounts", "/ops", "/profile"),
        *("/agents", "/agents/0", "/agents/0/ledger", "/agents/0/settings", "/agents/0/tasks"),
        *("/audit", "/audit/0", "/audit/export.jsonl"),
        *(
            "/deliveries",
            "/schedule",
            "/sessions",
            "/sessions/0",
            "/sessions/0/undo",
            "/tokens",
            "/users",
        ),
    }


def test_the_canary_is_really_stored(agent):
    records = factories.records(agent)

    hidden = [record for record in records if CANARY in json.dumps(record.sealed).lower()]

    assert {record.action for record in hidden} >= {
        "agent_settings_update",
        "memory_constitutional_toggle",
        "memory_discarded",
        "memory_refinement_complete",
        "memory_refinement_consolidate",
        "memory_refinement_delete",
        "memory_refinement_update",
        "memory_saved",
    }


def test_no_record_or_session_page_shows_content(agent, dashboard):
    records = [f"/audit/{record.id}" for record in factories.records(agent)]
    ids = db.session.scalars(db.select(RefinementSession.id)).all()
    sessions = [f"/sessions/{id_}" for id_ in ids]

    answers = [dashboard.get(url) for url in records + sessions]

    assert {answer.status_code for answer in answers} == {200}
    assert not [answer.request.path for answer in answers if CANARY in answer.text.lower()]


def test_no_answer_to_an_action_shows_content(agent, dashboard):
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


def test_a_conflicting_undo_shows_no_content(agent, dashboard):
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


def test_an_internal_error_hides_its_message(agent, dashboard, caplog):
    record = factories.records(agent)[-1]
    image = {"created_at": "", "token_estimate": CANARY}
    broken = {"memories": [{"id": 1, "after": image}]}
    sql.tamper(f"UPDATE audit_logs SET data = '{json.dumps(broken)}' WHERE id = {record.id}")

    answer = dashboard.get(f"/audit/{record.id}")

    assert answer.status_code == 500
    assert "Internal error" in answer.text
    assert "'fault': 'ValueError'" in caplog.text
    assert CANARY not in f"{answer.headers}{answer.text}{caplog.text}".lower()
