"""Sums over many sessions, for pages."""

from datetime import date, datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Date, Select, Text, bindparam, case, cast, func, select

from refine.extensions import db, instant
from refine.models.columns import account_parameter
from refine.models.runs.run import WORKER_LOST
from refine.models.runs.session.session import RefinementSession

_Session = RefinementSession


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
    values = {"account_id": account_id, "zone": zone, "since": since}
    return [DayTotals(*row) for row in db.session.execute(counted, values)]


@cache
def _by_day(*, is_of_account: bool) -> Select[*tuple[Any, ...]]:
    account_id = account_parameter(is_of_account=is_of_account)
    day = cast(func.timezone(bindparam("zone", type_=Text), _Session.created_at), Date)
    return (
        select(
            day,
            _Session.status,
            func.count(),
            func.sum(case((_Session.undone_at.is_(None), _Session.removed_tokens), else_=0)),
            func.count().filter(_Session.error_kind == WORKER_LOST),
        )
        .where(_Session.in_account(account_id), _Session.created_at >= instant("since"))
        .group_by(day, _Session.status)
    )
