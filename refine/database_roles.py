"""The database's roles: one owns the tables, the other runs Refine and cannot alter them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString, cast

from psycopg import Connection, Error as PsycopgError
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL, Composed, Identifier

from refine.errors import InvalidValue, Refused
from refine.extensions import db

_LONGEST_NAME_BYTES = 63

# How a role could bypass the guards.
_POWERS = """
SELECT CASE
  WHEN me.rolsuper THEN 'is a superuser, who can bypass every trigger'
  WHEN me.oid = log.relowner THEN 'owns the tables, and can disable their triggers'
  WHEN powerful.names <> '' THEN 'is a member of ' || powerful.names
  WHEN me.rolreplication OR me.rolcreaterole THEN 'may create roles or replicate the database'
  WHEN has_table_privilege(me.oid, log.oid, 'UPDATE, DELETE, TRUNCATE, TRIGGER')
    THEN 'may change or delete audit records'
END
FROM pg_roles me, pg_class log, LATERAL (
  SELECT coalesce(string_agg(other.rolname, ', '), '') AS names FROM pg_roles other
  WHERE other.oid <> me.oid AND pg_has_role(me.oid, other.oid, 'MEMBER')
    AND (other.oid = log.relowner OR other.rolsuper OR starts_with(other.rolname, 'pg_'))
) powerful
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

_CREATE = "CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION"

_GRANT = """
REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC;
REVOKE CREATE, TEMPORARY ON DATABASE {database} FROM PUBLIC;
REVOKE ALL ON SCHEMA {schema} FROM {role};
GRANT USAGE ON SCHEMA {schema} TO {role};
REVOKE ALL ON DATABASE {database} FROM {role};
GRANT CONNECT ON DATABASE {database} TO {role};
REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM PUBLIC, {role};
GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {schema} TO {role};
REVOKE UPDATE ON audit_logs FROM {role};
REVOKE INSERT, UPDATE ON alembic_version FROM {role};
GRANT DELETE ON deliveries, idempotency_keys, invitations, mails, notices, session_entries,
  sign_ins, shared_counts TO {role};
REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM PUBLIC, {role};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT, INSERT, UPDATE ON TABLES TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT USAGE ON SEQUENCES TO {role};
"""


def grant(role: str, password: str | None = None) -> None:
    """Create the running role if need be, grant its privileges; Refused if it bypasses guards."""
    if not 0 < len(role.encode()) <= _LONGEST_NAME_BYTES:
        raise InvalidValue(f"the role's name must have 1 to {_LONGEST_NAME_BYTES} bytes")
    with _transaction() as connection:
        exists = SQL("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = {})").format(role)
        if not _value(connection, exists):
            connection.execute(SQL(_CREATE).format(role=Identifier(role)))
        schema = _value(connection, "SELECT current_schema()")
        database = _value(connection, "SELECT current_database()")
        names = {"role": role, "schema": schema, "database": database}
        granted = {name: Identifier(value) for name, value in names.items()}
        connection.execute(SQL(_GRANT).format(**granted))
        if password is not None:
            verifier = connection.pgconn.encrypt_password(  # the password stays in this process
                password.encode(), role.encode(), b"scram-sha-256"
            ).decode()
            login = SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(Identifier(role), verifier)
            connection.execute(login)
        if (powers := _powers(role, connection)) is not None:
            raise Refused(f"the role {role} {powers}: choose another for the application")


def renew() -> None:
    """Give all running roles their privileges on the tables that migrations have just made."""
    with db.engine.connect() as connection:
        roles = connection.exec_driver_sql(_GRANTED).scalars().all()
    for role in roles:
        grant(role)


def own_powers() -> str | None:
    """Return how the role of this connection could bypass the guards; None if it could not."""
    with _transaction() as connection:
        return _powers(_value(connection, "SELECT current_user"), connection)


def _powers(role: str, connection: "Connection[Any]") -> str | None:
    return cast("str | None", _value(connection, SQL(_POWERS).format(role=role)))


def _value(connection: "Connection[Any]", query: LiteralString | Composed) -> Any:
    (value,) = connection.execute(query).fetchone() or (None,)
    return value


@contextmanager
def _transaction() -> "Iterator[Connection[Any]]":
    try:
        with db.engine.begin() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, Connection)  # noqa: S101 - for mypy
            yield driver
    except InsufficientPrivilege as error:
        raise Refused(
            "this needs the owner of the tables and, to create a role or set its password, the "
            f"right to create roles ({error.diag.message_primary}); or let an administrator do "
            "that (CREATE ROLE … LOGIN PASSWORD …), and repeat this without --password-stdin"
        ) from None
    except PsycopgError as error:
        raise Refused(error.diag.message_primary or type(error).__name__) from None
