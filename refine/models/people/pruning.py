"""Deleting the sign-ins and invitations that ended long ago."""

from datetime import datetime

from sqlalchemy import ColumnElement, or_, select

from refine.extensions import db
from refine.models.people.invitation import Invitation
from refine.models.people.sign_in import IDLE_FOR, LASTS_FOR, SignIn
from refine.models.people.user import User
from refine.rules.keeping import INVITATIONS_KEPT_FOR, SIGN_INS_KEPT_FOR

_BATCH = 500

Kind = type[SignIn] | type[Invitation]


class Pruning:
    """One round: everything that had ended long enough before one instant, a few rows at a time."""

    def __init__(self, at: datetime) -> None:
        self._at = at
        self._left_ids: dict[Kind, set[int]] = {SignIn: set(), Invitation: set()}

    def delete_some(self) -> int:
        """Delete some rows of one account; return how many. None is left if it is 0.

        Recorded as ``rows_pruned`` if an earlier record names one: from then on it must be gone. A
        row that was changed outside the application stays.
        """
        for kind in self._left_ids:
            while rows := self._next(kind):
                genuine = [row for row in rows if not row.log_if_altered()]
                self._left_ids[kind] |= {row.id for row in rows} - {row.id for row in genuine}
                if genuine:
                    self._delete(kind, genuine)
                    return len(genuine)
        return 0

    def _next(self, kind: Kind) -> list[SignIn | Invitation]:
        """Return the next rows of one account, locked."""
        over = _is_over(kind, self._at) & kind.id.not_in(self._left_ids[kind])
        account_ids = select(User.account_id).join(kind, kind.user_id == User.id).where(over)
        first = account_ids.order_by(User.account_id).limit(1).scalar_subquery()
        users = select(User.id).where(User.account_id == first)
        rows = select(kind).where(over, kind.user_id.in_(users)).order_by(kind.id).limit(_BATCH)
        return list(db.session.scalars(rows.with_for_update(of=kind, skip_locked=True)))

    def _delete(self, kind: Kind, rows: list[SignIn | Invitation]) -> None:
        is_recorded = any(row.chain_owner is not None for row in rows)
        account = rows[0].user.account
        for row in rows:
            db.session.delete(row)
        db.session.flush()
        if is_recorded:
            account.record("rows_pruned", data={kind.__tablename__: len(rows)}, at=self._at)


def _is_over(kind: Kind, at: datetime) -> ColumnElement[bool]:
    """Return the SQL condition that a row ended so long ago that it is no longer kept."""
    if kind is SignIn:
        since = at - SIGN_INS_KEPT_FOR
        return or_(
            SignIn.ended_at < since,
            SignIn.last_seen_at < since - IDLE_FOR,
            SignIn.created_at < since - LASTS_FOR,
        )
    since = at - INVITATIONS_KEPT_FOR
    return or_(Invitation.used_at < since, Invitation.expires_at < since)
