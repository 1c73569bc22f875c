"""What people are told of: states, each once and together, when they are over; happenings."""

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from flask import Flask
from sqlalchemy import select

from refine import clock
from refine.extensions import db
from refine.models import (
    Account,
    Agent,
    ApiToken,
    Delivery,
    PeriodicWork,
    RefinementSession,
    Verification,
    attention,
    notice,
)
from refine.models.notice import SETTLES_FOR, look, tell_webhooks
from tests import factories

# a Wednesday
NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


@pytest.fixture
def time(app: Flask):
    with time_machine.travel(NOW, tick=False) as traveller:
        yield traveller


@pytest.fixture
def account(time) -> Account:
    return factories.account(created_at=NOW)


def failed(account: Account, error_kind: str = "timeout") -> Agent:
    agent = factories.agent("one", account=account)
    factories.ended(agent, "failed", at=NOW, error_kind=error_kind)
    db.session.commit()
    return agent


def at_work(at: datetime) -> list[tuple[str, str, list[str], bool]]:
    """What is told then of everything but letters."""
    found = sorted(
        (*each.notices[0].state[::2], sorted(one.subject for one in each.notices), each.is_over)
        for each in look(at)
        if each.notices[0].kind != "letter"
    )
    db.session.commit()
    return found


def seen(time, after: timedelta = timedelta()) -> list[tuple[str, str, list[str], bool]]:
    """The same now, so long after the last time."""
    time.move_to(datetime.now(UTC) + after)
    return at_work(datetime.now(UTC))


# -- agents ----------------------------------------------------------------------------------------


def test_many_failures_of_one_cause_are_told_once_and_together(time, account):
    first = failed(account)
    assert seen(time) == []
    others = [failed(account), failed(account)]
    elsewhere = failed(factories.account())
    other_cause = failed(account, "no_key")

    together = [str(each.id) for each in (first, *others)]
    assert seen(time, SETTLES_FOR) == [("agent.failed", "failed:timeout", together, False)]
    assert seen(time, SETTLES_FOR) == [
        ("agent.failed", "failed:no_key", [str(other_cause.id)], False),
        ("agent.failed", "failed:timeout", [str(elsewhere.id)], False),
    ]
    assert seen(time, DAY) == []


def test_what_fails_later_is_told_for_itself(time, account):
    failed(account)
    seen(time)
    seen(time, SETTLES_FOR)
    later = failed(account)
    seen(time, DAY)

    assert seen(time, SETTLES_FOR) == [("agent.failed", "failed:timeout", [str(later.id)], False)]


def test_it_is_over_when_none_is_left(time, account):
    agents = [failed(account), failed(account)]
    seen(time)
    seen(time, SETTLES_FOR)
    factories.ended(agents[0], at=NOW + MINUTE)
    db.session.commit()
    assert seen(time, MINUTE) == []
    factories.ended(agents[1], at=NOW + MINUTE)
    db.session.commit()

    assert seen(time, MINUTE) == [("agent.failed", "failed:timeout", [str(agents[1].id)], True)]
    assert seen(time, DAY) == []


def test_what_passes_by_itself_is_never_told(time, account):
    agent = failed(account)
    seen(time)
    factories.ended(agent, at=NOW + MINUTE)
    db.session.commit()

    assert seen(time, MINUTE) == []
    assert seen(time, DAY) == []


def test_an_agent_that_is_asked_again_is_not_over_its_failure(time, account):
    agent = failed(account)
    seen(time)
    seen(time, SETTLES_FOR)
    again = RefinementSession.queue(agent, "manual", at=NOW + MINUTE)
    db.session.commit()
    assert seen(time, MINUTE) == []
    again.finish("failed", "so it ended", error_kind="timeout", at=NOW + MINUTE)
    db.session.commit()

    assert seen(time, DAY) == []


def test_agents_that_somebody_put_aside_are_over(time, account):
    agent = failed(account)
    seen(time)
    seen(time, SETTLES_FOR)
    admin = factories.user(account=account)
    attention.put_aside([agent], lambda _: None, user=admin, at=NOW + DAY)
    db.session.commit()

    assert [is_over for *_, is_over in seen(time, DAY)] == [True]


def test_rolled_back_over_budget_and_stuck_are_told(time, account):
    rolled_back, over, stuck = (
        factories.agent(account=account, core_token_budget=budget) for budget in (999, 99, 99)
    )
    for agent in (rolled_back, over, stuck):
        factories.ledger(agent, *[25] * 4)
    factories.ended(factories.agent("one", account=account), "declined", at=NOW)
    factories.ended(rolled_back, "rolled_back", at=NOW)
    factories.ended(stuck, "completed", at=NOW, mass_after=100)
    db.session.commit()
    seen(time)

    assert {(kind, *subjects) for kind, _, subjects, _ in seen(time, SETTLES_FOR)} == {
        ("agent.rolled_back", str(rolled_back.id)),
        ("agent.over_budget", str(over.id)),
        ("agent.stuck", str(stuck.id)),
    }


# -- accounts and the installation -----------------------------------------------------------------


def test_a_cost_cap_that_stops_sessions_is_told_and_that_it_no_longer_does(time, account):
    account.monthly_cost_cap_usd = 0
    db.session.commit()
    seen(time)
    assert seen(time, SETTLES_FOR) == [("account.over_cap", "", [""], False)]
    account.monthly_cost_cap_usd = None
    db.session.commit()

    assert seen(time, MINUTE) == [("account.over_cap", "", [""], True)]


