"""The outbox: what happened is queued for webhooks with it, as ids and figures alone."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask
from sqlalchemy import select

from refine.errors import InvalidValue, Refused
from refine.extensions import db
from refine.models import (
    Agent,
    ApiToken,
    AuditLog,
    Delivery,
    Endpoint,
    RefinementSession,
    Verification,
)
from refine.models.outbox import MOST_OF_AN_ACCOUNT
from refine.refinement import time_machine
from tests import editing, factories, sql
from tests.chains import problems
from tests.web.crawling import CANARY, sing

BY = {"by": "command line"}
NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def agent(app: Flask) -> Agent:
    """An agent in an account with a webhook."""
    owner = factories.agent()
    factories.endpoint(owner.account)
    db.session.commit()
    return owner


def deliveries() -> list[Delivery]:
    """All committed ones, oldest first."""
    db.session.rollback()
    return list(db.session.scalars(select(Delivery).order_by(Delivery.id)))


def told() -> list[tuple[str, str | None]]:
    """The kinds of all events that are queued, with their status."""
    return [(each.kind, each.data.get("status")) for each in deliveries()]


# -- what happened -------------------------------------------------------------------------------


def test_each_end_of_a_session_is_an_event(agent):
    for status in ("completed", "rolled_back", "incomplete", "declined", "skipped", "failed"):
        factories.ended(agent, status, at=NOW)
    db.session.commit()

    (first, *_), last = deliveries(), RefinementSession.last_ended_of(agent, before=NOW + DAY)
    assert [status for kind, status in told() if kind == "session.ended"] == [
        *("completed", "rolled_back", "incomplete", "declined", "skipped", "failed")
    ]
    assert last is not None
    assert first.data.keys() >= {"agent_id", "session_id", "mass_before", "cost_usd"}
    assert (first.created_at, first.next_at, first.attempts) == (NOW, NOW, 0)
    assert json.loads(first.body) == {
        "type": "session.ended",
        "timestamp": "2026-03-04T12:00:00.000000+00:00",
        "data": {"account": agent.account.slug, **first.data},
    }


def test_an_undo_is_not_the_end_of_a_session(agent):
    memories = factories.ledger(agent, *[25] * 20)
    session = factories.session(agent)
    editing.delete(session, memories[0].id)
    editing.complete(session, "Done.")
    time_machine.undo(session, through="dashboard")
    db.session.commit()

    assert told() == [("session.ended", "completed")]


def test_what_becomes_of_access_is_an_event(agent):
    reader = factories.user(account=agent.account)
    grant = factories.live_grant(agent, reader)
    grant.end(user=reader)
    other = factories.user(account=agent.account)
    factories.live_grant(agent, other, reply="NO")
    db.session.commit()

    assert told() == [
        ("access.asked", "requested"),
        ("access.granted", "granted"),
        ("access.ended", "ended"),
        ("access.asked", "requested"),
        ("access.declined", "declined"),
    ]
    asked, granted, ended, *_ = deliveries()
    assert asked.data == {
        "agent_id": agent.id,
        "grant_id": str(grant.id),
        "grant_user_id": reader.id,
        "duration_minutes": 60,
        "status": "requested",
    }
    assert granted.data["expires_at"] is not None
    assert ended.data["end_reason"] == "ended_by_user"


def test_a_conversation_is_done_or_given_up(agent):
    for status in ("completed", "incomplete", "failed", "skipped"):
        factories.ended_task(agent, "extraction", status)
    factories.ended_task(agent, "reflection", "completed")
    db.session.commit()

    assert told() == [
        ("conversation.done", "completed"),
        ("conversation.done", "incomplete"),
        ("conversation.given_up", "failed"),
        ("conversation.given_up", "skipped"),
    ]


def test_a_failed_verification_is_told_to_every_account_as_a_number(agent):
    factories.endpoint(factories.account())
    failed = Verification.begin("clock", NOW)
    failed.note_problem("agent 7: a memory was altered")
    failed.end(NOW)
    db.session.commit()

    first, second = deliveries()
    assert first.kind == second.kind == "verification.failed"
    assert first.event_id == second.event_id
    assert first.data == second.data == {"agent_id": None, "problems": 1}


def test_nothing_is_queued_of_other_accounts_other_kinds_or_for_removed_webhooks(app):
    account = factories.account()
    factories.endpoint(account, "https://example.org/one", "access.asked", "access.asked")
    factories.endpoint(account).remove(by=BY)
    factories.endpoint(factories.account())
    factories.ended(factories.agent(account=account))
    db.session.commit()

    assert deliveries() == []


def test_every_webhook_of_the_account_is_told_under_one_id(agent):
    factories.endpoint(agent.account, "https://example.org/two", "session.ended")
    factories.ended(agent)
    db.session.commit()

    first, second = deliveries()
    assert first.event_id == second.event_id
    assert first.endpoint_id != second.endpoint_id


def test_what_is_rolled_back_is_not_told(agent):
    factories.ended(agent)
    db.session.rollback()

    assert deliveries() == []


def test_an_edit_looks_for_no_webhook(agent):
    memory, *_ = factories.ledger(agent, *[25] * 20)
    db.session.commit()
    session = factories.session(agent)

    with sql.just_before("endpoints", by=pytest.fail):
        editing.delete(session, memory.id)

    assert told() == []


def test_no_event_says_a_word_of_content(agent):
    sing(agent)
    db.session.commit()

    found = deliveries()

    assert {each.kind for each in found} >= {"session.ended", "conversation.given_up"}
    said = " ".join([each.body for each in found] + sql.snapshot()["deliveries"])
    assert CANARY not in said.lower()
    values = {value for each in found for value in each.data.values() if isinstance(value, str)}
    assert {value for value in values if " " in value} == set()


# -- webhooks --------------------------------------------------------------------------------------


def test_adding_and_removing_a_webhook_are_records_of_its_account(app):
    account = factories.account()
    added = factories.endpoint(account, "https://example.org/T0/secret", "session.ended")
    added.remove(by=BY)
    added.remove(by=BY)
    db.session.commit()

    said = select(AuditLog).where(AuditLog.account_id == account.id).order_by(AuditLog.id)
    records = [each for each in db.session.scalars(said) if each.action.startswith("webhook")]
    facts = {"kinds": "session.ended", **BY}
    assert [(each.action, each.data) for each in records] == [
        ("webhook_added", facts),
        ("webhook_removed", facts),
    ]
    assert records[0].auditable_id == str(added.id)
    assert problems() == []


def test_a_secret_is_stored_sealed_and_gone_with_its_webhook(app):
    account = factories.account()
    made, secret = Endpoint.add(account, "https://example.org/", None, by=BY)
    db.session.commit()

    assert secret.startswith("whsec_")
    assert made.secret == secret
    assert secret not in str(sql.snapshot())
    made.remove(by=BY)
    db.session.commit()
    assert made.secret is None


def test_removing_a_webhook_ends_its_deliveries(agent):
    factories.ended(agent)
    db.session.commit()
    (delivery,) = deliveries()
    delivery.endpoint.remove(by=BY)
    db.session.commit()

    (delivery,) = deliveries()
    assert (delivery.outcome, delivery.last_status) == ("given_up", "removed")
    with pytest.raises(Refused, match="was removed"):
        delivery.replay()


def test_an_altered_webhook_is_found_and_stays(agent):
    sql.tamper("UPDATE endpoints SET url = 'https://evil.example/'")
    db.session.expire_all()
    altered = db.session.scalars(select(Endpoint)).one()

    altered.remove(by=BY)
    db.session.commit()

    assert altered.removed_at is None
    assert [each for each in problems() if f"Endpoint {altered.id}" in each] != []


def test_a_url_that_is_not_https_is_refused(app):
    with pytest.raises(InvalidValue, match="https://"):
        factories.endpoint(factories.account(), "http://example.org/")


def test_an_account_has_a_bounded_number_of_webhooks(app):
    account = factories.account()
    first, *_ = [factories.endpoint(account) for _ in range(MOST_OF_AN_ACCOUNT)]

    with pytest.raises(Refused, match="at most"):
        factories.endpoint(account)
    first.remove(by=BY)
    assert factories.endpoint(account).id
    assert factories.endpoint(factories.account()).id


def test_a_platform_token_adds_and_removes_webhooks_of_its_account(app):
    token, _ = ApiToken.mint(account=factories.account())
    added, _ = token.add_webhook("https://example.org/", None)
    token.remove_webhook(added)
    db.session.commit()

    actor = {"by": "platform", "token_id": token.id}
    said = select(AuditLog).where(AuditLog.auditable_type == "Endpoint")
    assert [actor.items() <= each.data.items() for each in db.session.scalars(said)] == [True] * 2
    assert added.account_id == token.account_id


# -- deliveries ------------------------------------------------------------------------------------


def test_old_deliveries_are_deleted_but_those_that_wait(agent):
    for _ in range(2):
        factories.ended(agent, at=NOW)
    db.session.commit()
    told, waiting = deliveries()
    told.note(NOW, "200")
    db.session.commit()

    assert Delivery.prune(NOW + timedelta(days=30)) == 0
    assert Delivery.prune(NOW + timedelta(days=31)) == 1
    db.session.commit()
    assert [each.id for each in deliveries()] == [waiting.id]
