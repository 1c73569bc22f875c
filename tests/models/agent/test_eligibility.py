"""Every rule that stands in Python for one row and in SQL for many chooses the same rows."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from sqlalchemy import Column, select
from sqlalchemy.sql import visitors

from refine.extensions import db
from refine.models import Agent, AgentMemory
from refine.models.agent import eligibility
from refine.models.agent.eligibility import NO_KEY, NOT_REHEARSED, Group, grouped_by
from refine.models.ledger.ledger import Composition
from refine.models.ledger.memory import JOURNAL_SHOWN_FOR, is_of_kind
from refine.models.people.account import DEMO_SLUG
from tests import factories

# A Wednesday noon, and the last slot before it.
NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
SLOT = datetime(2026, 3, 2, 4, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
EITHER = (False, True)


@pytest.fixture
def agents(app):
    """An agent in each state: switched off or not, erased or not, with or without work to do."""
    accounts = [factories.account(paused=paused, next_due_at=SLOT) for paused in EITHER]
    states = list(
        product(
            accounts,
            EITHER,
            EITHER,
            EITHER,
            ("no memory", "a locked memory", "an unlocked memory"),
            (9, 10),
            (None, SLOT - MOMENT, SLOT),
        )
    )
    ids = iter(AgentMemory.next_ids(len(states)))
    made = []
    for account, active, paused, _, ledger, budget, refined_at in states:
        agent = Agent(
            account=account,
            name="Ada",
            model_id="test/model",
            active=active,
            paused=paused,
            core_token_budget=budget,
            last_refinement_at=refined_at,
        )
        made.append(agent)
        db.session.add(agent)
        if ledger != "no memory":
            db.session.add(
                AgentMemory(
                    id=next(ids),
                    agent=agent,
                    content=factories.text_of(10),
                    constitutional=ledger == "a locked memory",
                )
            )
    db.session.flush()
    for agent, (*_, is_erased, _, _, _) in zip(made, states, strict=True):
        if is_erased:
            agent.wrapped_key.wrapped, agent.wrapped_key.destroyed_at = None, NOW
    db.session.flush()
    return made


@pytest.fixture
def memories(app):
    """A memory in each state: kept or not, locked or not, new or old."""
    agent = factories.agent()
    states = list(
        product(
            ("core", "journal"),
            EITHER,
            (None, NOW),
            ([], ["relational"], ["voice"], ["audio", "relational"]),
            (NOW, NOW - JOURNAL_SHOWN_FOR + MOMENT, NOW - JOURNAL_SHOWN_FOR),
        )
    )
    columns = ("memory_type", "constitutional", "discarded_at", "tags", "created_at")
    made = [
        AgentMemory(
            id=id_, agent=agent, content="a memory", **dict(zip(columns, state, strict=True))
        )
        for id_, state in zip(AgentMemory.next_ids(len(states)), states, strict=True)
    ]
    db.session.add_all(made)
    db.session.flush()
    return made


class Watched:
    """A row that notes what is read of it."""

    def __init__(self, row, read):
        self._row, self._read = row, read

    def __getattr__(self, name):
        self._read.add(name)
        return getattr(self._row, name)


def assert_same(rows, in_python, in_sql):
    """Both rules choose the same rows, which differ in every column that either of them reads."""
    model, read = type(rows[0]), set()
    chosen = {row.id for row in rows if in_python(Watched(row, read))}
    assert chosen == set(db.session.scalars(select(model.id).where(in_sql)))
    assert 0 < len(chosen) < len(rows), "the rule tells no rows apart"
    for part in visitors.iterate(in_sql):
        if isinstance(part, Column) and part.table == model.__table__:
            read.add(part.name)
    for name in read.intersection(model.__table__.columns.keys()):
        values = {str(getattr(row, name)) for row in rows}
        assert len(values) > 1, f"no row tells whether both rules read {name}"


def is_shown_journal(memory):
    age = NOW - memory.created_at
    return memory.memory_type == "journal" and not memory.discarded and age < JOURNAL_SHOWN_FOR


def needs_refinement(agent):
    """Whether it does, as the agent says itself, and as its state does."""
    refined_at = agent.last_refinement_at
    is_needed = (
        eligibility.unavailable_reason(agent, automatic=True) is None
        and eligibility.has_unlocked_core_memory(agent)
        and (refined_at is None or refined_at < SLOT or agent.is_over_budget)
    )
    assert agent.needs_refinement(NOW) == is_needed
    return is_needed


def test_the_rules_for_agents_choose_the_same_ones_in_python_and_in_sql(agents, subtests):
    due = eligibility.is_due_since(SLOT)
    for name, in_python, in_sql in [
        (
            "available by hand",
            lambda agent: eligibility.unavailable_reason(agent, automatic=False) is None,
            eligibility.is_available(automatic=False),
        ),
        (
            "available to the clock",
            lambda agent: eligibility.unavailable_reason(agent, automatic=True) is None,
            eligibility.is_available(automatic=True),
        ),
        (
            "with a next session",
            lambda agent: eligibility.next_session_at(agent) is not None,
            eligibility.is_available(automatic=True),
        ),
        (
            "unlocked",
            eligibility.has_unlocked_core_memory,
            eligibility.with_unlocked_core_memory(),
        ),
        ("over budget", lambda agent: agent.is_over_budget, Agent.over_budget),
        ("needs refinement", needs_refinement, eligibility.is_refinable() & due),
    ]:
        with subtests.test(name):
            assert_same(agents, in_python, in_sql)


def why_unavailable(*, automatic):
    return eligibility.first_of(eligibility.obstacles(automatic=automatic))


@pytest.mark.parametrize("automatic", EITHER)
def test_why_agents_may_not_be_asked_is_the_same_in_python_and_in_sql(agents, automatic):
    in_sql = dict(db.session.execute(select(Agent.id, why_unavailable(automatic=automatic))).all())

    in_python = {
        agent.id: eligibility.unavailable_reason(agent, automatic=automatic) for agent in agents
    }
    assert in_sql == in_python
    assert len({*in_python.values()}) == (5 if automatic else 3)


def test_the_rules_for_memories_choose_the_same_ones_in_python_and_in_sql(memories, subtests):
    for name, in_python, in_sql in [
        ("discarded", lambda memory: memory.discarded, AgentMemory.discarded),
        ("kept core", lambda memory: memory.is_kept_core, AgentMemory.is_kept_core),
        ("locked", lambda memory: memory.is_locked, AgentMemory.is_locked),
        ("shown journal", is_shown_journal, AgentMemory.is_shown_journal(NOW)),
    ]:
        with subtests.test(name):
            assert_same(memories, in_python, in_sql)


def test_the_composition_of_a_ledger_counts_its_memories_by_kind(memories):
    core = [memory for memory in memories if memory.is_kept_core]
    kept_journal = [
        memory for memory in memories if memory.memory_type == "journal" and not memory.discarded
    ]
    shown = sum(map(is_shown_journal, memories))
    factories.agent("another's memory")
    composition = memories[0].agent.ledger.composition(NOW)

    assert composition == Composition(
        core=len(core),
        core_tokens=sum(memory.token_estimate for memory in core),
        constitutional=sum(memory.constitutional for memory in core),
        locked=sum(memory.is_locked for memory in core),
        journal_shown=shown,
        journal_expired=len(kept_journal) - shown,
        discarded=sum(memory.discarded for memory in memories),
    )
    for kind, count in {
        "core": composition.core,
        "constitutional": composition.constitutional,
        "journal": composition.journal_shown,
        "expired": composition.journal_expired,
        "discarded": composition.discarded,
    }.items():
        mine = select(AgentMemory).where(AgentMemory.agent_id == memories[0].agent_id)
        found = db.session.scalars(mine.where(is_of_kind(kind, NOW))).all()
        assert len(found) == count, kind


def test_agents_are_grouped_by_why_they_may_not_be_asked(app):
    account = factories.account()
    for name in ("cy", "Bo", "Al"):
        factories.agent(account=account, name=name, active=False)
    ready = factories.agent(account=account, name="Di")

    groups = grouped_by(why_unavailable(automatic=False), Agent.account_id == account.id)

    assert list(groups) == [eligibility.NOT_ACTIVE, None]
    assert [name for _, name in groups[eligibility.NOT_ACTIVE].named] == ["Al", "Bo", "cy"]
    assert groups[None] == Group(None, [ready.id], ["Di"])
    assert (groups[None].number, groups[None].unnamed) == (1, 0)


@pytest.mark.parametrize(
    ("key", "rehearsal", "expected"),
    [
        ("a key", False, {"rehearsal/own": NOT_REHEARSED}),
        ("a key", True, {"rehearsal/own": NOT_REHEARSED}),
        (None, False, {"test/own": NO_KEY, "test/demo": NO_KEY, "rehearsal/own": NO_KEY}),
        (None, True, {"test/own": NO_KEY, "test/demo": NO_KEY}),
    ],
)
def test_python_and_sql_agree_on_unanswered_agents(set_setting, key, rehearsal, expected):
    set_setting(openrouter_api_key=key, rehearsal=rehearsal)
    for slug in (DEMO_SLUG, "own"):
        account = factories.account(slug=slug)
        for author in ("test", "rehearsal"):
            factories.agent(account=account, model_id=f"{author}/{slug}")
    db.session.flush()

    in_python = {
        agent.model_id: why
        for agent in db.session.scalars(select(Agent))
        if (why := eligibility.why_unanswered(agent)) is not None
    }
    in_sql = {
        model_id: why
        for why, is_so in eligibility.unanswered().items()
        for model_id in db.session.scalars(select(Agent.model_id).where(is_so))
    }

    assert in_python == in_sql == expected
