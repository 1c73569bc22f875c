"""What the database is made of, compared with what the migrations make."""

from sqlalchemy import Connection

from refine.models import schema_version
from refine.places import ROOT

# The digest of all that makes up an object of the current schema. Own indexes and functions of
# operators or extensions are no difference.
_DIGESTS = """
WITH tables AS (
  SELECT oid, 'table ' || relname AS object, relname, relpersistence FROM pg_class
  WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
),
facts (object, fact) AS (
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
)
SELECT object, encode(sha256(convert_to(
  string_agg(fact, ' ' ORDER BY fact COLLATE "C"), 'UTF8')), 'hex')
FROM facts GROUP BY object
"""
# One line for each object: its digest and name. `python -m tests.fingerprints` writes it.
LISTED = ROOT / "migrations" / "schema.txt"


def differences(connection: Connection) -> list[str]:
    """Return the tables, indexes, triggers and functions that are not as the migrations make them.

    Empty if the database is of a later release, whose migrations are not here.
    """
    if schema_version.current() not in schema_version.migrations():
        return []
    found = digests(connection)
    lines = (line.partition(" ") for line in LISTED.read_text(encoding="utf-8").splitlines())
    expected = {name: digest for digest, _, name in lines}
    altered = {name for name in expected if found.get(name) != expected[name]}
    of_ours = tuple(f" of {name.removeprefix('table ')}" for name in expected)
    return sorted(altered | {name for name in found.keys() - expected if name.endswith(of_ours)})


def digests(connection: Connection) -> dict[str, str]:
    return {row[0]: row[1] for row in connection.exec_driver_sql(_DIGESTS)}
