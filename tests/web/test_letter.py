"""The weekly letter: what it counts, whose it is, and its text."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from refine.extensions import db
from refine.jobs.letter import Letter
from refine.models import Account
from tests import factories
from tests.web.conftest import Browser, said

# a Wednesday; weeks begin on Mondays in the account's zone
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
LAST_WEEK = datetime(2026, 11, 11, 12, tzinfo=UTC)


@pytest.fixture
def week(account: Account, monkeypatch: pytest.MonkeyPatch) -> Account:
    """Last week, one agent finished and one declined; this week, one failed."""
    monkeypatch.setattr("refine.clock.now", lambda: NOW)
    account.time_zone = "Europe/Vienna"
    agents = [factories.agent("one", account=account) for _ in range(3)]
    done = factories.ended(agents[0], at=LAST_WEEK, cost_usd=Decimal("0.25"), saved_tokens=40)
    factories.ended(agents[1], "declined", at=LAST_WEEK)
    factories.ended(agents[1], "skipped", at=LAST_WEEK)
    factories.ended(agents[2], "failed", at=NOW, error_kind="timeout")
    factories.ended(factories.agent("elsewhere"), at=LAST_WEEK)
    # half an hour before the week begins, in Vienna
    factories.ended(agents[0], at=datetime(2026, 11, 8, 22, 30, tzinfo=UTC))
    assert done.saved_tokens == 40
    db.session.commit()
    return account


def test_it_tells_what_was_asked_agreed_declined_saved_and_spent_last_week(week):
    letter = Letter.of(week)

    assert (letter.monday, letter.sunday) == (date(2026, 11, 9), date(2026, 11, 15))
    assert (letter.asked, letter.agreed, letter.declined) == (2, 1, 1)
    assert (letter.used.saved_tokens, letter.spent) == (40, "$0.2500")


def test_its_text_is_ready_for_a_mail(week):
    assert Letter.of(week).text == (
        "Refine: Own account, 9 Nov 2026 to 15 Nov 2026\n"
        "\n"
        "Asked:    2 sessions\n"
        "Agreed:   1\n"
        "Declined: 1\n"
        "Saved:    40 tokens in every prompt\n"
        "Spent:    $0.2500\n"
        "\n"
        "Needs somebody now:\n"
        "- 1 agent with a failed session: timeout\n"
        "\n"
        "http://localhost:8000/?account=own"
    )


def test_the_page_and_the_text_say_the_same(week, dashboard: Browser):
    page = said(dashboard, "/letter")

    assert "Own account, 9 Nov 2026 to 15 Nov 2026" in page
    assert "Agreed 1 Declined 1 Saved in every prompt 40 tokens Spent $0.2500" in page
    assert "1 agent with a failed session: timeout" in page
    for asked in (
        dashboard.get("/letter?as=text"),
        dashboard.get("/letter", headers={"Accept": "text/plain"}),
    ):
        assert asked.mimetype == "text/plain"
        assert asked.text == Letter.of(week).text


@pytest.mark.parametrize(
    ("asked", "monday"),
    [("2026-11-18", 16), ("2026-11-15", 9), ("2027-01-01", 16), ("nonsense", 9), ("", 9)],
)
def test_any_day_of_a_week_that_has_begun_names_it(week, dashboard: Browser, asked, monday):
    assert f"Own account, {monday} Nov 2026 to" in said(dashboard, f"/letter?week={asked}")


def test_at_most_three_lines_need_somebody_and_declines_need_nobody(week):
    over = [factories.agent("one", account=week, core_token_budget=1) for _ in range(2)]
    factories.ended(over[0], "rolled_back", at=NOW)
    factories.ended(factories.agent("two", account=week), "failed", at=NOW, error_kind="no_key")
    week.next_due_at = NOW - timedelta(days=1)
    db.session.commit()

    needs = Letter.of(week).needs

    assert len(needs) == 3
    assert needs[0] == "a slot was missed"
    assert not [line for line in needs if "declined" in line]


def test_a_letter_of_another_account_is_not_found(week, dashboard: Browser):
    other = factories.account(slug="other")
    db.session.commit()

    assert dashboard.get(f"/letter?account={other.slug}").status_code == 404
