"""How far the chains of the records on a page were verified."""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Select, bindparam, func, select

from refine.extensions.statements import plain_query
from refine.models import Agent, ChainHead
from refine.models.columns import account_parameter
from refine.web import scope


class ChainsVerified(NamedTuple):
    """How far the chains of a page were verified, and when."""

    total: int
    verified: int
    verified_at: datetime | None
    verified_sequence: int | None
    records_since: int

    @property
    def is_unverified(self) -> bool:
        return self.verified == 0


def chains_verified(agent_id: int | None) -> ChainsVerified:
    """Return it for an agent's chain, or for all that this page is about."""
    account_id = scope.account_id()
    chains = _chains_of(is_of_agent=agent_id is not None, is_of_account=account_id is not None)
    return ChainsVerified(*chains.rows(agent_id=agent_id, account_id=account_id)[0])


@plain_query
def _chains_of(*, is_of_agent: bool, is_of_account: bool) -> Select[*tuple[Any, ...]]:
    chains = select(
        func.count(),
        func.count(ChainHead.verified_at),
        func.min(ChainHead.verified_at),
        func.max(ChainHead.verified_sequence),
        func.coalesce(func.sum(ChainHead.sequence - ChainHead.verified_sequence), 0),
    )
    if is_of_agent:
        return chains.where(ChainHead.is_of_agent(bindparam("agent_id", type_=BigInteger)))
    if is_of_account:
        account_id = account_parameter(is_of_account=True)
        agents = select(Agent.id).where(Agent.account_id == account_id)
        chains = chains.where((ChainHead.account_id == account_id) | ChainHead.agent_id.in_(agents))
    return chains
