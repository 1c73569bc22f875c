"""The demo account: agents of the rehearsal model that show every outcome."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import select

from refine import clock
from refine.extensions import db
from refine.models import Account, Agent, AgentMemory, PeriodicWork

# The agent that the first steps begin with.
FIRST_AGENT = "Wren"
_FILE = Path(__file__).parent / "agents.json"


def load_into_empty_database() -> Account | None:
    """Add the demo account; return None, and change nothing, if there is any account."""
    if db.session.scalar(select(Account.id).limit(1)) is not None:
        return None
    data = json.loads(_FILE.read_text(encoding="utf-8"))
    account = Account(**data["account"])
    db.session.add(account)
    db.session.flush()
    account.record("account_created")
    for described in data["agents"]:
        _add(account, described)
    # the first hourly check comes in an hour, so that newcomers find the agents as described
    PeriodicWork.note("budget_check", clock.now())
    return account


def _add(account: Account, described: dict[str, Any]) -> None:
    memories = described.pop("memories")
    agent = Agent(account=account, **described)
    db.session.add(agent)
    db.session.flush()
    now = clock.now()
    # oldest first, so that ids follow dates
    for memory in sorted(memories, key=lambda memory: -memory["days_ago"]):
        created_at = now - timedelta(days=memory.pop("days_ago"))
        db.session.add(AgentMemory(agent=agent, created_at=created_at, **memory))
    db.session.flush()
