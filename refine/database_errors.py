"""What an error of PostgreSQL means for whoever asked, by its SQLSTATE: texts may quote rows."""

from collections.abc import Mapping
from typing import Literal

from sqlalchemy.exc import DBAPIError, OperationalError

# busy: somebody else held what was wanted, or there were too many; full: disk or memory
Trouble = Literal["away", "busy", "full"]

# What a person or program is told; each with what to do.
TROUBLES: Mapping[Trouble, str] = {
    "away": "Nothing was lost. Try again in a moment.",
    "busy": "Somebody else is changing the same thing, or many are at work. Nothing was changed. "
    "Try again in a moment.",
    "full": "It has no room left, on its disk or in memory. Nothing was changed. Refine goes on as "
    "soon as whoever runs it has made room.",
}

_BUSY = frozenset(
    {
        "55P03",  # a lock was waited for in vain
        "40P01",  # deadlock
        "40001",  # serialization failure
        "57014",  # the statement took too long
        "53300",  # too many connections
        "0A000",  # prepared before a migration changed the type of a column
        *("25P03", "25P04"),  # the transaction was idle, or went on, for too long
    }
)
_FULL = frozenset({"53100", "53200"})  # disk full, out of memory


def trouble_of(error: DBAPIError) -> Trouble | None:
    """Return what keeps the database from doing it just now; None for any other error."""
    sqlstate = getattr(error.orig, "sqlstate", None)
    if sqlstate in _BUSY:
        return "busy"
    if sqlstate in _FULL:
        return "full"
    # failed connections have no SQLSTATE; 08 and 57P are for broken ones
    is_broken = isinstance(error, OperationalError) and (sqlstate or "08").startswith(("08", "57P"))
    return "away" if is_broken or error.connection_invalidated else None
