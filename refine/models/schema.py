"""What the database is made of, compared with what the migrations make."""

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from flask import current_app
from sqlalchemy import Connection

# Each object of the current schema with one of its facts. Own indexes and functions of operators
# or extensions are no difference.
_FACTS = """
WITH tables AS (
  SELECT oid, 'table ' || relname AS object, relname, relpersistence FROM pg_class
  WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
)
SELECT object, relpersistence || (SELECT count(*) FROM pg_rewrite WHERE ev_class = tables.oid)
FROM tables
UNION
SELECT object, concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull, attidentity,
  attgenerated, pg_get_expr(adbin, adrelid))
FROM tables JOIN pg_attribute ON attrelid = oid AND attnum > 0 AND NOT attisdropped
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
UNION
SELECT object, concat_ws(' ', conname, pg_get_constraintdef(pg_constraint.oid, true), convalidated)
FROM tables JOIN pg_constraint ON conrelid = tables.oid AND contype IN ('c', 'f', 'p', 'u')
UNION
SELECT 'index ' || indexrelid::regclass,
  concat_ws(' ', pg_get_indexdef(indexrelid, 0, true), indisvalid)
FROM tables JOIN pg_index ON indrelid = oid
UNION
SELECT CASE WHEN tgisinternal THEN object ELSE 'trigger ' || tgname || ' of ' || relname END,
  concat_ws(' ', CASE WHEN NOT tgisinternal THEN pg_get_triggerdef(pg_trigger.oid, true) END,
    'enabled', tgenabled)
FROM tables JOIN pg_trigger ON tgrelid = tables.oid
UNION
SELECT 'function ' || proname,
  concat_ws(' ', replace(proconfig::text, quote_ident(current_schema()), ''), prosrc)
FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
"""
_SCRATCH = "refine_as_migrated"


def differences(connection: Connection) -> list[str]:
    """Return the tables, indexes, triggers and functions that are not as the migrations make them.

    The migrations are run once more, in a schema that is never committed. Empty where the role may
    not create one, or nobody.
    """
    found = _facts(connection)
    may_create = (
        "SELECT has_database_privilege(current_database(), 'CREATE') "
        "AND current_setting('transaction_read_only') = 'off'"
    )
    if not connection.exec_driver_sql(may_create).scalar():
        return []
    with connection.begin_nested() as scratch:
        connection.exec_driver_sql(f"CREATE SCHEMA {_SCRATCH}")
        connection.exec_driver_sql(f"SET LOCAL search_path = {_SCRATCH}, pg_temp")
        _migrate(connection)
        expected = _facts(connection)
        scratch.rollback()
    names = {name for name, _ in expected}
    tables = tuple(f" of {name.removeprefix('table ')}" for name in names)
    changed = {name for name, _ in expected - found}
    added = {name for name, _ in found - expected if name in names or name.endswith(tables)}
    return sorted(changed | added)


def _facts(connection: Connection) -> set[tuple[str, str]]:
    return {(row[0], row[1]) for row in connection.exec_driver_sql(_FACTS)}


def _migrate(connection: Connection) -> None:
    directory = ScriptDirectory(current_app.extensions["migrate"].directory)
    with Operations.context(MigrationContext.configure(connection)):
        for script in reversed(list(directory.walk_revisions())):
            script.module.upgrade()
