"""Deletes sign-ins and invitations that ended long ago."""

from collections import Counter
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, or_, select

from refine.extensions import db
from refine.models.people.invitation import Invitation
from refine.models.people.sign_in import IDLE_FOR, LASTS_FOR, SignIn

# Counted from their end, or from when they expired.
SIGN_INS_KEPT_FOR = timedelta(days=30)
INVITATIONS_KEPT_FOR = timedelta(days=30)

_BATCH = 500

Kind = type[SignIn] | type[Invitation]


def prune(kind: Kind, at: datetime, after_id: int) -> tuple[int, int | None]:
    """Delete old rows, but altered ones; return how many, and the last id if more follow."""
    over = select(kind).where(_is_over(kind, at), kind.id > after_id).order_by(kind.id)
    locked = over.limit(_BATCH).with_for_update(of=kind, skip_locked=True)
    rows: list[SignIn | Invitation] = list(db.session.scalars(locked))
    genuine = [row for row in rows if not row.log_if_altered()]
    recorded = Counter(row.user.account for row in genuine if row.chain_owner is not None)
    for row in genuine:
        db.session.delete(row)
    db.session.flush()
    for account, number in sorted(recorded.items(), key=lambda item: item[0].id):
        account.record("rows_pruned", data={kind.__tablename__: number}, at=at)
    return len(genuine), rows[-1].id if len(rows) == _BATCH else None


def _is_over(kind: Kind, at: datetime) -> ColumnElement[bool]:
    if kind is SignIn:
        since = at - SIGN_INS_KEPT_FOR
        return or_(
            SignIn.ended_at < since,
            SignIn.last_seen_at < since - IDLE_FOR,
            SignIn.created_at < since - LASTS_FOR,
        )
    since = at - INVITATIONS_KEPT_FOR
    return or_(Invitation.used_at < since, Invitation.expires_at < since)