def test_a_silent_clock_and_silent_workers_are_told_and_that_they_are_back(time, account):
    PeriodicWork.note("tick", NOW)
    PeriodicWork.note("worker", NOW)
    RefinementSession.queue(factories.agent("one", account=account), "manual", at=NOW)
    db.session.commit()
    assert seen(time) == []
    seen(time, 6 * MINUTE)

    assert {kind for kind, *_ in seen(time, SETTLES_FOR)} == {"clock.silent", "workers.silent"}
    PeriodicWork.note("tick", datetime.now(UTC))
    PeriodicWork.note("worker", datetime.now(UTC))
    db.session.commit()
    told = seen(time)
    assert {kind for kind, *_ in told} == {"clock.silent", "workers.silent"}
    assert [is_over for *_, is_over in told] == [True, True]


def test_workers_for_whom_nothing_waits_may_be_silent(time):
    PeriodicWork.note("worker", NOW - DAY)
    db.session.commit()
    seen(time)

    assert seen(time, SETTLES_FOR) == []


def test_a_failed_verification_is_told_until_a_later_one_finds_nothing(time, account):
    failure = Verification.begin("clock", NOW)
    failure.note_problem("agent 7: a memory was altered")
    failure.end(NOW)
    db.session.commit()
    seen(time)
    assert seen(time, SETTLES_FOR) == [("verification.failed", "failed", [""], False)]

    Verification.acknowledge_all(user=factories.user(), at=NOW)
    Verification.begin("clock", NOW + MINUTE).end(NOW + MINUTE)
    db.session.commit()
    assert seen(time, MINUTE) == [("verification.failed", "failed", [""], True)]


# -- happenings ------------------------------------------------------------------------------------


def test_what_becomes_of_access_is_told_at_once_and_once(app):
    agent, at = factories.agent(), clock.now()
    reader = factories.user(account=agent.account)
    grant = factories.live_grant(agent, reader)
    grant.end(user=reader)
    factories.live_grant(agent, reader, reply="NO")
    db.session.commit()

    about = f"agent #{agent.id}, user #{reader.id}"
    kinds = "asked", "declined", "ended", "granted"
    told = at_work(at + MINUTE)
    assert [each[:2] for each in told] == [(f"access.{kind}", about) for kind in kinds]
    assert len(told[0][2]) == 2
    assert [at_work(at + days * DAY) for days in (1, 7, 8)] == [[], [], []]


def test_a_token_that_is_about_to_end_is_told_once(time, account):
    ApiToken.mint(account=account, expires_at=NOW + 8 * DAY)
    ending, _ = ApiToken.mint(account=account, expires_at=NOW + 6 * DAY)
    revoked, _ = ApiToken.mint(account=account, expires_at=NOW + 6 * DAY)
    revoked.revoke()
    db.session.commit()

    about = f"token #{ending.id} (platform) ends on 2026-03-10"
    assert seen(time) == [("token.ending", about, [str(ending.id)], False)]
    assert seen(time, MINUTE) == []


# -- letters ---------------------------------------------------------------------------------------


def letters(at: datetime) -> list[str]:
    found = [each.notices[0].cause for each in look(at) if each.notices[0].kind == "letter"]
    db.session.commit()
    return found


def test_a_letter_is_due_on_monday_morning_in_its_zone_once_and_after_an_outage_too(time):
    factories.account(created_at=NOW, time_zone="America/New_York")
    db.session.commit()
    monday = datetime(2026, 3, 9, 12, tzinfo=UTC)  # eight in New York, a day after the change

    assert [letters(at) for at in (NOW, monday - MINUTE, monday, monday + DAY)] == [
        [],
        [],
        ["2026-03-09"],
        [],
    ]
    assert letters(monday + 10 * DAY) == ["2026-03-16"]


# -- webhooks --------------------------------------------------------------------------------------


def test_webhooks_get_states_with_ids_and_when_they_are_over(time, account):
    wants = factories.endpoint(account, "https://example.org/one", "agent.failed")
    factories.endpoint(account, "https://example.org/two", "session.ended")
    factories.endpoint(factories.account())
    agent = failed(account)
    db.session.execute(db.delete(Delivery))
    for at in (NOW, NOW + SETTLES_FOR):
        for news in look(at):
            tell_webhooks(news, at)
    factories.ended(agent, at=NOW + MINUTE)
    db.session.execute(db.delete(Delivery).where(Delivery.kind == "session.ended"))
    for news in look(NOW + DAY):
        tell_webhooks(news, NOW + DAY)
    db.session.commit()

    begun, over = db.session.scalars(select(Delivery).order_by(Delivery.id)).all()
    assert (begun.endpoint_id, begun.account_id) == (wants.id, account.id)
    facts = {"cause": "failed:timeout", "number": 1, "ids": [str(agent.id)]}
    assert begun.data == {"status": "begun", **facts}
    assert over.data == {"status": "over", **facts}
    assert begun.event_id.removesuffix("begun") == over.event_id.removesuffix("over")


def test_what_its_record_tells_a_webhook_is_not_told_again(app):
    agent = factories.agent()
    factories.endpoint(agent.account)
    factories.live_grant(agent, factories.user(account=agent.account))
    before = db.session.query(Delivery).count()
    for news in look(clock.now()):
        tell_webhooks(news, clock.now())

    assert db.session.query(Delivery).count() == before


def test_more_than_so_many_wait_for_the_next_time(app, monkeypatch):
    monkeypatch.setattr(notice, "MOST_AT_ONCE", 4)
    user = factories.user()
    for _ in range(3):
        factories.live_grant(factories.agent(account=user.account), user)
    db.session.commit()

    assert [len(at_work(clock.now())) for _ in range(3)] == [4, 2, 0]
