"""What sessions of many agents may cost, estimated from what their sessions cost."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import false, func, select

from refine.extensions import db
from refine.models.columns import one_of_ids
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
    costs = (
        select(
            func.avg(_Session.cost_usd).label("mean"),
            func.max(_Session.cost_usd).label("most"),
            func.bool_or(_Session.unpriced_calls > 0).label("is_partial"),
        )
        .where(
            _Session.agent_id == one_of_ids(agent_ids),
            _Session.created_at > at - LOOKS_BACK,
            _Session.llm_calls > 0,
            _Session.status.not_in(LIVE),
        )
        .group_by(_Session.agent_id)
        .subquery()
    )
    unknown = len(agent_ids) - func.count()
    usd = func.sum(costs.c.mean) + unknown * func.avg(costs.c.mean)
    most_usd = func.sum(costs.c.most) + unknown * func.max(costs.c.most)
    is_partial = func.coalesce(func.bool_or(costs.c.is_partial), false())
    found = db.session.execute(select(unknown, usd, most_usd, is_partial).select_from(costs))
    return Estimate(len(agent_ids), *found.one())
