"""Sums over many sessions, for pages."""

from datetime import date, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Date,
    Select,
    Text,
    bindparam,
    case,
    cast,
    func,
    select,
)

from refine.extensions import instant
from refine.extensions.statements import plain_query
from refine.models.columns import account_parameter
from refine.models.runs.run import WORKER_LOST
from refine.models.runs.session.session import RefinementSession
from refine.models.runs.session.state import CONSENTED_ENDS

_Session = RefinementSession
# The most of an agent's sessions that are listed.
_LATEST = 50
# A session never takes as long.
_LONGEST = timedelta(days=1)


class DayTotals(NamedTuple):
    """The sessions of one status that were requested on a day, added up.

    ``removed_tokens`` is without undone sessions.
    """

    day: date
    status: str
    sessions: int
    removed_tokens: int
    lost: int


def by_day(account_id: int | None, zone: str, since: datetime) -> list[DayTotals]:
    """Return the sessions (of this account) since then, by local day and status."""
    counted = _by_day(is_of_account=account_id is not None)
    rows = counted.rows(account_id=account_id, zone=zone, since=since)
    return [DayTotals(*row) for row in rows]


class SlotTotals(NamedTuple):
    """The sessions of one status for a slot, retries among them; when the first was requested."""

    slot_at: datetime
    status: str
    sessions: int
    first_at: datetime


def by_slot(account_id: int, since: datetime) -> list[SlotTotals]:
    """Return the sessions of this account for its slots since then, by slot and status."""
    rows = _by_slot().rows(account_id=account_id, since=since)
    return [SlotTotals(*row) for row in rows]


@plain_query
def _by_slot() -> Select[*tuple[Any, ...]]:
    account_id = account_parameter(is_of_account=True)
    return (
        select(_Session.slot_at, _Session.status, func.count(), func.min(_Session.created_at))
        .where(_Session.in_account(account_id), _Session.slot_at >= instant("since"))
        .group_by(_Session.slot_at, _Session.status)
    )


@plain_query
def _by_day(*, is_of_account: bool) -> Select[*tuple[Any, ...]]:
    account_id = account_parameter(is_of_account=is_of_account)
    day = cast(func.timezone(bindparam("zone", type_=Text), _Session.created_at), Date)
    return (
        select(
            day,
            _Session.status,
            func.count(),
            func.sum(_removed()),
            func.count().filter(_Session.error_kind == WORKER_LOST),
        )
        .where(_Session.in_account(account_id), _Session.created_at >= instant("since"))
        .group_by(day, _Session.status)
    )


class Left(NamedTuple):
    """What a session left behind: the token mass; ``is_kept``: it was not rolled back."""

    ended_at: datetime
    tokens: int
    session_id: UUID
    is_kept: bool


def left_by_sessions(agent_id: int, since: datetime) -> tuple[int, list[Left]]:
    """Return how many tokens the agent's sessions removed since then, and what the last ones left.

    Undone sessions removed nothing.
    """
    rows = _left_by_sessions().rows(agent_id=agent_id, since=since)
    return rows[0][0] if rows else 0, [Left(*row[1:]) for row in reversed(rows)]


@plain_query
def _left_by_sessions() -> Select[*tuple[Any, ...]]:
    return (
        select(
            func.sum(_removed()).over(),
            _Session.ended_at,
            _Session.mass_after,
            _Session.id,
            _Session.status != "rolled_back",
        )
        .where(
            _Session.agent_id == bindparam("agent_id", type_=BigInteger),
            _Session.created_at > instant("since") - _LONGEST,
            _Session.ended_at > instant("since"),
            _Session.status.in_(CONSENTED_ENDS),
            _Session.mass_after.is_not(None),
        )
        .order_by(_Session.created_at.desc())
        .limit(_LATEST)
    )


def _removed() -> ColumnElement[int]:
    return case((_Session.undone_at.is_(None), _Session.removed_tokens), else_=0)
