"""The schedule of an account: in words, changed, paused, run now."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import time_machine
from flask import Flask

from refine import clock
from refine.extensions import db
from refine.jobs.tick import run_tick
from refine.models import Account, RefinementSession, User
from tests import factories, sql
from tests.web.conftest import SignedIn, actions_of, person, records, said, words_of


@pytest.fixture
def in_march(app: Flask) -> Iterator[None]:
    """A Monday noon, two weeks before summer time begins in Europe."""
    with time_machine.travel(datetime(2026, 3, 16, 12, 0, tzinfo=UTC), tick=False):
        yield


def test_the_schedule_is_shown_in_words_with_five_slots(
    in_march: None, account: Account, admin: User, signed_in: SignedIn
) -> None:
    account.schedule, account.time_zone = "30 4 * * 1", "Europe/Berlin"
    browser = signed_in(admin)

    page = browser.get("/schedule").text

    words = words_of(page)
    assert "asked for a session on Mondays at 04:30 (Europe/Berlin)." in words
    assert "Mon 23 Mar 2026, 04:30 (in 6 days) Mon 30 Mar 2026, 04:30" in words
    assert "Mon 6 Apr 2026, 04:30" in words
    assert "Mon 20 Apr 2026, 04:30" in words
    assert "27 Apr" not in words
    for instant in ("2026-03-23T03:30", "2026-03-30T02:30", "2026-04-06T02:30"):
        assert f'datetime="{instant}:00+00:00"' in page


def test_a_new_schedule_moves_the_next_slot_and_is_recorded(dashboard, admin, account):
    answer = dashboard.submit(
        "/schedule",
        {"schedule": " 0 5 * * * ", "time_zone": "Asia/Tokyo", "monthly_cost_cap_usd": "$1,234.5"},
        follow_redirects=True,
    )

    db.session.refresh(account)
    assert "Saved." in words_of(answer.text)
    assert "every day at 05:00 (Asia/Tokyo)" in words_of(answer.text)
    assert (account.schedule, account.time_zone) == ("0 5 * * *", "Asia/Tokyo")
    assert account.monthly_cost_cap_usd == Decimal("1234.50")
    assert account.next_due_at is not None
    assert account.next_due_at.hour == 20
    (record,) = records("account_settings_update")
    assert record.user_id == admin.id
    assert record.data["changes"] == {
        "schedule": [None, "0 5 * * *"],
        "time_zone": ["UTC", "Asia/Tokyo"],
        "monthly_cost_cap_usd": [None, "1234.50"],
    }


def test_invalid_values_are_explained_kept_in_the_form_and_not_stored(dashboard):
    valid = {"schedule": "0 6 * * *", "time_zone": "Asia/Tokyo", "monthly_cost_cap_usd": "7"}
    schedules = ("every day", "0 4 * *", "0 4 30 2 *", "61 4 * * *", "* * * * * *")
    amounts = ("lots", "-1", "NaN", "1e99")
    invalid = [
        *(("schedule", each, "Schedule must be a cron expression") for each in schedules),
        *(("time_zone", each, "Time zone must be an IANA name") for each in ("Nowhere", "")),
        *(("monthly_cost_cap_usd", each, "Monthly cost cap must be an") for each in amounts),
    ]
    dashboard.token()
    before = sql.snapshot()

    for field, value, problem in invalid:
        sent = {**valid, field: value}
        answer = dashboard.submit("/schedule", sent)

        assert answer.status_code == 422, (field, value)
        assert problem in words_of(answer.text), (field, value)
        for name, typed in sent.items():
            assert f'name="{name}"' in answer.text
            assert f'value="{typed}"' in answer.text
    assert sql.snapshot() == before


# -- days and time ---------------------------------------------------------------------------------


def checked(page: str) -> list[str]:
    """The radio button and the days that are chosen."""
    return re.findall(r'name="(?:kind|days)" value="(\w+)" checked', page)


WEEKLY = {"kind": "weekly", "days": ["1", "4"], "time": "02:30", "schedule": "ignored"}


def test_picked_days_and_a_time_become_a_cron_expression(dashboard, account):
    answer = dashboard.submit("/schedule", WEEKLY, follow_redirects=True)

    db.session.refresh(account)
    assert account.schedule == "30 2 * * 1,4"
    assert "on Mondays and Thursdays at 02:30 (UTC)" in words_of(answer.text)
    assert checked(answer.text) == ["weekly", "1", "4"]
    assert 'name="time" value="02:30"' in answer.text
    assert 'name="schedule" value="30 2 * * 1,4"' in answer.text


# -- run now ---------------------------------------------------------------------------------------


def test_run_now_leaves_the_sessions_to_the_clock_and_says_so(redis, dashboard, account):
    needy = factories.agent("one", "two", account=account)
    factories.agent("other's", "memory")
    db.session.commit()

    answer = dashboard.submit("/schedule/run", follow_redirects=True)
    run_tick()

    sessions = db.session.scalars(db.select(RefinementSession.agent_id)).all()
    assert sessions == [needy.id]
    assert answer.request.path == "/schedule"
    assert "Within a minute, a session is queued for every agent that" in words_of(answer.text)
    assert "the clock is queuing the sessions" in words_of(answer.text)
    assert "the clock is queuing the sessions" not in said(dashboard, "/schedule")


def test_run_now_says_first_whom_it_asks_and_what_that_may_cost(dashboard, admin, account):
    needy = factories.agent("one", "two", account=account, name="Ada")
    factories.agent("one", account=account, name="Bea", paused=True)
    session = RefinementSession.queue(needy, "manual")
    session.llm_calls, session.cost_usd = 3, Decimal("0.25")
    session.finish("declined", "it said no")
    account.monthly_cost_cap_usd = Decimal(5)
    db.session.commit()
    before = sql.snapshot()

    answer = dashboard.get("/schedule/run")

    words = words_of(answer.text)
    assert "Run now?" in words
    assert (
        "1 agent will be asked for a session within a minute, including any that have just "
        "declined: Ada" in words
    )
    assert "One session for each agent may cost about $0.2500 in total" in words
    assert "Spent this month: $0.2500 of $5.00" in words
    assert "The agent is paused 1 Bea" in words
    assert "Ask 1 agent" in words
    assert actions_of(answer.text) == ["/schedule/run"]
    assert sql.snapshot() == before


# -- whose it is -----------------------------------------------------------------------------------


def test_a_site_admin_changes_the_chosen_account(account, signed_in):
    site_admin = person(site_admin=True)
    browser = signed_in(site_admin)

    page = browser.get("/schedule?account=own").text
    browser.submit("/schedule?account=own", {"paused": "1"})

    db.session.refresh(account)
    db.session.refresh(site_admin.account)
    assert "Schedule of Own account" in words_of(page)
    assert {"/schedule?account=own"} == set(actions_of(page))
    assert (account.paused, site_admin.account.paused) == (True, False)


# -- how long things are kept ---------------------------------------------------------------------


def test_a_dry_run_counts_by_agent_what_so_many_months_would_erase(dashboard, account):
    with clock.ahead(-timedelta(days=366)):
        wren = factories.agent(account=account, name="Wren")
        factories.entry(wren)
    db.session.commit()
    before = sql.snapshot()

    six = words_of(dashboard.get("/schedule/retention?months=6").text)
    more = words_of(dashboard.get("/schedule/retention?months=24").text)

    assert "Of 1 journal memory and 0 sessions the text would be erased for good:" in six
    assert "Wren 1 0" in six
    assert "Nothing." in more
    assert "The account's setting is to keep all." in more
    changed = {name for name, rows in sql.snapshot().items() if rows != before[name]}
    assert changed <= {"sign_ins"}


def test_the_months_are_set_with_the_schedule_and_wait_a_week(dashboard, account):
    answer = dashboard.submit("/schedule", {"kept_months": "6"}, follow_redirects=True)
    wrong = [dashboard.submit("/schedule", {"kept_months": each}) for each in ("0", "x")]

    db.session.refresh(account)
    assert account.kept_months == 6
    assert account.retention_from > clock.now() + timedelta(days=6)
    assert "A change waits for 7 days, this one until" in words_of(answer.text)
    assert [each.status_code for each in wrong] == [422, 422]
    (record,) = records("account_settings_update")
    assert record.data["changes"] == {"kept_months": [None, 6]}
    kept = words_of(dashboard.get("/schedule/retention").text)
    assert "The account's setting is 6 months, from" in kept
    dashboard.submit("/schedule", {"kept_months": ""})
    db.session.refresh(account)
    assert account.kept_months is None
