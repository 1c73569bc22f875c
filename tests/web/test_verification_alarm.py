"""The alarm about verifications: on every page until somebody looked and all is well again."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask
from sqlalchemy import select

from refine.extensions import db
from refine.jobs.verifying import verify_slice
from refine.models import Agent, AuditLog, WrappedKey
from tests import factories, sql
from tests.web.conftest import Browser, said, words_of

DAY = timedelta(days=1)
SAYS = "Audit verification failed."
ACKNOWLEDGE = "Acknowledge"


@pytest.fixture
def agent(app: Flask, dashboard: Browser) -> Agent:
    """An agent with a memory, in a database that is a day old."""
    WrappedKey.platform().created_at = datetime.now(UTC) - DAY
    agent = factories.agent()
    agent.ledger.remember("a memory", "core")
    db.session.commit()
    return agent


def notices_on(browser: Browser, path: str) -> str:
    """The notices over a page, in words."""
    notices = browser.get(path).text.partition('id="notices"')[2].partition('id="alert"')[0]
    return words_of(f"<main {notices}")


def verify(at: datetime) -> None:
    verify_slice(at, time.monotonic() + 60)


def forge(agent: Agent) -> None:
    sql.tamper(f"UPDATE agents SET model_id = 'rehearsal/yes' WHERE id = {agent.id}")


def test_a_failure_is_on_every_page_until_it_was_seen_and_all_is_well_again(
    agent, site_admins, dashboard
):
    original = agent.model_id
    assert SAYS not in dashboard.get("/").text
    forge(agent)
    verify(datetime.now(UTC))

    for page in ("/", "/agents", "/ops", "/profile"):
        assert SAYS in dashboard.get(page).text
    assert f"Agent {agent.id} was changed" in site_admins.get("/ops").text
    assert "Acknowledge failed verification" in site_admins.get("/ops").text
    assert f"Agent {agent.id}" not in dashboard.get("/ops").text
    assert ACKNOWLEDGE not in dashboard.get("/ops").text
    assert dashboard.get("/readyz").json["verification"] == "see /ops"
    assert "refine_verification_failed 1.0" in dashboard.get("/metrics").text

    sql.tamper(f"UPDATE agents SET model_id = '{original}' WHERE id = {agent.id}")
    verify(datetime.now(UTC) + DAY)
    assert SAYS in dashboard.get("/").text  # nobody has looked

    assert site_admins.submit("/ops/verification/seen").status_code == 303
    assert SAYS not in dashboard.get("/").text
    assert "refine_verification_failed 0.0" in dashboard.get("/metrics").text


def test_the_alarm_leads_to_memory_and_agent_by_name(agent, site_admins, dashboard, signed_in):
    agent.name = "Beacon Triage"
    memory = db.session.scalars(agent.ledger.core()).one()
    own_admin = factories.user(account=agent.account)
    db.session.commit()
    own = signed_in(own_admin)
    sql.tamper(f"UPDATE agent_memories SET token_estimate = 9 WHERE id = {memory.id}")
    verify(datetime.now(UTC))
    page = f"/agents/{agent.id}/memories/{memory.id}"
    found = f"Memory #{memory.id} of Beacon Triage was changed in the database, not by Refine."
    advice = "find out who can write to the database, and restore the row from a backup"

    for browser in (site_admins, own):
        assert f"{SAYS} {found}" in notices_on(browser, "/")
        assert f'href="{page}"' in browser.get("/").text
        assert f"{found} Refine does not trust it" in said(browser, f"/agents/{agent.id}")
        assert "This memory was changed in the database, not by Refine." in said(browser, page)
        assert advice in said(browser, page)
    assert advice in said(site_admins, "/ops")
    assert f"{SAYS} Ask a site admin what to do." in notices_on(dashboard, "/")
    assert "Beacon Triage" not in notices_on(dashboard, "/")


def test_another_problem_of_an_agent_is_told_by_its_name(agent, site_admins):
    agent.name = "Beacon Triage"
    db.session.commit()
    forge(agent)
    verify(datetime.now(UTC))
    row = "Beacon Triage was changed in the database, not by Refine."
    assert f"{SAYS} {row}" in notices_on(site_admins, "/agents")
    sql.tamper(f"DELETE FROM audit_logs WHERE agent_id = {agent.id}")
    verify(datetime.now(UTC) + DAY)

    assert f"{SAYS} Beacon Triage : the chain ends at record 0" in notices_on(
        site_admins, "/agents"
    )


def test_seeing_it_does_not_end_the_alarm_while_the_last_one_failed(agent, site_admins):
    forge(agent)
    verify(datetime.now(UTC))

    site_admins.submit("/ops/verification/seen")

    assert SAYS in site_admins.get("/").text
    record = db.session.scalars(select(AuditLog).filter_by(action="verification_seen")).one()
    assert record.user is not None


def test_a_viewer_of_every_account_sees_the_alarm_and_cannot_acknowledge_it(agent, signed_in):
    viewer = signed_in(factories.user(role="viewer", site_admin=True))
    forge(agent)
    verify(datetime.now(UTC))

    page = viewer.get("/ops").text
    assert f"Agent {agent.id} was changed" in page
    assert ACKNOWLEDGE not in page
    assert viewer.submit("/ops/verification/seen").status_code == 403
    assert db.session.scalar(select(AuditLog).filter_by(action="verification_seen")) is None


def test_a_verification_that_is_late_alarms(agent, site_admins):
    WrappedKey.platform().created_at = datetime.now(UTC) - 4 * DAY
    db.session.commit()

    page = site_admins.get("/ops").text
    assert "no verification has finished for 4 days: is the clock running?" in page
    assert "Audit verification is overdue." in page
    assert (SAYS in page, ACKNOWLEDGE in page) == (False, False)
