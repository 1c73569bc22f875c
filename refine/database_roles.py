"""The database's two roles: one owns the tables and migrates, the other runs the application.

The running role reads and writes rows. It cannot alter or truncate a table, disable or drop a
trigger, change a record of the audit log, or create an object that a trigger would mistake for a
real one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

from psycopg import Connection
from psycopg import Error as PsycopgError
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL, Composed, Identifier, Literal

from refine.errors import InvalidValue, Refused
from refine.extensions import db

_LONGEST_NAME_BYTES = 63

_USUAL = "SELECT, INSERT, UPDATE"
_UNUSUAL = {
    "alembic_version": "SELECT",
    "audit_logs": "SELECT, INSERT",
    # all that the application ever deletes
    "idempotency_keys": f"{_USUAL}, DELETE",
    "invitations": f"{_USUAL}, DELETE",
    "session_entries": f"{_USUAL}, DELETE",
    "sign_ins": f"{_USUAL}, DELETE",
    "tallies": f"{_USUAL}, DELETE",
}
_SEQUENCES = """
SELECT relname FROM pg_class
WHERE relkind = 'S' AND relnamespace = current_schema()::regnamespace
  AND relowner = (SELECT relowner FROM pg_class WHERE oid = 'audit_logs'::regclass)
ORDER BY relname
"""

# For a role: does it bypass every guard, does it own the audit log, which roles may it assume?
_POWERS = """
SELECT me.rolsuper, me.oid = log.relowner, me.rolreplication OR me.rolcreaterole,
  ARRAY(SELECT other.rolname::text FROM pg_roles other
    WHERE other.oid <> me.oid AND pg_has_role(me.oid, other.oid, 'MEMBER')
      AND (other.oid = log.relowner OR other.rolsuper OR starts_with(other.rolname, 'pg_')))
FROM pg_roles me, pg_class log
WHERE me.rolname = {role} AND log.oid = 'audit_logs'::regclass
"""

# The default privileges that `grant` sets mark its roles.
_GRANTED = """
SELECT DISTINCT pg_get_userbyid(granted.grantee)
FROM pg_default_acl defaults, aclexplode(defaults.defaclacl) granted
WHERE defaults.defaclrole = current_user::regrole AND defaults.defaclobjtype = 'r'
  AND defaults.defaclnamespace = current_schema()::regnamespace
  AND granted.grantee NOT IN (0, defaults.defaclrole)
"""

_CHANGES_RECORDS = "SELECT has_table_privilege('audit_logs', 'UPDATE, DELETE, TRUNCATE, TRIGGER')"

_CREATE = "CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION"

_GRANT = """
REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC;
REVOKE CREATE, TEMPORARY ON DATABASE {database} FROM PUBLIC;
REVOKE ALL ON SCHEMA {schema} FROM {role};
GRANT USAGE ON SCHEMA {schema} TO {role};
REVOKE ALL ON DATABASE {database} FROM {role};
GRANT CONNECT ON DATABASE {database} TO {role};
REVOKE ALL ON TABLE {tables} FROM PUBLIC, {role};
REVOKE ALL ON SEQUENCE {sequences} FROM PUBLIC, {role};
GRANT USAGE ON SEQUENCE {sequences} TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT {usual} ON TABLES TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT USAGE ON SEQUENCES TO {role};
"""


def grant(role: str, password: str | None = None) -> None:
    """Create the running role if it is missing, and give it its privileges; safe to repeat.

    For the owner of the tables. Only a SCRAM verifier of the password leaves this process. Raises
    Refused if the role could still bypass the guards.
    """
    with _transaction() as connection:
        for statement in _statements(role, connection):
            connection.execute(statement)
        if password is not None:
            connection.execute(_set_password(role, password, connection))


def sql_for(role: str) -> str:
    """Return what ``grant`` executes, without a password, for an administrator to run."""
    with _transaction() as connection:
        statements = [each.as_string(connection) for each in _statements(role, connection)]
    return "\n".join(["BEGIN;", *(f"{statement};" for statement in statements), "COMMIT;"])


def renew() -> None:
    """Give all running roles their privileges on the tables that migrations have just made."""
    with db.engine.connect() as connection:
        roles = connection.exec_driver_sql(_GRANTED).scalars().all()
    for role in roles:
        grant(role)


def own_powers() -> str | None:
    """Return how the role of this connection could bypass the guards; None if it could not."""
    with _transaction() as connection:
        (role,) = _row(connection, "SELECT current_user")
        (changes_records,) = _row(connection, _CHANGES_RECORDS)
        changes = "may change or delete audit records" if changes_records else None
        return _powers(role, connection) or changes


def _statements(role: str, connection: "Connection[Any]") -> Iterator[Composed]:
    if not 0 < len(role.encode()) <= _LONGEST_NAME_BYTES:
        raise InvalidValue(f"the role's name must have 1 to {_LONGEST_NAME_BYTES} bytes")
    schema, database = _row(connection, "SELECT current_schema(), current_database()")
    tables = sorted({*db.metadata.tables, *_UNUSUAL})
    sequences = [name for (name,) in connection.execute(_SEQUENCES)]
    names = {
        "role": Identifier(role),
        "schema": Identifier(schema),
        "database": Identifier(database),
        "tables": SQL(", ").join(map(Identifier, tables)),
        "sequences": SQL(", ").join(map(Identifier, sequences)),
        "usual": SQL(_USUAL),
    }
    exists = SQL("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = {})").format(Literal(role))
    if _row(connection, exists) == (False,):
        yield SQL(_CREATE).format(**names)
    elif (powers := _powers(role, connection)) is not None:
        raise Refused(f"the role {role} {powers}: choose another for the application")
    for statement in filter(None, map(str.strip, _GRANT.split(";"))):
        yield SQL(statement).format(**names)
    for table in tables:
        privileges = SQL(_UNUSUAL.get(table, _USUAL))
        yield SQL("GRANT {} ON {} TO {role}").format(privileges, Identifier(table), **names)


def _set_password(role: str, password: str, connection: "Connection[Any]") -> Composed:
    verifier = connection.pgconn.encrypt_password(
        password.encode(), role.encode(), b"scram-sha-256"
    ).decode()
    return SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(Identifier(role), Literal(verifier))


def _powers(role: str, connection: "Connection[Any]") -> str | None:
    is_superuser, is_owner, is_privileged, powerful = _row(
        connection, SQL(_POWERS).format(role=Literal(role))
    )
    if is_superuser:
        return "is a superuser, who can bypass every trigger"
    if is_owner:
        return "owns the tables, and can disable their triggers"
    if powerful:
        return f"is a member of {', '.join(powerful)}"
    return "may create roles or replicate the database" if is_privileged else None


def _row(connection: "Connection[Any]", query: LiteralString | Composed) -> Any:
    return connection.execute(query).fetchone()


@contextmanager
def _transaction() -> "Iterator[Connection[Any]]":
    """Yield psycopg's connection, which can quote names; commit at the end."""
    try:
        with db.engine.begin() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, Connection)  # noqa: S101 - for mypy
            yield driver
    except InsufficientPrivilege as error:
        raise Refused(
            "this needs the owner of the tables, and for a new role the right to create roles "
            f"({error.diag.message_primary}); an administrator can run the SQL of --print"
        ) from None
    except PsycopgError as error:
        raise Refused(error.diag.message_primary or type(error).__name__) from None
