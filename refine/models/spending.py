"""What an account's agents cost: by all that asks their models on its own."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import func, select

from refine.extensions import Base, db
from refine.models.account import Account
from refine.models.agent import Agent
from refine.rules.due import month_start

# By name: the models of these tables look at the cap themselves.
_SPENDING = ("refinement_sessions", "memory_tasks")


def cost_usd_of_month(account: Account, at: datetime) -> Decimal:
    """Return what sessions, reflections and extractions cost since the account's month began.

    In the account's own time zone.
    """
    since = month_start(account.time_zone, at)
    return sum((_spent(name, account, since) for name in _SPENDING), Decimal(0))


def _spent(name: str, account: Account, since: datetime) -> Decimal:
    spending = Base.metadata.tables[name].c
    spent = (
        select(func.coalesce(func.sum(spending.cost_usd), 0))
        .join(Agent, Agent.id == spending.agent_id)
        .where(Agent.account_id == account.id, spending.created_at >= since)
    )
    return Decimal(db.session.scalar(spent) or 0)
