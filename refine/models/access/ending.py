"""All ends: by time, by the user, revoked, in vain; and the note that comes after."""

import uuid
from collections.abc import Collection
from datetime import datetime
from typing import Any, Self

from sqlalchemy import func, or_, select

from refine.errors import Refused
from refine.extensions import database_now, db
from refine.models.access.columns import (
    ASKED_IN_VAIN_AFTER,
    LAPSES_AFTER,
    EndReason,
    GrantColumns,
)
from refine.models.user import User


class Ending(GrantColumns):
    """The ends of a request and of a grant. Each expects the row to be locked, or locks it."""

    def end(self, *, user: User | None) -> bool:
        """End a grant that lasts; tell whether it did. None: the agent itself revokes it.

        Its own user ends it, another admin who may see the agent revokes it; anybody else is
        refused.
        """
        if user is not None and not self.may_be_ended_by(user):
            raise Refused("this access is not yours to end")
        self.lock()
        if self.status != "granted" or self.expire_if_due():
            return False
        reason: EndReason = "revoked_by_agent"
        if user is not None:
            reason = "ended_by_user" if user.id == self.user_id else "revoked_by_admin"
        self._end(reason, database_now(), user)
        return True

    def may_be_ended_by(self, user: User) -> bool:
        """Tell whether the user may end it (their own) or revoke it (an admin's)."""
        is_theirs = user.site_admin or user.account_id == self.account_id
        return user.id == self.user_id or (user.may_act and is_theirs)

    def expire_if_due(self) -> bool:
        """Write the end of a grant whose time is over; tell whether it was."""
        is_due = self.status == "granted" and self.is_past_its_end
        if is_due:
            self._end("expired", self.expires_at or database_now(), None)
        return is_due

    def fail(self, why: str, kind: str) -> None:
        """End a request without an answer that counts; nothing happens where it is not open."""
        self._end_request("failed", "failed", why=why, kind=kind, sealed={"reply": self.reply})

    def end_if_killed(self) -> None:
        """End a request whose process is known to have died while it asked."""
        self.lock()
        if self.asked_at is not None:
            self.fail("its worker's process was killed", "worker_lost")

    def lapse(self) -> None:
        """End a request that nobody took in time."""
        self._end_request("lapsed", "lapsed", why="no worker could ask the agent within 24 hours")

    def close(self, note: object, *, user: User) -> None:
        """Keep the user's closing note, once, after their grant ended."""
        self.lock()
        if user.id != self.user_id:
            raise Refused("the closing note is written by who had the access")
        if self.status == "granted":
            self.expire_if_due()
        if self.status != "ended":
            raise Refused("the closing note is written after the access ended")
        if self.sealed_closing_note is not None:
            raise Refused("the closing note was written already")
        self.closing_note = note if note is not None else ""
        self.record("noted", user=user, at=database_now(), sealed={"note": self.closing_note})

    # -- what the tick looks for ------------------------------------------------------------------

    @classmethod
    def next_due(cls, but: Collection[uuid.UUID] = ()) -> Self | None:
        """Return a request or grant that time has ended, locked; None where there is none.

        What another process holds is looked after there.
        """
        now = func.clock_timestamp()
        in_vain = cls.asked_at <= now - ASKED_IN_VAIN_AFTER
        too_late = cls.asked_at.is_(None) & (cls.created_at <= now - LAPSES_AFTER)
        is_over = (cls.status == "granted") & (cls.expires_at <= now)
        return db.session.scalar(
            select(cls)
            .where(
                or_(is_over, (cls.status == "requested") & or_(in_vain, too_late)),
                cls.id.not_in(but),
            )
            .order_by(cls.created_at)
            .limit(1)
            .with_for_update(skip_locked=True, key_share=True, of=cls)
            .execution_options(populate_existing=True)
        )

    def end_as_due(self) -> None:
        """Write the end that ``next_due`` found."""
        if self.status == "granted":
            self.expire_if_due()
        elif self.asked_at is not None:
            self.fail("its worker gave no answer", "worker_lost")
        else:
            self.lapse()

    # -- the parts --------------------------------------------------------------------------------

    def _end(self, reason: EndReason, at: datetime, user: User | None) -> None:
        self.status, self.end_reason, self.ended_at = "ended", reason, at
        self.ended_by_id = user.id if user is not None else None
        action = "revoked" if reason.startswith("revoked") else "ended"
        self.record(action, user=user, at=at, end_reason=reason)
        db.session.flush()

    def _end_request(self, status: str, action: str, **record: Any) -> None:
        if self.status != "requested":
            return
        self.status, self.ended_at = status, database_now()
        self.record(action, at=self.ended_at, **record)
        db.session.flush()
