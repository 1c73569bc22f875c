"""What sessions of many agents may cost, estimated from what their sessions cost."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, BigInteger, Select, bindparam, false, func, select

from refine.extensions import instant
from refine.extensions.statements import plain_query
from refine.models.columns import one_of_parameter
from refine.models.runs.run import LIVE
from refine.models.runs.session.session import RefinementSession

LOOKS_BACK = timedelta(days=90)

_Session = RefinementSession


class Estimate(NamedTuple):
    """What a session of each of these agents may cost: on average, and at most.

    An agent counts with the mean, and with the dearest, of its sessions in the last ``LOOKS_BACK``
    that asked a model. One of ``unknown`` agents, without such a session, counts as the mean, and
    as the dearest, of the others. Both figures are None if all are unknown. ``is_partial``: the
    cost of some calls is unknown, and they are not counted.
    """

    agents: int
    unknown: int
    usd: Decimal | None
    most_usd: Decimal | None
    is_partial: bool

    @property
    def known(self) -> int:
        """How many agents had a session that tells."""
        return self.agents - self.unknown


def estimate(at: datetime, agent_ids: Sequence[int]) -> Estimate:
    """Return what a session of each of these agents may cost, in one statement."""
    return Estimate(*_estimate().rows(since=at - LOOKS_BACK, agent_ids=agent_ids)[0])


@plain_query
def _estimate() -> Select[*tuple[Any, ...]]:
    costs = (
        select(
            _Session.agent_id,
            func.avg(_Session.cost_usd).label("mean"),
            func.max(_Session.cost_usd).label("most"),
            func.bool_or(_Session.unpriced_calls > 0).label("is_partial"),
        )
        .where(
            _Session.agent_id == one_of_parameter("agent_ids"),
            _Session.created_at > instant("since"),
            _Session.llm_calls > 0,
            _Session.status.not_in(LIVE),
        )
        .group_by(_Session.agent_id)
        .subquery()
    )
    agents = func.cardinality(bindparam("agent_ids", type_=ARRAY(BigInteger)))
    unknown = agents - func.count()
    usd = func.sum(costs.c.mean) + unknown * func.avg(costs.c.mean)
    most_usd = func.sum(costs.c.most) + unknown * func.max(costs.c.most)
    is_partial = func.coalesce(func.bool_or(costs.c.is_partial), false())
    return select(agents, unknown, usd, most_usd, is_partial).select_from(costs)
