"""Prospects: whom a sweep would ask, whom not and why, and what it may cost."""

from decimal import Decimal

import pytest
from flask import Flask
from redis import Redis
from sqlalchemy import select

from refine import clock
from refine.extensions import db
from refine.jobs.batches import act_on
from refine.jobs.tick import run_tick
from refine.models import Account, Agent, RefinementSession, User
from refine.models.agent.eligibility import (
    ACCOUNT_PAUSED,
    ERASED,
    NOT_ACTIVE,
    NOT_REHEARSED,
    PAUSED,
    Group,
)
from refine.models.runs.session.scheduling import (
    NOT_DUE,
    NOTHING_TO_REFINE,
    RUNNING,
    WAITING,
    Prospects,
)
from refine.models.runs.session.session import ERODED
from tests import factories
from tests.sql import statements_of


@pytest.fixture
def account(app: Flask, redis: Redis) -> Account:
    return factories.account(schedule="0 0 1 1 *")


@pytest.fixture
def user(account: Account) -> User:
    return factories.user(account=account)


def made(account: Account, name: str, **fields: object) -> Agent:
    return factories.agent("one memory", account=account, name=name, **fields)


def cost(owner: Agent, usd: str) -> None:
    """A session that has cost so much."""
    session = RefinementSession.queue(owner, "manual")
    session.llm_calls, session.cost_usd = 3, Decimal(usd)
    session.finish("declined", "it said no")


def one_of_each(account: Account) -> dict[str, str]:
    """An agent for each reason to be left out, by its name."""
    made(account, "off").active = False
    factories.erase(made(account, "erased"))
    made(account, "paused").paused = True
    factories.agent(account=account, name="empty")
    made(account, "content").last_refinement_at = clock.now()
    RefinementSession.queue(made(account, "queued"), "manual")
    factories.session(made(account, "busy"))
    eroded = RefinementSession.queue(made(account, "eroded"), "manual")
    eroded.removable_tokens = eroded.removed_tokens = 1_000
    eroded.finish("completed", "done")
    eroded.agent.last_refinement_at = None
    db.session.commit()
    return {
        "off": NOT_ACTIVE,
        "erased": ERASED,
        "paused": PAUSED,
        "empty": NOTHING_TO_REFINE,
        "content": NOT_DUE,
        "queued": WAITING,
        "busy": RUNNING,
        "eroded": ERODED,
    }


def names(group: Group | None) -> list[str]:
    assert group is not None
    return [name for _, name in group.named]


def told(account: Account) -> dict[str, str]:
    """The reason why each agent is left out."""
    found = Prospects.of(account, clock.now())
    return {name: str(group.reason) for group in found.left_out for _, name in group.named}


def test_every_agent_that_is_left_out_is_told_with_its_reason(account):
    reasons = one_of_each(account)
    made(account, "ready")
    made(factories.account(), "elsewhere")
    db.session.commit()

    found = Prospects.of(account, clock.now())

    assert told(account) == reasons
    assert names(found.asked) == ["ready"]


def test_a_sweep_does_what_was_told(account):
    one_of_each(account)
    for name in ("ready", "over"):
        made(account, name)
    account.request_sweep()
    db.session.commit()
    asked = names(Prospects.of(account, clock.now()).asked)

    run_tick()

    swept = select(RefinementSession).where(RefinementSession.trigger == "weekly")
    queued = {each.agent.name for each in db.session.scalars(swept)}
    assert queued == {*asked} == {"ready", "over"}


def test_a_chosen_agent_that_nobody_answers_gets_no_session(account, user):
    agent = made(account, "rehearsed", model_id="rehearsal/any")
    db.session.commit()

    outcome = act_on([agent.id], "refine", user)

    assert (outcome.done, dict(outcome.skipped)) == (0, {NOT_REHEARSED: 1})


def test_a_chosen_agent_without_memories_gets_no_session(account, user):
    agent = factories.agent(account=account)
    db.session.commit()

    outcome = act_on([agent.id], "refine", user)

    assert (outcome.done, dict(outcome.skipped)) == (0, {NOTHING_TO_REFINE: 1})


def test_an_agent_over_its_budget_is_asked_though_it_was_refined_since_the_slot(account):
    over = made(account, "over", core_token_budget=1)
    over.last_refinement_at = clock.now()
    db.session.commit()

    assert names(Prospects.of(account, clock.now()).asked) == ["over"]


def test_nobody_is_asked_while_the_account_is_paused_or_its_cap_is_reached(account):
    made(account, "ready")
    account.monthly_cost_cap_usd = Decimal(0)
    db.session.commit()
    at_cap = Prospects.of(account, clock.now())
    account.paused = True
    db.session.commit()

    while_paused = Prospects.of(account, clock.now())

    assert (at_cap.asked, while_paused.asked) == (None, None)
    assert [group.reason for group in at_cap.left_out] == [
        "the account's monthly cost cap of $0.00 is reached"
    ]
    assert [group.reason for group in while_paused.left_out] == [ACCOUNT_PAUSED]


def test_the_cost_is_that_of_those_who_are_asked(account):
    cost(made(account, "ready"), "0.10")
    cost(made(account, "paused", paused=True), "7")
    db.session.commit()

    assert Prospects.of(account, clock.now()).cost == Decimal("0.10")


def test_it_takes_as_many_statements_however_many_agents_there_are(account):
    made(account, "first")
    db.session.commit()
    few = statements_of(lambda: Prospects.of(account, clock.now()))
    for number in range(30):
        made(account, f"number {number}", model_id=f"model/{number}")
    db.session.commit()

    assert statements_of(lambda: Prospects.of(account, clock.now())) == few
