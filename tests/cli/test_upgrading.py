"""Migrations: by `refine db upgrade`, and by services that start before anybody ran it."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refine.cli.upgrading import require_as_migrated, upgrade_if_allowed
from refine.errors import Refused
from refine.extensions import db
from refine.models import schema_version
from tests import sql
from tests.cli.conftest import Run, problem
from tests.commands import Service, eventually, services
from tests.conftest import app_of

BEFORE_RELEASES = (
    "the database was made before Refine 1.0.0 and cannot be upgraded; export what its agents keep "
    "with the version that made it, and start with an empty one"
)

Begin = Callable[..., Service]


@pytest.fixture
def upgraded(fresh: dict[str, str], run_under: Run) -> Iterator[Callable[[], str]]:
    """Upgrades a database again and returns why that fails; its application context is pushed."""
    assert run_under(fresh, "db", "upgrade").stdout == "the database is up to date\n"
    with app_of(fresh):
        yield lambda: problem(run_under(fresh, "db", "upgrade"))


@pytest.fixture
def begin(fresh: dict[str, str], tmp_path: Path) -> Iterator[Begin]:
    """Starts commands on an empty database."""
    with services(fresh, tmp_path) as begin:
        yield begin


def test_a_schema_that_somebody_changed_is_refused(upgraded):
    sql.run("DROP TRIGGER audit_logs_append_only ON audit_logs")

    assert upgraded() == (
        "the database is not as its migrations make it: trigger audit_logs_append_only of "
        "audit_logs; undo what was changed there, or restore a backup"
    )


def test_many_differences_are_told_in_one_line(upgraded):
    sql.run("DROP TABLE session_entries, deliveries, idempotency_keys, sign_ins CASCADE")

    with pytest.raises(Refused, match=r"it: index ix_deliveries_account_id, .* and \d+ more; undo"):
        require_as_migrated()


def test_a_database_of_before_the_first_release_is_told_apart(upgraded, fresh, run_under):
    for migration in ("0001", "0046"):
        sql.run(f"UPDATE alembic_version SET version_num = '{migration}'")

        assert upgraded() == BEFORE_RELEASES
        assert problem(run_under(fresh, "agent", "list")) == BEFORE_RELEASES


def test_a_service_applies_missing_migrations(fresh, run_under, redis):
    done = run_under(fresh, "worker", "--burst")

    with app_of(fresh):
        assert (done.returncode, schema_version.problem()) == (0, None)


def test_a_role_that_owns_no_tables_leaves_migrations_to_others(app, fresh):
    sql.run("CREATE ROLE reader")
    as_reader = f"{fresh['DATABASE_URL']}&options=-crole%3Dreader"
    try:
        with app_of({**fresh, "DATABASE_URL": as_reader}):
            upgrade_if_allowed()

            assert schema_version.is_behind()
    finally:
        sql.run("DROP ROLE reader")


@pytest.mark.slow
def test_of_services_that_start_at_once_one_migrates_and_the_others_wait(fresh, begin, redis):
    with app_of(fresh):
        with db.engine.connect() as other:
            assert other.exec_driver_sql(schema_version.TRY_LOCK).scalar()
            started = [begin(command) for command in ("worker", "clock", "worker")]
            for service in started:
                eventually(lambda: "waiting for another upgrade" in service.said)  # noqa: B023
            assert schema_version.current() is None

        eventually(lambda: schema_version.current() is not None)
        ran = "SELECT count(*) FROM periodic_work WHERE event IN ('tick', 'worker')"
        eventually(lambda: sql.value(ran) == 2)

    assert all(service.is_running() for service in started)


@pytest.mark.slow
def test_an_upgrade_may_stay_for_a_runner_that_ends_all_with_the_first(begin):
    staying = begin("db", "upgrade", "--stay")

    eventually(lambda: "the database is up to date" in staying.said)
    assert staying.is_running()
    staying.signal(signal.SIGTERM)

    assert staying.wait() == 0
