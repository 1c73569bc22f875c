"""What can be wrong with a database that answers."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from secrets import token_hex
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from refine.diagnoses import Finding
from refine.errors import Unreachable
from refine.extensions import db
from refine.models import schema
from refine.outages import connection_fault
from refine.rules.quantities import abbreviated, rough_span

OLDEST_VERSION = 15
# What ends sooner than this may end a backup, an upgrade or a verification.
_LONG_MILLISECONDS = 600_000
LONG = timedelta(hours=1)

# What is wrong if an object of this kind is not as the migrations make it.
_ALTERED = {"trigger": "guards_off", "index": "indexes_altered"}

_WITHOUT_RIGHTS = """
SELECT relname FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(:names) AND NOT (
  has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT'))
ORDER BY relname LIMIT 1
"""
_OPEN = """
SELECT now() - min(xact_start) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in%'
"""
_PREPARED = (
    "SELECT now() - min(prepared) FROM pg_prepared_xacts WHERE database = current_database()"
)


def require_answer() -> None:
    """Raise Unreachable, with the reason, if the database lets nobody in, or is in no Unicode."""
    try:
        with db.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            encoding = driver.info.parameter_status("server_encoding")  # told on connecting
    except SQLAlchemyError as error:
        raise Unreachable(connection_fault(error)) from None
    if encoding != "UTF8":
        raise Unreachable(Finding.of("database_encoding", encoding=encoding))


def findings(*, is_pooled: bool, longest: timedelta = LONG) -> Iterator[Finding]:
    """Yield what is wrong with the server, the role and the tables; needs the newest migration.
    ``longest``: how long a transaction may be open.
    """
    with db.engine.connect() as connection:
        yield from _about_server(connection)
        yield from _about_tables(connection)
        yield from _about_transactions(connection, longest)
    if not is_pooled and _shares_connections():
        yield Finding.of("database_pooled")


def _about_server(connection: Connection) -> Iterator[Finding]:
    set_to = dict(_rows(connection, "SELECT name, setting FROM pg_settings"))
    if int(set_to["server_version_num"]) < OLDEST_VERSION * 10_000:
        yield Finding.of("database_version", oldest=OLDEST_VERSION)
    if "on" in (set_to["transaction_read_only"], set_to["in_hot_standby"]):
        yield Finding.of("database_read_only")
    if set_to["session_replication_role"] != "origin":
        yield Finding.of("guards_bypassed")
    for name in ("statement_timeout", "transaction_timeout"):
        if 0 < (limit := int(set_to.get(name, 0))) < _LONG_MILLISECONDS:
            yield Finding.of("database_timeout", name=name, limit=f"{limit:,}")


def _about_tables(connection: Connection) -> Iterator[Finding]:
    names = list(db.metadata.tables)
    for (table,) in _rows(connection, _WITHOUT_RIGHTS, names=names):
        yield Finding.of("database_rights", table=table)
    altered = defaultdict[str, list[str]](list)
    for each in schema.differences(connection):
        altered[_ALTERED.get(each.split()[0], "schema_altered")].append(each)
    for code, objects in altered.items():
        yield Finding.of(code, objects=abbreviated(objects, ", "))


def _about_transactions(connection: Connection, longest: timedelta) -> Iterator[Finding]:
    for code, query in (("database_idle", _OPEN), ("database_prepared", _PREPARED)):
        for (open_for,) in _rows(connection, query):
            if open_for is not None and open_for > longest:
                yield Finding.of(code, span=rough_span(open_for))


def _shares_connections() -> bool:
    """Tell whether another client gets the connection that this one has just used: it finds there
    what this one has set for its own session.
    """
    mark = token_hex(8)
    marked = text("SELECT set_config('refine.mark', :mark, false)")
    with db.engine.connect() as connection, db.engine.connect() as other:
        connection.execute(marked, {"mark": mark})
        connection.commit()
        found = other.scalar(text("SELECT current_setting('refine.mark', true)"))
        other.execute(marked, {"mark": ""})
        other.commit()
    return bool(found == mark)


def _rows(connection: Connection, query: str, **values: Any) -> Any:
    return connection.execute(text(query), values).all()
