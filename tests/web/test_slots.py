"""The past slots of a schedule, each with what became of its sessions."""

from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import Account, RefinementSession
from refine.web.schedule import PastSlot, past_slots
from tests import factories

NOON = datetime(2026, 3, 18, 12, tzinfo=UTC)
SLOT = datetime(2026, 3, 16, 4, tzinfo=UTC)
WEEK, HOUR = timedelta(weeks=1), timedelta(hours=1)


@pytest.fixture
def account(app: Flask) -> Account:
    """One that is as old as three slots, the last of which was served."""
    return factories.account(slug="own", created_at=SLOT - 2 * WEEK - HOUR, next_due_at=SLOT + WEEK)


def ended(account: Account, status: str, slot: datetime = SLOT, late: timedelta = 0 * HOUR) -> None:
    """A session for a slot; it has ended so."""
    agent = factories.agent("one", account=account)
    session = RefinementSession.queue(agent, "weekly", slot_at=slot, at=slot + late)
    if status != "queued":
        session.finish(status, "so it ended", at=slot + late)  # type: ignore[arg-type]
    db.session.commit()


def told(account: Account) -> list[PastSlot]:
    return past_slots(account, NOON)


def test_each_slot_since_the_account_exists_is_told_newest_first(account: Account) -> None:
    ended(account, "completed")

    assert [(slot.at, slot.sessions) for slot in told(account)] == [
        (SLOT, 1),
        (SLOT - WEEK, 0),
        (SLOT - 2 * WEEK, 0),
    ]


def test_the_outcomes_are_counted_and_drawn_in_their_shares(account: Account) -> None:
    for status in ("failed", "completed", "completed", "declined"):
        ended(account, status)
    ended(factories.account(), "skipped")

    slot, before, _ = told(account)

    assert slot.words == "2 completed, 1 declined, 1 failed"
    assert slot.parts == [("completed", 0, 50), ("declined", 50, 25), ("failed", 75, 25)]
    assert (slot.remark, before.words, before.parts) == (None, "no sessions", [])


def test_a_slot_that_is_not_served_yet_goes_on_or_is_missed(account: Account) -> None:
    account.next_due_at = SLOT
    at_once = past_slots(account, SLOT + HOUR)[0]
    later = past_slots(account, SLOT + 2 * HOUR)[0]
    account.paused = True

    paused = past_slots(account, SLOT + 2 * HOUR)[0]

    assert at_once.remark == paused.remark == "not finished yet"
    assert later.remark == "missed so far: check the clock"
