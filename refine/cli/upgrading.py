"""Migrations: for `refine db upgrade`, and for services that start before anybody ran it."""

import structlog
from flask_migrate import upgrade

from refine import database_roles
from refine.diagnoses import Finding
from refine.errors import BeingUpgraded, Refused
from refine.extensions import db, safe_rollback
from refine.models import WrappedKey, schema, schema_version
from refine.rules.quantities import abbreviated

_MAY_CREATE = "SELECT has_schema_privilege(current_schema(), 'CREATE')"

_MAX_NAMED = 5

_log = structlog.get_logger(__name__)


def upgrade_database() -> None:
    """Apply all migrations and grant the running roles; BeingUpgraded for another version."""
    with schema_version.upgrading():
        migration = schema_version.current()
        if migration is not None:  # before anything is written
            if migration not in schema_version.migrations():
                if (reason := schema_version.problem()) is not None:
                    raise BeingUpgraded(reason)
                return  # by a later release, which this one goes on beside
            WrappedKey.check_keyring()
            safe_rollback()
        upgrade()
        database_roles.renew()


def upgrade_if_allowed() -> None:
    """Apply missing migrations as the owner of the tables; another role leaves it to others."""
    with db.engine.connect() as connection:
        may_migrate = connection.exec_driver_sql(_MAY_CREATE).scalar()
    if may_migrate:
        _log.info("applying the migrations that are missing")
        upgrade_database()


def require_as_migrated() -> None:
    """Raise Refused if somebody changed the schema: a guard may be gone, or an index."""
    with db.engine.connect() as connection:
        different = schema.differences(connection)
    if different:
        objects = abbreviated(different, ", ", _MAX_NAMED)
        raise Refused(Finding.of("schema_altered", objects=objects))
