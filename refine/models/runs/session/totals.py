"""Sums over many sessions, for pages."""

from collections.abc import Collection
from datetime import date, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Date, cast, false, func, literal, or_, select

from refine.extensions import db
from refine.models.agent import Agent
from refine.models.runs.run import WORKER_LOST
from refine.models.runs.session.judging import CAUSES
from refine.models.runs.session.session import ANSWERED, CONSENTED_ENDS, RefinementSession
from refine.models.runs.spending import saved_by

_Session = RefinementSession
# The most of an agent's sessions that are listed.
_LATEST = 100
# A session never takes as long.
_LONGEST = timedelta(days=1)


class DayTotals(NamedTuple):
    """Sessions of one status requested on one day; ``saved_tokens`` without undone ones."""

    day: date
    status: str
    sessions: int
    saved_tokens: int
    lost: int


def by_day(account_id: int | None, zone: str, since: datetime) -> list[DayTotals]:
    """Return the sessions (of this account) since then, by local day and status."""
    day = cast(func.timezone(zone, _Session.created_at), Date).label("day")
    totals = (
        select(
            day,
            _Session.status,
            func.count(),
            func.sum(saved_by(_Session)),
            func.count().filter(_Session.error_kind == WORKER_LOST),
        )
        .where(_Session.in_account(account_id), _Session.created_at >= since)
        .group_by("day", _Session.status)
    )
    return [DayTotals(*row) for row in db.session.execute(totals)]


class Stuck(NamedTuple):
    """How many sessions in a row left an agent above its budget without effect, and the edits
    that were refused in them.
    """

    sessions: int
    refused: int


def stuck_above_budget(agent_ids: Collection[int]) -> dict[int, Stuck]:
    """Return the agents among these whose last session was such a one, as budgets are now."""
    if not agent_ids:
        return {}
    refused = [func.coalesce(_Session.stats[f"refused_{each}"].as_integer(), 0) for each in CAUSES]
    newest_first = _Session.created_at.desc()
    each = (
        select(
            Agent.id,
            sum(refused, literal(0)).label("refused"),
            func.bool_or(_relieved())
            .over(partition_by=Agent.id, order_by=newest_first)
            .label("was_relieved"),
        )
        .join(_Session, _Session.agent_id == Agent.id)
        .where(Agent.id.in_(agent_ids), _Session.status.in_(ANSWERED))
        .subquery()
    )
    stuck = (
        select(each.c.id, func.count(), func.sum(each.c.refused))
        .where(~each.c.was_relieved)
        .group_by(each.c.id)
    )
    return {id_: Stuck(*counted) for id_, *counted in db.session.execute(stuck)}


def is_stuck() -> ColumnElement[bool]:
    """Match agents whose last answered session left them above their budget without effect."""
    mine = _Session.agent_id == Agent.id, _Session.status.in_(ANSWERED)
    last = select(~_relieved()).where(*mine).order_by(_Session.created_at.desc()).limit(1)
    return func.coalesce(last.correlate(Agent).scalar_subquery(), false())


def _relieved() -> ColumnElement[bool]:
    return or_(_Session.had_effect, _Session.mass_after <= Agent.core_token_budget)


class Left(NamedTuple):
    """What a session found and left: token masses; ``is_kept``: it was not rolled back."""

    ended_at: datetime
    found_tokens: int
    tokens: int
    saved_tokens: int
    session_id: UUID
    is_kept: bool


def left_by_sessions(agent_id: int, since: datetime) -> list[Left]:
    """Return what the last sessions left."""
    left = (
        select(
            _Session.ended_at,
            _Session.mass_after + _Session.saved_tokens,
            _Session.mass_after,
            saved_by(_Session),
            _Session.id,
            _Session.status != "rolled_back",
        )
        .where(
            _Session.agent_id == agent_id,
            _Session.created_at > since - _LONGEST,
            _Session.ended_at > since,
            _Session.status.in_(CONSENTED_ENDS),
            _Session.mass_after.is_not(None),
        )
        .order_by(_Session.created_at.desc())
        .limit(_LATEST)
    )
    rows = db.session.execute(left).all()
    return [Left._make(row) for row in reversed(rows)]
