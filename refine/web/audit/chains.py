"""How far an agent's chain was verified."""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Select, bindparam, select

from refine.extensions.statements import plain_query
from refine.models import ChainHead


class ChainVerified(NamedTuple):
    """How far a chain was verified, and when; None if it never was."""

    verified_at: datetime | None
    verified_sequence: int
    records_since: int


def chain_verified(agent_id: int) -> ChainVerified | None:
    """Return it for this agent's chain; None if the agent has no records."""
    found = _chain().rows(agent_id=agent_id)
    return ChainVerified(*found[0]) if found else None


@plain_query
def _chain() -> Select[*tuple[Any, ...]]:
    since = ChainHead.sequence - ChainHead.verified_sequence
    is_of_agent = ChainHead.is_of_agent(bindparam("agent_id", type_=BigInteger))
    return select(ChainHead.verified_at, ChainHead.verified_sequence, since).where(is_of_agent)
