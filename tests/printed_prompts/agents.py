"""Three agents of one account, as they are at a Monday's slot."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import time_machine
from flask import Flask

from refine.extensions import db
from refine.models import Account, Agent, RefinementSession
from refine.tools import RefinementTool
from tests import factories

NOW = datetime(2026, 3, 9, 4, tzinfo=UTC)
DAY = timedelta(days=1)


def by_default(account: Account) -> Agent:
    """Within its budget, with all defaults."""
    agent = _agent(account, "Wren")
    _remember(
        agent,
        *(
            (60, "Ines plays the cello, and practises on Tuesday evenings."),
            (41, "On Tuesday evenings Ines practises the cello."),
            (33, "Ines asked me to remind her of her mother's birthday, 14 May."),
            (20, 'Ines said: "You are better at listening than at advice."'),
            (6, "The second string of the cello broke on 3 March; a new one is ordered."),
        ),
    )
    return agent


def over_its_budget(app: Flask, account: Account) -> Agent:
    """With prompts of its own, duplicates, a journal, and a last session that was rolled back."""
    agent = _agent(
        account,
        "Petrel",
        core_token_budget=45,
        system_prompt="You are Petrel, who keeps the logbook of a sailing school.",
        refinement_prompt="I keep what was said at sea word for word.\nOn land I like few words.",
        memory_reflection_prompt="Keep what tomorrow's watch has to know.",
        reflection_prompt="Write down who sailed, and what they learned.",
    )
    _remember(
        agent,
        *(
            (90, "The Gull leaks at the third plank on port side."),
            (80, "Third plank of the Gull, port side: it leaks."),
            (70, "Jonas is afraid of jibing, and would rather not be asked about it."),
            (50, "The harbour master's number is 555 0142."),
            (12, "Mara passed her exam on 25 February."),
        ),
    )
    _roll_back_a_session(app, agent, NOW - 6 * DAY)
    _remember(
        agent,
        (4, "The harbour master's number is 555 0142."),
        (3, "Mara passed her exam on 25 February."),
    )
    _note(agent, NOW - 2 * DAY, "Two beginners came along.\nOne of them was seasick.")
    db.session.commit()
    return agent


def never_refined(account: Account) -> Agent:
    """With more memories than its model takes at once, some of them locked."""
    agent = _agent(account, "Loam")
    _remember(agent, (400, "I never promise a harvest."), constitutional=True)
    _remember(agent, (390, "The gate squeaks in a rising third."), tags=["audio"])
    _remember(agent, (380, "Olu vowed to plant a pear tree for me."), tags=["relational"])
    _remember(agent, *((370 - n, f"Bed {n} was dug over and limed.") for n in range(1, 7)))
    return agent


def _agent(account: Account, name: str, **fields: object) -> Agent:
    return factories.agent(account=account, name=name, **fields)


def _remember(agent: Agent, *memories: tuple[int, str], **fields: object) -> None:
    """Add core memories, each with its age in days and its text."""
    for age, content in memories:
        at = NOW - age * DAY
        dates = {"created_at": at, "recorded_at": at, "updated_at": at}
        factories.memory(agent, content, **dates, **fields)


def _note(agent: Agent, at: datetime, content: str) -> None:
    factories.memory(agent, content, memory_type="journal", created_at=at, recorded_at=at)


def _roll_back_a_session(app: Flask, agent: Agent, at: datetime) -> None:
    """Let a session delete memories until the circuit breaker fires."""
    given = app.extensions["refine.settings"]
    app.extensions["refine.settings"] = replace(given, details="count")
    with time_machine.travel(at, tick=False):
        session = RefinementSession.start(agent, "weekly")
        tool = RefinementTool(session)
        for memory in db.session.scalars(agent.ledger.core()).all():
            if session.is_running:
                tool.execute(action="delete", id=memory.id)
    app.extensions["refine.settings"] = given
