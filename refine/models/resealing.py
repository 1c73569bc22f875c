"""Binding what an earlier version sealed to its place, and its keys to their agents.

Agent by agent, in batches that each commit, while sessions run: until an agent is bound, both forms
open. Afterwards, what version 1 sealed opens only in audit records, which nobody may rewrite and
which the hash of their chain binds.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from sqlalchemy import ColumnElement, func, inspect, or_, select
from sqlalchemy.orm import ColumnProperty, undefer
from sqlalchemy.orm.attributes import flag_modified

from refine.errors import RowAltered, SealingError
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.attested import Attested
from refine.models.clients import ApiToken, IdempotencyKey
from refine.models.columns import place_of
from refine.models.keys import WrappedKey
from refine.models.ledger import AgentMemory
from refine.models.runs.access import AccessGrant
from refine.models.runs.session import RefinementSession
from refine.models.runs.task import MemoryTask
from refine.sealing import UNBOUND, is_unbound

_BATCH = 200


def sealed_columns(kind: type) -> dict[str, str]:
    """Return the names of a model's sealed columns, by those of the attributes."""
    attributes: Iterable[ColumnProperty[Any]] = inspect(kind).column_attrs
    return {each.key: each.columns[0].name for each in attributes if each.key.startswith("sealed_")}


def unbound_agents() -> int:
    """Return how many agents hold texts that may not be bound to their rows yet."""
    return db.session.scalar(select(func.count()).where(~Agent.is_bound)) or 0


def reseal_everything() -> Iterator[int]:
    """Bind everything that version 1 sealed; yield how many rows so far.

    What was altered outside the application stays as it is.
    """
    done = 0
    unbound = select(Agent.id).where(~Agent.is_bound).order_by(Agent.id)
    for agent_id in db.session.scalars(unbound).all():
        try:
            for batch in _reseal_agent(agent_id):
                yield (done := done + batch)
        except (RowAltered, SealingError):
            db.session.rollback()
    of_platform = IdempotencyKey.token_id.in_(
        select(ApiToken.id).where(ApiToken.agent_id.is_(None))
    )
    for batch in _reseal(IdempotencyKey, of_platform):
        yield (done := done + batch)
    if not unbound_agents():  # from then on, no key opens that is not bound to its agent
        WrappedKey.bind_platform()
    db.session.commit()


def _reseal_agent(agent_id: int) -> Iterator[int]:
    agent = db.session.get_one(Agent, agent_id)
    agent.lock()
    agent.require_genuine()
    if not agent.is_erased:
        tokens = select(ApiToken.id).where(ApiToken.agent_id == agent_id)
        yield from _reseal(Agent, Agent.id == agent_id, agent)
        yield from _reseal(AgentMemory, AgentMemory.agent_id == agent_id, agent)
        for kind in (RefinementSession, MemoryTask, AccessGrant):
            yield from _reseal(kind, kind.agent_id == agent_id, agent)
        yield from _reseal(IdempotencyKey, IdempotencyKey.token_id.in_(tokens), agent)
    agent.bind()
    db.session.commit()


def _reseal(kind: Any, mine: ColumnElement[bool], agent: Agent | None = None) -> Iterator[int]:
    """Re-seal these rows, batch by batch; yield how many rows each batch has."""
    firsts = (func.substring(getattr(kind, name), 1, 1) for name in sealed_columns(kind))
    unbound = (
        select(kind)
        .where(mine, or_(*(first == UNBOUND for first in firsts)))
        .order_by(kind.id)
        .limit(_BATCH)
        .with_for_update(of=kind, key_share=True)
        .options(undefer("*"))
        .execution_options(populate_existing=True)
    )
    after: ColumnElement[bool] | None = None
    while True:
        if agent is not None:
            agent.lock()  # the first lock of every change
        rows = db.session.scalars(unbound if after is None else unbound.where(after)).all()
        if not rows:
            break
        if kind is AgentMemory and agent is not None:
            agent.record("memories_resealed", data={"count": len(rows)})
        for row in rows:
            _reseal_row(row)
        after = kind.id > rows[-1].id
        db.session.commit()
        yield len(rows)


def _reseal_row(row: Any) -> None:
    if isinstance(row, Attested | AgentMemory) and not row.is_genuine:
        return
    key = row.data_key()
    for name, column in sealed_columns(type(row)).items():
        sealed, place = getattr(row, name), place_of(row, column)
        if is_unbound(sealed):
            with suppress(SealingError):
                setattr(row, name, key.seal(key.open(sealed, place), place))
    if isinstance(row, AgentMemory):
        flag_modified(row, "updated_at")  # stays as it is: nothing was changed
