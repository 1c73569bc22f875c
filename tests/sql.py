"""Raw SQL in transactions of its own: others' actions, and changes outside the application."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from psycopg.types.json import Json
from sqlalchemy import JSON, URL, event, text

from bench.bulk import add_missing_digests
from refine.embedded.postgres import postgres_binaries
from refine.extensions import db
from refine.models.integrity import attested_kinds


def run(*statements: str) -> None:
    """Execute in one transaction, and commit it."""
    with db.engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def tamper(*statements: str) -> None:
    """Execute with every trigger and foreign key switched off, as a superuser can."""
    run("SET LOCAL session_replication_role = replica", *statements)


def tool(name: str, database: URL, *options: str, given: str = "") -> str:
    """Run a tool of PostgreSQL's own on a database."""
    command = [
        str(postgres_binaries() / name),
        f"--host={database.query['host']}",
    ]
    command += [f"--username={database.username}", *options, str(database.database)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@contextmanager
def just_before(fragment: str, *statements: str, by: Callable[..., None] = run) -> Iterator[None]:
    """Execute as somebody else, just before each statement here that contains ``fragment``."""
    is_busy = False
    here = threading.get_ident()  # heartbeats come from another thread

    def interfere(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        nonlocal is_busy
        if fragment in statement and not is_busy and threading.get_ident() == here:
            is_busy = True
            by(*statements)
            is_busy = False

    event.listen(db.engine, "before_cursor_execute", interfere)
    try:
        yield
    finally:
        event.remove(db.engine, "before_cursor_execute", interfere)


@contextmanager
def trigger(on: str, does: str = "RAISE EXCEPTION 'no'", *, when: str = "true") -> Iterator[None]:
    """Have the database do this on each such write of a row, such as "BEFORE UPDATE ON users"."""
    kind = "CONSTRAINT TRIGGER" if "DEFERRED" in on else "TRIGGER"
    run(
        "CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {does}; RETURN NEW; END $$",
        f"CREATE {kind} act {on} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION act()",
    )
    try:
        yield
    finally:
        db.session.rollback()
        run("DROP FUNCTION IF EXISTS act() CASCADE")


def refused_views(*, at_commit: bool = False) -> AbstractContextManager[None]:
    """Refuse each record of content that was read: as it is written, or only at the commit."""
    deferred = "AFTER INSERT ON audit_logs DEFERRABLE INITIALLY DEFERRED"
    on = deferred if at_commit else "BEFORE INSERT ON audit_logs"
    return trigger(on, when="NEW.action = 'memory_access_viewed'")


def rewrite(*statements: str) -> None:
    """Execute, and give the rows the digests that the application would give them."""
    with db.engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
        for kind in attested_kinds():
            connection.exec_driver_sql(f"UPDATE {kind.__tablename__} SET row_digest = NULL")
            add_missing_digests(connection, kind, limit=10_000)


def copied(row: Any) -> Callable[[], None]:
    """Return a function that restores this row as it is now, with its digest."""
    table = row.__tablename__
    columns = dict[str, Any]()
    with db.engine.connect() as connection:
        found = connection.execute(text(f"SELECT * FROM {table} WHERE id = :id"), {"id": row.id})
        columns.update(found.mappings().one())
    written = [each for each in db.metadata.tables[table].columns if each.computed is None]
    is_json = {each.name: isinstance(each.type, JSON) for each in written}
    columns = {name: Json(columns[name]) if is_json[name] else columns[name] for name in is_json}

    def put_back() -> None:
        values = ", ".join(f"{name} = :{name}" for name in columns)
        with db.engine.begin() as connection:
            statement = text(f"UPDATE {table} SET {values} WHERE id = :id")
            connection.execute(statement, columns)

    return put_back


def value(statement: str) -> Any:
    """Return the first column of the first row, as committed."""
    with db.engine.connect() as connection:
        return connection.exec_driver_sql(statement).scalar()


def waiting() -> int:
    """Return how many connections of this database wait for another one's lock."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
    return int(value(waits + "AND datname = current_database()"))


def open_transactions() -> int:
    """Return how many other connections have a transaction open."""
    count = value(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
    )
    return int(count)


def snapshot() -> dict[str, list[str]]:
    """Return all that is committed, table by table."""
    tables: dict[str, list[str]] = {table: [] for table in db.metadata.tables}
    every = " UNION ALL ".join(f"SELECT '{table}', t::text FROM {table} t" for table in tables)
    with db.engine.connect() as connection:
        for table, row in connection.exec_driver_sql(every):
            tables[table].append(row)
    return {table: sorted(rows) for table, rows in tables.items()}


def without_counts() -> dict[str, list[str]]:
    """Return all committed rows, without counts of refusals and their records."""
    stored = snapshot()
    records = stored.pop("audit_logs")
    for table in ("shared_counts", "chain_heads"):
        del stored[table]
    return {**stored, "audit_logs": [row for row in records if "requests_refused" not in row]}


def statements_of(work: Callable[[], Any]) -> int:
    """Return the number of statements sent to the database meanwhile."""
    sent = 0

    def note(*_: Any) -> None:
        nonlocal sent
        sent += 1

    event.listen(db.engine, "before_cursor_execute", note)
    try:
        work()
    finally:
        event.remove(db.engine, "before_cursor_execute", note)
    return sent
