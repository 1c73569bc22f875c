from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import time_machine

from refine.extensions import db
from refine.models import RefinementSession
from refine.models.runs.run import LOST_AFTER
from refine.models.runs.session import scheduling
from refine.models.runs.spending import cost_cap_reason
from tests import factories, sql

# A Wednesday noon; the last slot was on Monday at 04:00.
NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
SLOT = datetime(2026, 3, 2, 4, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
BY_HAND = ["manual", "api", "cli"]
AUTOMATIC = ["weekly", "over_budget"]


@pytest.fixture(autouse=True)
def now():
    """What happens in a test without a time of its own happens now."""
    with time_machine.travel(NOW, tick=False):
        yield


def past(owner, status="completed", at=NOW - DAY, **fields):
    """A session that was asked for and ended at one instant."""
    usual = {"trigger": "weekly", "model_id": "test/model", "threshold": "0.75"}
    dates = {"created_at": at, "started_at": at, "ended_at": at}
    made = RefinementSession(agent=owner, status=status, **{**usual, **dates, **fields})
    db.session.add(made)
    db.session.flush()
    return made


def live(owner, status, trigger="manual"):
    session = RefinementSession.queue(owner, trigger, at=NOW - HOUR)
    if status == "running":
        session.claim(NOW - HOUR)
    return session


def removed(tokens):
    return {"removable_tokens": tokens, "removed_tokens": tokens}


@pytest.fixture
def agent(app):
    """An agent of 100 tokens, 10 under its budget, whose memories are a year old."""
    owner = factories.agent(core_token_budget=110)
    long_ago = NOW - timedelta(days=365)
    factories.ledger(owner, *[25] * 4, recorded_at=long_ago, updated_at=long_ago)
    return owner


@pytest.fixture
def over_budget(agent):
    agent.core_token_budget = 99
    db.session.flush()
    return agent


def chosen(agent_ids):
    db.session.flush()
    return list(db.session.scalars(agent_ids))


# -- whom a slot owes a session --------------------------------------------------------------------


def owed(agent):
    return chosen(scheduling.due_for_slot(agent.account, SLOT)) == [agent.id]


def test_a_slot_owes_a_session_to_who_was_never_refined(agent):
    assert owed(agent)


@pytest.mark.parametrize(
    ("refined_at", "is_owed"),
    [(SLOT - 7 * DAY, True), (SLOT - MOMENT, True), (SLOT, False), (SLOT + HOUR, False)],
)
def test_a_slot_owes_a_session_to_who_was_not_refined_since(agent, refined_at, is_owed):
    agent.last_refinement_at = refined_at

    assert owed(agent) == is_owed


def test_a_slot_owes_a_session_to_the_agents_of_its_account_alone(agent):
    other = factories.agent("a memory")

    assert owed(agent)
    assert owed(other)


@pytest.mark.parametrize("state", [{"paused": True}, {"active": False}])
def test_a_slot_owes_nothing_to_who_is_switched_off(agent, state):
    for name, value in state.items():
        setattr(agent, name, value)

    assert not owed(agent)


@pytest.mark.parametrize(
    "fields",
    [
        {"constitutional": True},
        {"tags": ["audio"]},
        {"tags": ["relational", "voice"]},
        {"memory_type": "journal"},
        {"discarded_at": NOW},
    ],
)
def test_a_slot_owes_nothing_to_who_has_no_memory_to_change(app, fields):
    agent = factories.agent()
    factories.memory(agent, **fields)

    assert not owed(agent)


def test_a_memory_that_may_be_changed_is_enough_for_a_slot(app):
    agent = factories.agent()
    factories.memory(agent, constitutional=True)
    factories.memory(agent, tags=["relational"])

    assert owed(agent)


@pytest.mark.parametrize("status", ["queued", "running"])
def test_who_has_a_live_session_is_owed_one_all_the_same_but_not_now(agent, status):
    live(agent, status)

    owing = scheduling.due_for_slot(agent.account, SLOT)
    free = owing.where(~scheduling.has_live_session())

    assert chosen(owing) == [agent.id]
    assert chosen(free) == []


@pytest.mark.parametrize("status", ["declined", "completed", "incomplete", "rolled_back"])
def test_a_session_that_was_answered_since_serves_the_slot(agent, status, subtests):
    for trigger in [*BY_HAND, *AUTOMATIC]:
        for ended_at, is_owed in [(SLOT - MOMENT, True), (SLOT, False)]:
            with (
                subtests.test(trigger=trigger, ended_at=ended_at),
                db.session.begin_nested() as past_one,
            ):
                past(agent, status, at=SLOT - HOUR, ended_at=ended_at, trigger=trigger)
                assert owed(agent) == is_owed
                past_one.rollback()


@pytest.mark.parametrize(
    ("trigger", "is_owed"), [(trigger, True) for trigger in BY_HAND] + [("over_budget", False)]
)
def test_a_failure_since_serves_the_slot_where_it_is_tried_again(agent, trigger, is_owed):
    past(agent, "failed", at=SLOT + HOUR, trigger=trigger)

    assert owed(agent) == is_owed


def test_a_session_that_was_skipped_since_serves_nothing(agent):
    past(agent, "skipped", at=SLOT + HOUR, trigger="manual")

    assert owed(agent)


def test_a_slot_owes_nothing_to_who_was_erased(agent):
    agent.wrapped_key.wrapped, agent.wrapped_key.destroyed_at = None, NOW

    assert not owed(agent)


@pytest.mark.parametrize("status", ["declined", "skipped", "failed"])
def test_a_session_of_the_slot_serves_it_whatever_became_of_it(agent, status):
    past(agent, status, slot_at=SLOT)

    assert not owed(agent)


@pytest.mark.parametrize("slot_at", [None, SLOT - 7 * DAY])
def test_a_session_of_another_slot_or_none_serves_nothing(agent, slot_at):
    past(agent, "declined", at=SLOT - HOUR, slot_at=slot_at)

    assert owed(agent)


def test_a_session_of_another_agent_serves_nothing(agent):
    other = factories.agent("a memory", account=agent.account, paused=True)
    past(other, "declined", slot_at=SLOT)
    live(other, "running")

    assert owed(agent)


# -- who is over the budget ------------------------------------------------------------------------


def is_chosen(agent):
    return chosen(scheduling.over_budget(NOW)) == [agent.id]


@pytest.mark.parametrize(("budget", "is_over"), [(99, True), (100, False), (101, False)])
def test_over_budget_are_those_of_more_tokens_than_their_budget(agent, budget, is_over):
    agent.core_token_budget = budget

    assert is_chosen(agent) == is_over


@pytest.mark.parametrize("fields", [{"memory_type": "journal"}, {"discarded_at": NOW}])
def test_journal_and_discarded_memories_weigh_nothing(agent, fields):
    factories.ledger(agent, 500, **fields)

    assert not is_chosen(agent)


def test_locked_memories_weigh_too(agent):
    factories.ledger(agent, 500, constitutional=True)

    assert is_chosen(agent)


@pytest.mark.parametrize("state", [{"paused": True}, {"active": False}])
def test_who_is_switched_off_is_not_chosen(over_budget, state):
    for name, value in state.items():
        setattr(over_budget, name, value)

    assert not is_chosen(over_budget)


def test_who_has_no_memory_to_change_is_not_chosen(app):
    agent = factories.agent(core_token_budget=1)
    factories.memory(agent, constitutional=True)

    assert not is_chosen(agent)


def test_the_agents_of_a_paused_account_are_not_chosen(over_budget):
    over_budget.account.paused = True

    assert not is_chosen(over_budget)


@pytest.mark.parametrize("status", ["queued", "running"])
def test_who_has_a_live_session_is_not_chosen(over_budget, status):
    live(over_budget, status)

    assert not is_chosen(over_budget)


def test_the_session_of_another_agent_keeps_nobody_from_being_chosen(over_budget):
    other = factories.agent("a memory")
    past(other, "declined", at=NOW)
    live(other, "running")

    assert is_chosen(over_budget)


@pytest.mark.parametrize("status", ["completed", "incomplete", "rolled_back", "declined"])
@pytest.mark.parametrize(
    ("answered_at", "chosen_again"), [(NOW - DAY + MOMENT, False), (NOW - DAY, True)]
)
def test_who_answered_within_the_shortest_cooldown_is_not_chosen(
    over_budget, status, answered_at, chosen_again
):
    past(over_budget, status, at=NOW - 2 * DAY, ended_at=answered_at)

    assert is_chosen(over_budget) == chosen_again


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_who_did_not_answer_is_chosen(over_budget, status):
    past(over_budget, status, at=NOW)

    assert is_chosen(over_budget)


def test_the_shortest_cooldown_is_the_setting(app, over_budget, monkeypatch):
    past(over_budget, at=NOW - 3 * HOUR)
    settings = app.extensions["refine.settings"]

    monkeypatch.setitem(app.extensions, "refine.settings", replace(settings, cooldown_hours=3))

    assert is_chosen(over_budget)


# -- how long an agent over its budget is left alone -----------------------------------------------


def test_who_was_never_asked_is_not_left_alone(over_budget):
    assert scheduling.cools_down_until(over_budget) is None
    assert not scheduling.is_cooling_down(over_budget, NOW)


@pytest.mark.parametrize(
    ("hours", "is_left_alone"), [(0, True), (23, True), (24, False), (100, False)]
)
def test_who_removed_something_is_left_alone_for_a_day(over_budget, hours, is_left_alone):
    past(over_budget, at=NOW - timedelta(hours=hours), **removed(5))

    assert scheduling.is_cooling_down(over_budget, NOW) == is_left_alone


def test_the_cooldown_ends_to_the_very_instant(over_budget):
    past(over_budget, at=NOW - DAY, **removed(5))

    assert scheduling.is_cooling_down(over_budget, NOW - MOMENT)
    assert not scheduling.is_cooling_down(over_budget, NOW)


def test_the_cooldown_begins_at_the_end_of_a_session_not_at_its_beginning(over_budget):
    past(over_budget, at=NOW - DAY, ended_at=NOW - DAY + HOUR, **removed(5))

    assert scheduling.cools_down_until(over_budget) == NOW + HOUR


@pytest.mark.parametrize("status", ["declined", "completed", "incomplete", "rolled_back"])
def test_each_session_that_removed_nothing_doubles_the_cooldown_up_to_a_week(
    over_budget, status, subtests
):
    past(over_budget, at=NOW - 60 * DAY, **removed(5))
    hours = {1: 48, 2: 96, 3: 168, 4: 168, 12: 168}

    for fruitless in range(1, 13):
        ended_at = NOW - (12 - fruitless) * DAY
        past(over_budget, status, at=ended_at)
        if fruitless in hours:
            with subtests.test(fruitless=fruitless):
                until = ended_at + timedelta(hours=hours[fruitless])
                assert scheduling.cools_down_until(over_budget) == until


@pytest.mark.parametrize("fruits", [removed(1), {"duplicates_removed": 1}])
def test_after_one_that_removed_something_the_cooldown_is_a_day_again(over_budget, fruits):
    for days in (4, 3, 2):
        past(over_budget, "declined", at=NOW - days * DAY)

    past(over_budget, at=NOW, **fruits)

    assert scheduling.cools_down_until(over_budget) == NOW + DAY


def test_a_refusal_doubles_the_cooldown_also_where_duplicates_went(over_budget):
    past(over_budget, "declined", at=NOW, duplicates_removed=3)

    assert scheduling.cools_down_until(over_budget) == NOW + 2 * DAY


@pytest.mark.parametrize("trigger", [*BY_HAND, *AUTOMATIC])
def test_an_answer_counts_whoever_asked(over_budget, trigger):
    past(over_budget, "declined", at=NOW, trigger=trigger)

    assert scheduling.cools_down_until(over_budget) == NOW + 2 * DAY


@pytest.mark.parametrize("status", ["skipped", "failed"])
def test_where_no_answer_came_the_cooldown_stays_as_it_was(over_budget, status):
    past(over_budget, at=NOW - DAY, **removed(5))
    past(over_budget, status, at=NOW, trigger="manual")

    assert scheduling.cools_down_until(over_budget) == NOW


def test_other_agents_answers_count_for_nothing(over_budget):
    past(factories.agent(), "declined", at=NOW)

    assert scheduling.cools_down_until(over_budget) is None


@pytest.mark.parametrize(
    ("setting", "fruitless", "hours"), [(1, 0, 1), (1, 3, 8), (1, 10, 168), (168, 0, 168)]
)
def test_the_first_cooldown_is_a_setting(app, over_budget, monkeypatch, setting, fruitless, hours):
    past(over_budget, at=NOW - 60 * DAY, ended_at=NOW, **removed(5))
    for days in range(fruitless):
        past(over_budget, "declined", at=NOW - days * DAY)
    settings = app.extensions["refine.settings"]

    monkeypatch.setitem(
        app.extensions, "refine.settings", replace(settings, cooldown_hours=setting)
    )

    assert scheduling.cools_down_until(over_budget) == NOW + timedelta(hours=hours)


@pytest.mark.parametrize(("threshold", "is_left_alone"), [(1, True), (0.995, True), (0.99, False)])
def test_who_could_remove_nothing_is_left_alone(over_budget, threshold, is_left_alone):
    over_budget.refinement_threshold = threshold

    assert scheduling.is_cooling_down(over_budget, NOW) == is_left_alone


@pytest.mark.parametrize("trigger", AUTOMATIC)
def test_who_is_tried_again_anyway_is_left_alone(over_budget, trigger):
    past(over_budget, "failed", at=NOW - HOUR, trigger=trigger, attempt=4)

    assert scheduling.is_cooling_down(over_budget, NOW)


@pytest.mark.parametrize(
    "failure",
    [
        {"at": NOW - HOUR, "trigger": "cli"},
        {"at": SLOT - MOMENT},
    ],
    ids=["by hand", "before the last slot"],
)
def test_a_failure_that_is_not_tried_again_leaves_nobody_alone(over_budget, failure):
    past(over_budget, "failed", **failure)

    assert not scheduling.is_cooling_down(over_budget, NOW)


# -- what forbids an automatic session -------------------------------------------------------------


def why_not(agent, at=NOW):
    db.session.flush()
    return scheduling.skip_reason(agent, at)


def test_nothing_forbids_to_ask_who_was_never_asked(agent):
    assert why_not(agent) is None


def test_a_paused_account_forbids_it(agent):
    agent.account.paused = True

    assert why_not(agent) == "its account is paused"


@pytest.mark.parametrize("days", [0, 29])
def test_erosion_forbids_it_and_is_told(agent, days):
    past(agent, at=NOW - days * DAY, **removed(99))

    assert why_not(agent) == "sessions of the last 30 days removed as much as they may"


@pytest.mark.parametrize(
    "fields",
    [{"at": NOW - 31 * DAY}, {"undone_at": NOW}, removed(98)],
    ids=["long ago", "undone", "a little less"],
)
def test_what_leaves_room_to_remove_forbids_nothing(agent, fields):
    past(agent, **{**removed(99), **fields})

    assert why_not(agent) is None


@pytest.mark.parametrize("status", ["declined", "completed", "incomplete", "rolled_back"])
@pytest.mark.parametrize("trigger", ["weekly", "manual"])
def test_where_nothing_changed_since_a_session_that_removed_nothing_it_is_forbidden(
    agent, status, trigger
):
    past(agent, status, trigger=trigger)

    assert why_not(agent) == "nothing changed since the last session, which removed nothing"


@pytest.mark.parametrize("fruits", [removed(5), {"duplicates_removed": 1}])
def test_after_a_session_that_removed_something_it_is_not_forbidden(agent, fruits):
    past(agent, "declined", at=NOW - 2 * DAY)
    past(agent, **fruits)

    assert why_not(agent) is None


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_a_session_without_an_answer_neither_forbids_nor_allows(agent, status):
    past(agent, status)
    before = why_not(agent)
    past(agent, "declined", at=NOW - 2 * DAY)

    after = why_not(agent)

    assert before is None
    assert after == "nothing changed since the last session, which removed nothing"


def test_of_a_ledger_that_was_shown_in_batches_the_next_one_is_to_be_looked_at(agent):
    past(agent, at=NOW - HOUR, batch_through_id=17)

    assert why_not(agent) is None


def test_an_undone_session_is_a_change(agent):
    past(agent, undone_at=NOW)

    assert why_not(agent) is None


CHANGES = {
    "a memory added": lambda agent, first: agent.ledger.remember("something new", "core"),
    "a memory rewritten": lambda agent, first: setattr(first, "content", "something else"),
    "a memory tagged": lambda agent, first: setattr(first, "tags", ["relational"]),
    "a memory protected": lambda agent, first: first.set_constitutional(True),
    "a memory discarded": lambda agent, first: first.discard(),
    "a style authored": lambda agent, first: agent.author("refinement_prompt", "Be bold."),
    "a model changed": lambda agent, first: agent.record("agent_settings_update"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_memory_or_settings_allows_it_again(agent, change):
    past(agent, "declined")

    change(agent, db.session.scalars(agent.ledger.core()).first())

    assert why_not(agent) is None


def test_a_memory_that_was_restored_is_a_change(agent):
    dates = dict.fromkeys(("recorded_at", "updated_at", "discarded_at"), NOW - 3 * DAY)
    (gone,) = factories.ledger(agent, 25, **dates)
    past(agent, "declined")

    gone.restore(at=NOW)

    assert why_not(agent) is None


def test_a_memory_that_others_saved_while_the_session_ran_is_a_change(agent):
    last = past(agent, "declined", at=NOW - DAY, ended_at=NOW)

    factories.memory(agent, recorded_at=NOW - HOUR, updated_at=NOW - HOUR)

    assert last.started_at < NOW - HOUR
    assert why_not(agent) is None


def test_what_the_session_itself_made_is_no_change(agent):
    last = past(agent, at=NOW - DAY, ended_at=NOW)

    factories.memory(agent, recorded_at=NOW - HOUR, updated_at=NOW - HOUR, session_id=last.id)

    assert why_not(agent) == "nothing changed since the last session, which removed nothing"


NO_CHANGES = {
    "a journal memory": lambda agent: agent.ledger.remember("it rained", "journal"),
    "another record": lambda agent: agent.record("memory_access_viewed"),
    "another agent's memory": lambda agent: factories.agent("new", account=agent.account),
    "another agent's settings": lambda agent: factories.agent().author("name", "Bo"),
    "a setting kept": lambda agent: agent.author("name", agent.name),
}


@pytest.mark.parametrize("event", NO_CHANGES.values(), ids=NO_CHANGES)
def test_what_the_agent_would_not_see_is_no_change(agent, event):
    past(agent, "declined")

    event(agent)

    assert why_not(agent) == "nothing changed since the last session, which removed nothing"


def test_what_changed_before_the_end_of_the_session_is_no_change(agent):
    agent.record("agent_settings_update", at=NOW - DAY)
    factories.memory(agent, recorded_at=NOW - DAY, updated_at=NOW - DAY)

    past(agent, "declined", at=NOW - DAY)

    assert why_not(agent) == "nothing changed since the last session, which removed nothing"


# -- the cost cap ----------------------------------------------------------------------------------


def costly(owner, usd, **fields):
    return past(owner, cost_usd=Decimal(usd), **removed(1), **fields)


@pytest.mark.parametrize(
    ("cap", "is_reached"),
    [(None, False), ("0", True), ("1.49", True), ("1.50", True), ("1.51", False)],
)
def test_the_cap_is_reached_by_what_the_sessions_of_the_account_cost(agent, cap, is_reached):
    costly(agent, "1.00")
    costly(factories.agent(account=agent.account), "0.50", trigger="manual")

    agent.account.monthly_cost_cap_usd = Decimal(cap) if cap is not None else None

    assert (cost_cap_reason(agent.account, NOW) is not None) == is_reached


def test_a_cap_that_is_reached_forbids_to_ask_and_is_told(agent):
    agent.account.monthly_cost_cap_usd = Decimal("1.50")
    costly(agent, "1.50", at=NOW)

    assert why_not(agent) == "the account's monthly cost cap of $1.50 is reached"
    assert why_not(agent, NOW + 28 * DAY) is None


@pytest.mark.parametrize("trigger", AUTOMATIC)
def test_an_automatic_session_is_skipped_where_the_cap_was_reached_since_it_was_queued(
    agent, trigger
):
    agent.account.monthly_cost_cap_usd = Decimal("1.50")
    session = RefinementSession.queue(agent, trigger, at=NOW)
    costly(factories.agent(account=agent.account), "1.50", at=NOW)

    lease_token = session.claim(NOW)

    assert lease_token is None
    assert (session.status, session.llm_calls) == ("skipped", 0)
    assert session.end_reason == "the account's monthly cost cap of $1.50 is reached"
    assert factories.records(agent)[-1].action == "memory_refinement_skipped"


@pytest.mark.parametrize("trigger", BY_HAND)
def test_a_session_asked_for_by_hand_begins_whatever_was_spent(agent, trigger):
    agent.account.monthly_cost_cap_usd = Decimal("1.50")
    costly(agent, "1.50", at=NOW)
    session = RefinementSession.queue(agent, trigger, at=NOW)

    lease_token = session.claim(NOW)

    assert lease_token is not None
    assert session.status == "running"


def test_an_automatic_session_begins_with_the_next_month(agent):
    agent.account.monthly_cost_cap_usd = Decimal("1.50")
    costly(agent, "1.50", at=NOW)
    session = RefinementSession.queue(agent, "weekly", at=NOW)

    assert session.claim(NOW + 28 * DAY) is not None


@pytest.mark.parametrize("trigger", AUTOMATIC)
def test_an_automatic_session_is_skipped_where_the_account_was_paused_since(agent, trigger):
    session = RefinementSession.queue(agent, trigger, at=NOW)
    agent.account.paused = True

    lease_token = session.claim(NOW)

    assert lease_token is None
    assert (session.status, session.end_reason) == ("skipped", "its account is paused")


# -- what is tried again ---------------------------------------------------------------------------


def is_candidate(agent, at=NOW):
    return chosen(scheduling.failed_last(at)) == [agent.id]


def is_due_again(session, at=NOW):
    return is_candidate(session.agent, at) and scheduling.is_retry_due(session, at)


@pytest.mark.parametrize("trigger", AUTOMATIC)
@pytest.mark.parametrize(("attempt", "minutes"), [(1, 5), (2, 30), (3, 120)])
def test_a_failed_session_is_due_again_after_its_pause(over_budget, trigger, attempt, minutes):
    pause = timedelta(minutes=minutes)
    session = past(over_budget, "failed", at=NOW, trigger=trigger, attempt=attempt)

    dues = [is_due_again(session, NOW + pause + each) for each in (-MOMENT, 0 * HOUR, HOUR)]

    assert dues == [False, True, True]


@pytest.mark.parametrize(("attempt", "minutes"), [(1, 5), (2, 30)])
def test_the_pause_begins_at_the_end_of_the_failed_session(agent, attempt, minutes):
    session = past(agent, "failed", at=NOW, ended_at=NOW + HOUR, attempt=attempt)

    assert not is_due_again(session, NOW + HOUR + timedelta(minutes=minutes - 1))
    assert is_due_again(session, NOW + HOUR + timedelta(minutes=minutes))


@pytest.mark.parametrize("attempt", [4, 5])
def test_after_three_retries_there_is_no_other(agent, attempt):
    session = past(agent, "failed", attempt=attempt)

    assert not is_candidate(agent)
    assert not scheduling.is_retry_due(session, NOW)


@pytest.mark.parametrize("trigger", BY_HAND)
def test_a_failure_of_a_session_asked_for_by_hand_is_not_tried_again(agent, trigger):
    session = past(agent, "failed", trigger=trigger)

    assert not is_candidate(agent)
    assert not scheduling.is_retry_due(session, NOW)


@pytest.mark.parametrize(
    "status", ["completed", "rolled_back", "incomplete", "declined", "skipped"]
)
def test_no_other_end_is_tried_again(agent, status):
    session = past(agent, status)

    assert not is_candidate(agent)
    assert not scheduling.is_retry_due(session, NOW)


def test_a_failure_of_before_the_last_slot_is_not_tried_again(agent):
    session = past(agent, "failed", at=SLOT - MOMENT)

    assert scheduling.is_retry_due(session, SLOT - MOMENT + HOUR) is False
    assert is_due_again(past(agent, "failed", at=SLOT), SLOT + HOUR)


def test_a_failure_that_ended_after_the_slot_is_tried_again(agent):
    session = past(agent, "failed", at=SLOT - HOUR, ended_at=SLOT)

    assert is_due_again(session, SLOT + HOUR)


@pytest.mark.parametrize("status", ["failed", "declined", "skipped", "completed"])
@pytest.mark.parametrize("trigger", ["weekly", "cli"])
def test_a_failure_that_another_session_followed_is_not_tried_again(agent, status, trigger):
    past(agent, "failed", at=NOW - DAY)

    past(agent, status, at=NOW - DAY + MOMENT, trigger=trigger, attempt=4)

    assert not is_candidate(agent)


@pytest.mark.parametrize("status", ["queued", "running"])
def test_a_failure_that_a_live_session_followed_is_not_tried_again(agent, status):
    past(agent, "failed", at=NOW - DAY)

    live(agent, status)

    assert not is_candidate(agent)


def test_a_failure_that_came_after_other_sessions_is_tried_again(agent):
    past(agent, "completed", at=NOW - 2 * DAY, **removed(1))

    assert is_due_again(past(agent, "failed"))


def test_a_failure_that_another_agents_session_followed_is_tried_again(agent):
    session = past(agent, "failed")

    past(factories.agent(), at=NOW)

    assert is_due_again(session)


@pytest.mark.parametrize("state", [{"paused": True}, {"active": False}])
def test_nobody_is_tried_again_who_is_switched_off(agent, state):
    past(agent, "failed")

    for name, value in state.items():
        setattr(agent, name, value)

    assert not is_candidate(agent)


def test_the_agents_of_a_paused_account_are_not_tried_again(agent):
    session = past(agent, "failed")

    agent.account.paused = True

    assert not is_candidate(agent)
    assert not scheduling.is_retry_due(session, NOW)


def test_nobody_is_tried_again_who_has_no_memory_to_change_any_more(agent):
    past(agent, "failed")

    for memory in db.session.scalars(agent.ledger.core()):
        memory.set_constitutional(True)

    assert not is_candidate(agent)


def test_who_is_within_the_budget_again_is_not_tried_again_for_it(over_budget):
    session = past(over_budget, "failed", trigger="over_budget")
    was_due = is_due_again(session)

    over_budget.core_token_budget = 100

    assert was_due
    assert not is_due_again(session)


def test_what_forbids_to_ask_forbids_to_try_again(agent):
    session = past(agent, "failed")
    was_due = is_due_again(session)

    agent.account.monthly_cost_cap_usd = Decimal(0)

    assert was_due
    assert not is_due_again(session)


def test_another_attempt_is_of_the_same_slot_and_trigger_and_counted(over_budget):
    failed = past(over_budget, "failed", trigger="over_budget", slot_at=SLOT, attempt=2)

    again = failed.queue_again(NOW)

    assert (again.trigger, again.slot_at, again.attempt) == ("over_budget", SLOT, 3)
    assert (again.status, again.created_at) == ("queued", NOW)
    assert failed.status == "failed"


# -- whose worker was lost -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("silence", "is_lost"),
    [(timedelta(0), False), (LOST_AFTER, False), (LOST_AFTER + MOMENT, True)],
)
def test_lost_is_a_running_session_that_gave_no_sign_for_too_long(agent, silence, is_lost):
    live(agent, "running").heartbeat_at = NOW - silence

    assert chosen(RefinementSession.lost(NOW)) == ([agent.id] if is_lost else [])


@pytest.mark.parametrize("status", ["queued", "completed", "failed"])
def test_what_does_not_run_is_not_lost(agent, status):
    live(agent, "running").heartbeat_at = NOW - DAY
    db.session.commit()
    ended_at = "NULL" if status == "queued" else "now()"
    sql.run(
        f"""UPDATE refinement_sessions
            SET status = '{status}', lease_token = NULL, ended_at = {ended_at}"""
    )

    assert chosen(RefinementSession.lost(NOW)) == []


# -- looking back ----------------------------------------------------------------------------------


def test_the_latest_session_is_the_youngest_whatever_became_of_it(agent):
    past(agent, "completed", at=NOW - 3 * DAY)
    past(factories.agent(), "completed", at=NOW)
    latest = past(agent, "skipped", at=NOW - DAY)
    past(agent, "failed", at=NOW - 2 * DAY)

    assert RefinementSession.latest_of(agent) is latest


def test_who_had_no_session_has_no_latest(agent):
    assert RefinementSession.latest_of(agent) is None
