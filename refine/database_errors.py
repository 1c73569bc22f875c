"""What an error of PostgreSQL means for the caller, by its SQLSTATE: texts may quote rows."""

from collections.abc import Mapping
from typing import Literal

from sqlalchemy.exc import DBAPIError, OperationalError

# busy: rows were locked by others, or too much was going on; full: disk or memory
Trouble = Literal["away", "busy", "full"]

# What the operators of an installation are told.
NO_ANSWER = "PostgreSQL does not answer at DATABASE_URL; start it, or fix DATABASE_URL"
# What people and programs are told, each with what to do.
TROUBLES: Mapping[Trouble, str] = {
    "away": "Nothing was lost. Try again in a moment.",
    "busy": "Another request is changing the same rows, or the database is overloaded. Nothing was "
    "changed. Try again in a moment.",
    "full": "The database is out of disk space or memory. Nothing was changed. Refine resumes as "
    "soon as an operator has freed some.",
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


def database_trouble(error: DBAPIError) -> Trouble | None:
    """Return what keeps the database from doing it at the moment; None for any other error."""
    sqlstate = getattr(error.orig, "sqlstate", None)
    if sqlstate in _BUSY:
        return "busy"
    if sqlstate in _FULL:
        return "full"
    # failed connections have no SQLSTATE; 08 and 57P are for broken ones
    is_broken = isinstance(error, OperationalError) and (sqlstate or "08").startswith(("08", "57P"))
    return "away" if is_broken or error.connection_invalidated else None
