"""How far an agent's chain was verified."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import select

from refine.extensions import db
from refine.models import ChainHead


class ChainVerified(NamedTuple):
    """How far a chain was verified, and when; None if it never was."""

    verified_at: datetime | None
    verified_sequence: int
    records_since: int


def chain_verified(agent_id: int) -> ChainVerified | None:
    """Return it for this agent's chain; None if the agent has no records."""
    since = ChainHead.sequence - ChainHead.verified_sequence
    columns = ChainHead.verified_at, ChainHead.verified_sequence, since
    found = db.session.execute(select(*columns).where(ChainHead.is_of_agent(agent_id))).first()
    return ChainVerified(*found) if found is not None else None
