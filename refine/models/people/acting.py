"""Who acts, as lists of records name them, and how records are found by that name."""

from sqlalchemy import ColumnElement, and_

from refine.models.audit import AuditLog
from refine.models.people.user import User

AGENT_OR_SYSTEM = "agent or Refine"

# Who acts besides users, who are named by their e-mail addresses.
OTHER_ACTORS = (AGENT_OR_SYSTEM, "agent", "platform", "command line")


def user_id_of(who: str) -> int | None:
    """Return the id of the user of that name; None for others, and if no user has the address."""
    found = User.by_email(who) if "@" in who else None
    return found.id if found is not None else None


def is_by(who: str, user_id: int | None) -> ColumnElement[bool]:
    """Return the SQL condition that a record is by ``who``, of the ``user_id_of`` that name."""
    if who == AGENT_OR_SYSTEM:
        return and_(AuditLog.user_id.is_(None), AuditLog.by.is_(None))
    if "@" in who:  # nobody's, if no user has the address
        return AuditLog.user_id == (user_id or 0)
    return AuditLog.by == who
