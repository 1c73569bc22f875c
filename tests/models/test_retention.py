"""What an account keeps for some months alone is erased after them, by the clock, in batches."""

from datetime import datetime, timedelta

import pytest
from flask import Flask
from redis import Redis

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import db
from refine.jobs.tick import ERASE_EVERY, run_tick
from refine.models import Agent, AgentMemory, AuditLog, PeriodicWork, RefinementSession, retention
from refine.models.people.account import RETENTION_WAIT
from tests import editing, factories
from tests.chains import problems
from tests.privacy import traces

CANARY = "c4n4ry"
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
YEAR = 366 * DAY


@pytest.fixture
def agent(app: Flask, redis: Redis) -> Agent:
    """An agent of an account that keeps journals and sessions for six months, since long."""
    account = factories.account(kept_months=6)
    account.retention_from = clock.now() - DAY
    made = factories.agent("core stays", account=account, name="Wren")
    PeriodicWork.note("ticking", clock.now() - YEAR)
    db.session.commit()
    return made


def entry(agent: Agent, content: str = CANARY, **fields: object) -> AgentMemory:
    return factories.memory(agent, content, memory_type="journal", **fields)


def session_ended(agent: Agent) -> RefinementSession:
    session = factories.session(agent)
    session.consent_reply = f"YES, {CANARY}"
    editing.complete(session, f"I said {CANARY}.")
    return session


def ticked(at: datetime) -> int:
    """Tick as a clock that ticked a minute before; return how many memories were erased."""
    PeriodicWork.note("tick", at - MINUTE)
    db.session.commit()
    erased = run_tick(at).erased
    db.session.rollback()
    return erased


def erasures(agent: Agent) -> list[AuditLog]:
    return [each for each in factories.records(agent) if each.action == "retention_erased"]


def test_what_is_older_is_erased_and_the_rest_stays(agent):
    at = clock.now()
    with clock.ahead(-YEAR):
        old, discarded = entry(agent), entry(agent, discarded_at=clock.now())
        core = factories.memory(agent, CANARY)
        locked = [entry(agent, constitutional=True), entry(agent, tags=["voice"])]
        long_ago = session_ended(agent)
    with clock.ahead(-170 * DAY):
        lately, expired = session_ended(agent), entry(agent)
    imported = entry(agent, created_at=at - YEAR)
    db.session.commit()

    assert ticked(at) == 3  # the closing note of the first session, too

    assert (old.is_erased, discarded.is_erased) == (True, True)
    assert not any(each.is_erased for each in (core, *locked, expired, imported))
    assert (long_ago.summary, long_ago.consent_reply) == (None, None)
    assert lately.summary.endswith(f"I said {CANARY}.")
    (record,) = erasures(agent)
    assert record.data["by"] == "account"
    assert (record.data["journal"], record.data["sessions"]) == (3, 1)
    assert {old.id, discarded.id} < {each["id"] for each in record.data["memories"]}
    assert (ticked(at + ERASE_EVERY), problems()) == (0, [])


def test_no_column_and_no_key_that_is_left_says_a_word_of_it(agent):
    with clock.ahead(-YEAR):
        entry(agent, f"the {CANARY} sings", extra=f'{{"of": "{CANARY}"}}', source_id=CANARY)
        session_ended(agent)
    db.session.commit()
    assert "\n".join(traces.of_opened()).count(CANARY) > 5

    retention.erase_old(agent, clock.now())
    db.session.commit()

    assert CANARY not in "\n".join(traces.of_opened())
    assert CANARY.encode() not in b"".join(traces.of_tables().values())


def test_an_agent_is_told_once_and_again_when_the_account_keeps_things_otherwise(agent):
    def told() -> list[str]:
        entry(agent, created_at=clock.now() - YEAR, recorded_at=clock.now() - YEAR)
        retention.erase_old(agent, clock.now())
        return [each.content for each in factories.journal(agent)]

    first, again = told(), told()
    agent.account.kept_months = 3
    changed = told()

    (note,) = first
    assert again == first
    assert note == (
        "My account keeps expired journal memories, and what I said in sessions, for 6 months. "
        "What is older is erased for good; core memories stay."
    )
    assert "for 3 months." in changed[-1]


def test_nothing_goes_before_a_change_has_stood_for_a_week(agent):
    account, user, at = agent.account, factories.user(account=agent.account), clock.now()
    with clock.ahead(-YEAR):
        entry(agent)
    changed = account.configure(user=user, at=at - RETENTION_WAIT, kept_months=1)
    assert changed == ["kept_months"]
    assert account.retention_from >= at  # by the later clock: the database's
    assert ticked(at) == 0

    account.retention_from = at
    db.session.flush()
    account.configure(user=user, name="Other", kept_months=1)

    assert (account.retention_from, ticked(at + ERASE_EVERY)) == (at, 1)


def test_nothing_goes_after_a_gap_between_ticks_nor_by_a_clock_that_is_ahead(agent):
    with clock.ahead(-YEAR):
        entry(agent)
    db.session.commit()

    restored = run_tick(clock.now()).erased
    agent.account.retention_from = clock.now() + DAY
    PeriodicWork.note("ticking", clock.now() - YEAR)
    ahead = ticked(clock.now() + 2 * DAY)

    assert (restored, ahead) == (0, 0)


def test_an_erased_agent_has_nothing_left_to_erase(agent):
    with clock.ahead(-YEAR):
        entry(agent)
    agent.erase()
    db.session.commit()

    assert ticked(clock.now()) == 0
    assert db.session.execute(retention.counts(agent.account, clock.now(), 1)).all() == []


def test_large_journals_go_in_batches(agent, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 2)
    with clock.ahead(-YEAR):
        for _ in range(3):
            entry(agent)
    db.session.commit()

    at = clock.now()

    assert [ticked(at + each * ERASE_EVERY) for each in range(3)] == [2, 1, 0]
    assert len(erasures(agent)) == 2


def test_what_would_go_is_counted_by_agent_and_goes(agent):
    other = factories.agent("core", account=agent.account, name="Ada")
    stranger = factories.agent("core")
    with clock.ahead(-YEAR):
        for each in (agent, other, stranger):
            entry(each)
        session_ended(other)
    db.session.commit()
    at = clock.now()

    counted = [
        db.session.execute(retention.counts(agent.account, at, months)).all() for months in (6, 24)
    ]

    assert [[row[1:] for row in rows] for rows in counted] == [
        [("Ada", 2, 1), ("Wren", 1, 0)],
        [],
    ]
    assert ticked(at) == 3


def test_months_are_few(agent):
    for wrong in (0, 121, -1):
        with pytest.raises(InvalidValue, match="kept_months must be from 1 to 120, or empty"):
            agent.account.kept_months = wrong
