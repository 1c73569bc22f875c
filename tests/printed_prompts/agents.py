"""The agent of the page, as it is at a Monday's slot."""

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


def petrel(app: Flask, account: Account) -> Agent:
    """Over its budget, with prompts of its own, locked memories, duplicates, a journal, and a last
    session that was rolled back.
    """
    agent = factories.agent(
        account=account,
        name="Petrel",
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
    _remember(agent, (5, "I never promise good weather."), constitutional=True)
    _remember(agent, (5, "The bell of the Gull rings in G sharp."), tags=["audio"])
    _remember(
        agent,
        (4, "The harbour master's number is 555 0142."),
        (3, "Mara passed her exam on 25 February."),
    )
    _note(agent, NOW - 2 * DAY, "Two beginners came along.\nOne of them was seasick.")
    db.session.commit()
    return agent


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
