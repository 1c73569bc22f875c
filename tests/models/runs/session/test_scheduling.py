from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product

import pytest
import time_machine
from sqlalchemy import select

from refine.extensions import db
from refine.models import RefinementSession
from refine.models.agent import configuring
from refine.models.runs.session import scheduling
from refine.models.runs.session.scheduling import Candidates
from tests import factories
from tests.models.cases import case, set_fields

# A Wednesday noon; the last slot was on Monday at 04:00.
NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
SLOT = datetime(2026, 3, 2, 4, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
BY_HAND = ["manual", "api", "cli"]
AUTOMATIC = ["weekly", "over_budget"]
ANSWERED = ["declined", "completed", "incomplete", "rolled_back"]
UNCHANGED = "nothing changed since the last session, which removed nothing"


@pytest.fixture(autouse=True)
def now():
    """What happens in a test without a time of its own happens now."""
    with time_machine.travel(NOW, tick=False):
        yield


def past(owner, status="completed", at=NOW - DAY, **fields):
    """A session that was asked for and ended at one instant."""
    usual = {"trigger": "weekly", "model_id": "test/model", "threshold": "0.75"}
    dates = {"created_at": at, "started_at": at, "ended_at": at}
    memories, mass = owner.ledger.core_totals()
    figures = {"memories_after": memories, "mass_after": mass}
    made = RefinementSession(agent=owner, status=status, **{**usual, **dates, **figures, **fields})
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


def due_for_slot(agent):
    return chosen(scheduling.due_for_slot(agent.account, SLOT)) == [agent.id]


def is_over_budget(agent):
    return chosen(scheduling.over_budget(NOW)) == [agent.id]


def with_failed_last_session(agent, at=NOW):
    return chosen(scheduling.with_failed_last_session(at)) == [agent.id]


def retry_of(agent, at=NOW):
    db.session.flush()
    return Candidates([agent], at).retry_of(agent)


def is_retry_due(session, at=NOW):
    return with_failed_last_session(session.agent, at) and retry_of(session.agent, at) is not None


def must_wait(agent, at=NOW):
    return Candidates([agent], at).must_wait(agent)


def cools_down_until(agent):
    return Candidates([agent], NOW).cools_down_until(agent)


def lock_all(agent):
    for memory in db.session.scalars(agent.ledger.core()):
        memory.constitutional = True


# -- all automatic sessions ------------------------------------------------------------------------


def test_an_agent_that_may_not_be_refined_is_never_chosen(over_budget, subtests):
    past(over_budget, "failed", at=SLOT - DAY)
    for name, change in {
        "paused": lambda: setattr(over_budget, "paused", True),
        "inactive": lambda: setattr(over_budget, "active", False),
        "account paused": lambda: setattr(over_budget.account, "paused", True),
        "erased": lambda: factories.erase(over_budget),
        "all memories locked": lambda: lock_all(over_budget),
    }.items():
        for choice in (due_for_slot, is_over_budget, with_failed_last_session):
            with case(subtests, state=name, choice=choice.__name__):
                assert choice(over_budget)
                change()
                assert not choice(over_budget)


# -- due for a slot --------------------------------------------------------------------------------


def test_a_session_that_was_answered_since_serves_the_slot(agent, subtests):
    for status in ANSWERED:
        for trigger in [*BY_HAND, *AUTOMATIC]:
            for ended_at, is_due in [(SLOT - MOMENT, True), (SLOT, False)]:
                with case(subtests, status=status, trigger=trigger, ended_at=ended_at):
                    past(agent, status, at=SLOT - HOUR, ended_at=ended_at, trigger=trigger)
                    assert due_for_slot(agent) == is_due


def test_other_sessions_serve_the_slot_only_where_they_count_for_it(agent, subtests):
    for name, is_due, status, fields in [
        *((f"{each} failed", True, "failed", {"trigger": each}) for each in BY_HAND),
        *((f"{each} failed, to be retried", False, "failed", {"trigger": each})
          for each in AUTOMATIC),
        ("skipped", True, "skipped", {"trigger": "manual"}),
        *((f"{each} for this slot", False, each, {"at": SLOT - DAY, "slot_at": SLOT})
          for each in ("declined", "skipped", "failed")),
        ("declined for an earlier slot", True, "declined",
         {"at": SLOT - HOUR, "slot_at": SLOT - 7 * DAY}),
    ]:  # fmt: skip
        with case(subtests, session=name):
            past(agent, status, **{"at": SLOT + HOUR, **fields})
            assert due_for_slot(agent) == is_due


# -- over the budget -------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["queued", "running"])
def test_an_agent_with_a_live_session_is_not_chosen_for_its_budget(over_budget, status):
    live(over_budget, status)

    assert not is_over_budget(over_budget)


def test_only_an_answer_within_the_shortest_cooldown_keeps_an_agent_from_being_chosen(
    over_budget, subtests
):
    for status in [*ANSWERED, "failed", "skipped"]:
        for ended_at, is_past in [(NOW - DAY + MOMENT, False), (NOW - DAY, True)]:
            with case(subtests, status=status, ended_at=ended_at):
                past(over_budget, status, at=NOW - 2 * DAY, ended_at=ended_at)
                assert is_over_budget(over_budget) == (is_past or status not in ANSWERED)


# -- cooling down ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ANSWERED)
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
                assert cools_down_until(over_budget) == until


def test_the_last_answer_sets_the_cooldown(over_budget, subtests):
    past(over_budget, at=NOW - 4 * DAY, **removed(1))
    past(over_budget, "declined", at=NOW - 3 * DAY)
    for until, status, fields in [
        (DAY, "completed", removed(1)),
        (DAY, "completed", {"duplicates_removed": 1}),
        # a refusal counts as fruitless even where duplicates were removed
        (4 * DAY, "declined", {"duplicates_removed": 3}),
        *((4 * DAY, "declined", {"trigger": trigger}) for trigger in [*BY_HAND, *AUTOMATIC]),
        # without an answer the cooldown stays as it was
        (-DAY, "skipped", {"trigger": "manual"}),
        (-DAY, "failed", {"trigger": "manual"}),
    ]:
        with case(subtests, status=status, fields=fields):
            past(over_budget, status, at=NOW, **fields)
            assert cools_down_until(over_budget) == NOW + until


def test_a_session_that_removed_less_than_a_hundredth_of_the_mass_lengthens_the_cooldown(
    over_budget, subtests
):
    for mass, hours in [(100, 24), (500, 24), (501, 48)]:
        with case(subtests, mass=mass):
            past(over_budget, at=NOW, mass_before=mass, **removed(5))
            assert cools_down_until(over_budget) == NOW + timedelta(hours=hours)


def test_a_session_has_an_effect_alike_in_python_and_in_sql(agent, subtests):
    for status, mass, tokens, duplicates in product(
        [*ANSWERED, "failed"], [None, 100, 501], [0, 1, 5], [0, 2]
    ):
        with case(subtests, status=status, mass=mass, tokens=tokens, duplicates=duplicates):
            session = past(
                agent, status, mass_before=mass, duplicates_removed=duplicates, **removed(tokens)
            )
            found = db.session.scalar(select(RefinementSession.had_effect))
            assert found == session.had_effect


def test_an_agent_whose_last_session_has_its_own_retry_cools_down(over_budget, subtests):
    for is_waiting, failure in [
        (True, {"at": NOW - HOUR, "trigger": "weekly", "attempt": 4}),
        (True, {"at": NOW - HOUR, "trigger": "over_budget", "attempt": 4}),
        (False, {"at": NOW - HOUR, "trigger": "cli"}),
        (False, {"at": SLOT - MOMENT}),
    ]:
        with case(subtests, failure=failure):
            past(over_budget, "failed", **failure)
            assert must_wait(over_budget) == is_waiting


# -- skipping --------------------------------------------------------------------------------------


def skip_reason(agent, at=NOW):
    db.session.flush()
    return Candidates([agent], at).automatic_skip_reason(agent)


def test_an_agent_is_skipped_while_nothing_changed_since_a_fruitless_session(agent, subtests):
    for trigger in ("weekly", "manual"):
        with case(subtests, trigger=trigger):
            past(agent, trigger=trigger)
            assert skip_reason(agent) == UNCHANGED


@pytest.mark.parametrize("status", ["declined", "incomplete", "rolled_back"])
def test_after_a_no_or_an_end_without_completion_an_agent_is_asked_again(agent, status):
    past(agent, at=NOW - 2 * DAY)
    past(agent, status)

    assert skip_reason(agent) is None


def test_an_agent_is_skipped_for_at_most_four_slots_though_nothing_changes(agent, subtests):
    for ended_at in (SLOT, SLOT + MOMENT):
        past(agent, at=ended_at)
        for weeks, reason in [(0, UNCHANGED), (1, UNCHANGED), (4, UNCHANGED), (5, None), (9, None)]:
            with subtests.test(ended_at=ended_at, weeks=weeks):
                assert skip_reason(agent, SLOT + 7 * weeks * DAY + HOUR) == reason


def test_sessions_after_which_an_agent_is_asked_again(agent, subtests):
    past(agent, at=NOW - 2 * DAY)
    for name, fields in {
        "removed a few tokens": {"mass_before": 1_000, **removed(5)},
        "removed duplicates": {"duplicates_removed": 1},
        "undone": {"undone_at": NOW},
        "showed one of several batches": {"batch_through_id": 17},
    }.items():
        with case(subtests, session=name):
            past(agent, **fields)
            assert skip_reason(agent) is None


def test_a_change_of_memory_or_settings_ends_the_skipping(agent, subtests):
    first, second, *_ = db.session.scalars(agent.ledger.core()).all()
    second.discarded_at = NOW - 3 * DAY
    past(agent)
    second.updated_at = NOW - 3 * DAY
    for name, change in {
        "a memory added": lambda: agent.ledger.remember("something new", "core"),
        "a memory rewritten": lambda: setattr(first, "content", "something else"),
        "a memory protected": lambda: first.set_constitutional(True),
        "a memory discarded": lambda: first.discard(),
        "a memory restored": lambda: second.restore(),
        "a style authored": lambda: configuring.author(agent, "refinement_prompt", "Be bold."),
        "a model changed": lambda: agent.record("agent_settings_update"),
    }.items():
        with case(subtests, change=name):
            assert skip_reason(agent) == UNCHANGED
            change()
            assert skip_reason(agent) is None


def test_changes_by_others_during_the_session_count_as_a_change(agent, subtests):
    long_ago = dict.fromkeys(("recorded_at", "updated_at"), NOW - 3 * DAY)
    entry = factories.memory(agent, memory_type="journal", **long_ago)
    discarded = factories.memory(agent, discarded_at=NOW - 3 * DAY, **long_ago)
    past(agent, at=NOW - HOUR, ended_at=NOW + HOUR)
    later = NOW + DAY
    for name, change in {
        "a memory saved": lambda: factories.memory(agent),
        "an entry promoted": lambda: setattr(entry, "memory_type", "core"),
        "a memory restored": lambda: discarded.restore(),
        "a model changed": lambda: agent.record("agent_settings_update"),
    }.items():
        with case(subtests, change=name):
            assert skip_reason(agent, later) == UNCHANGED
            change()
            assert skip_reason(agent, later) is None


RULES = (
    Candidates.automatic_skip_reason,
    Candidates.must_wait,
    Candidates.cools_down_until,
    Candidates.retry_of,
    Candidates.due_trigger,
)


def test_many_agents_are_judged_as_each_of_them_alone(agent):
    others = [factories.agent(core_token_budget=1) for _ in range(7)]
    for each in others[1:]:
        factories.ledger(each, *[25] * 4)
    empty, declining, failing, eroded, refined, waiting, capped = others
    past(agent)
    past(declining, "declined")
    past(declining, at=NOW - 2 * DAY)
    past(failing, "failed", at=NOW - HOUR, slot_at=SLOT)
    past(eroded, **removed(99))
    refined.last_refinement_at = NOW
    live(waiting, "queued")
    capped.account.monthly_cost_cap_usd = Decimal(0)
    db.session.flush()
    agents = [agent, *others]
    together = Candidates(agents, NOW)

    for rule in RULES:
        judged = [rule(together, each) for each in agents]
        assert judged == [rule(Candidates([each], NOW), each) for each in agents], rule
        assert len(set(judged)) > 1, rule


# -- the cost cap ----------------------------------------------------------------------------------


def costly(owner, usd, **fields):
    return past(owner, cost_usd=Decimal(usd), **{"at": NOW, **removed(1), **fields})


@pytest.fixture
def capped(agent):
    agent.account.monthly_cost_cap_usd = Decimal("1.50")
    return agent


def test_an_agent_is_skipped_for_the_rest_of_the_month_once_the_cap_is_reached(capped):
    costly(capped, "1.50")

    assert skip_reason(capped) == "the account's monthly cost cap of $1.50 is reached"
    assert skip_reason(capped, NOW + 28 * DAY) is None


# -- retries ---------------------------------------------------------------------------------------


def test_a_failure_is_not_retried_once_another_session_followed(agent, subtests):
    past(agent, "completed", at=NOW - 2 * DAY, **removed(1))
    failure = past(agent, "failed", at=NOW - DAY)
    past(factories.agent(), at=NOW)
    assert is_retry_due(failure)

    for status in ("failed", "declined", "skipped", "completed"):
        for trigger in ("weekly", "cli"):
            with case(subtests, status=status, trigger=trigger):
                past(agent, status, at=NOW - DAY + MOMENT, trigger=trigger, attempt=4)
                assert not with_failed_last_session(agent)
    for status in ("queued", "running"):
        with case(subtests, status=status):
            live(agent, status)
            assert not with_failed_last_session(agent)


def test_a_failure_is_not_retried_while_the_agent_is_skipped_or_within_its_budget(
    over_budget, subtests
):
    session = past(over_budget, "failed", trigger="over_budget")
    for row, change in [
        (over_budget, {"core_token_budget": 100}),
        (over_budget.account, {"monthly_cost_cap_usd": Decimal(0)}),
        (over_budget.account, {"paused": True}),
    ]:
        with case(subtests, change=change):
            assert is_retry_due(session)
            set_fields(row, **change)
            db.session.flush()
            assert retry_of(session.agent) is None
