"""Upgrades: one at a time, and what happens while code and database are of two versions."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from flask import Flask
from flask_migrate import downgrade, upgrade

from refine import create_app
from refine.errors import Refused
from refine.extensions import db
from refine.jobs import tick
from refine.models import ApiToken, PeriodicWork, schema_version
from refine.settings import Settings
from tests import factories, sql
from tests.commands import eventually, refine
from tests.conftest import app_of
from tests.web.conftest import browser_of, person, signed_in_browser, words_of

ROOT = Path(__file__).parent.parent.parent
HEAD = schema_version._migrations_in(str(ROOT / "migrations"))[0]
LATER = '''"""Of a later version."""

from alembic import op

revision = "{revision}"
down_revision = "{before}"
is_additive = {is_additive}


def upgrade() -> None:
    op.execute("ALTER TABLE periodic_work ADD COLUMN scratch_{revision} text")


def downgrade() -> None:
    op.execute("ALTER TABLE periodic_work DROP COLUMN scratch_{revision}")
'''

EMPTY = "the database has no tables yet; run `refine db upgrade`"
OLDER = "the database is not at the newest migration; run `refine db upgrade`"
OTHER = "the database is at 9001, for another version of Refine than this; start that one"


@pytest.fixture
def ours(fresh: dict[str, str]) -> Iterator[Flask]:
    """This version on an upgraded database, its context pushed."""
    with app_of(fresh) as ours:
        upgrade()
        yield ours


@pytest.fixture
def release(ours: Flask, tmp_path: Path) -> Callable[..., None]:
    """Upgrades the database as later releases do, one for each migration."""
    newer = tmp_path / "migrations"
    shutil.copytree(ROOT / "migrations", newer, ignore=shutil.ignore_patterns("__pycache__"))

    def deploy(*additive: bool, command: Callable[..., None] = upgrade) -> None:
        before = HEAD
        for number, is_additive in enumerate(additive, start=1):
            named = {"revision": f"900{number}", "before": before, "is_additive": is_additive}
            (newer / "versions" / f"900{number}_later.py").write_text(LATER.format(**named))
            before = f"900{number}"
        command(directory=str(newer))
        schema_version.forget()

    return deploy


def make_another() -> None:
    """Make the database one of another version."""
    sql.run("UPDATE alembic_version SET version_num = '9001'")
    schema_version.forget()


def make_current() -> None:
    sql.run(f"UPDATE alembic_version SET version_num = '{HEAD}'")


# -- which database is compatible ------------------------------------------------------------------


def test_the_newest_database_is_compatible(ours):
    assert schema_version.problem() is None


def test_an_empty_database_is_incompatible(fresh):
    with app_of(fresh):
        assert str(schema_version.problem()) == EMPTY


def test_an_older_database_is_incompatible(ours, tmp_path):
    newer = tmp_path / "migrations"
    shutil.copytree(ROOT / "migrations", newer, ignore=shutil.ignore_patterns("__pycache__"))
    named = {"revision": "9001", "before": HEAD, "is_additive": True}
    (newer / "versions" / "9001_later.py").write_text(LATER.format(**named))
    ours.extensions["migrate"].directory = str(newer)

    assert str(schema_version.problem()) == OLDER


@pytest.mark.parametrize(
    ("additive", "goes_on"),
    [([True], True), ([False], False), ([True, True], True), ([True, False], False)],
)
def test_a_release_goes_on_beside_later_ones_that_only_add(ours, release, additive, goes_on):
    release(*additive)

    assert (schema_version.problem() is None) == goes_on
    assert schema_version.must_wait() != goes_on


def test_a_release_that_goes_on_beside_a_later_one_serves_and_works(ours, release, fresh):
    admin = person()
    db.session.commit()
    browser = signed_in_browser(ours, admin)
    release(True)

    assert browser.get("/agents").status_code == 200
    assert tick.run_tick().faults == 0
    assert PeriodicWork.age("tick") is not None
    assert refine("db", "upgrade", environ=fresh).returncode == 0
    assert schema_version.current() == "9001"


def test_a_downgrade_leaves_no_release_beside_it(ours, release):
    release(True)
    release(command=partial(downgrade, revision=HEAD))

    assert schema_version.problem() is None
    assert sql.value("SELECT obj_description('alembic_version'::regclass, 'pg_class')") is None


def test_a_database_of_another_version_is_incompatible(ours):
    make_another()

    assert str(schema_version.problem()) == OTHER


def test_a_database_whose_migration_is_missing_is_incompatible(ours):
    sql.run("DELETE FROM alembic_version")

    assert str(schema_version.problem()) == EMPTY


def test_a_database_of_before_the_first_release_is_told_apart(ours):
    sql.run("UPDATE alembic_version SET version_num = '0042'")

    assert str(schema_version.problem()).startswith("the database was made before Refine 1.0.0")


def test_tables_that_search_path_does_not_find_are_named(ours):
    name = db.engine.url.database
    sql.run(f"ALTER DATABASE {name} SET search_path = pg_catalog")
    db.engine.dispose()
    try:
        assert "the tables are in the schema public" in str(schema_version.problem())
    finally:
        sql.run(f"ALTER DATABASE {name} RESET search_path")
        db.engine.dispose()


def test_only_a_reachable_database_without_our_migrations_is_behind(ours, fresh, environ):
    assert not schema_version.is_behind()
    sql.run("DELETE FROM alembic_version")
    assert schema_version.is_behind()
    sql.run("CREATE SCHEMA mine", "ALTER TABLE alembic_version SET SCHEMA mine")
    assert not schema_version.is_behind(), "they are somewhere else"
    with app_of({**environ, "DATABASE_URL": "postgresql://[::1]:1/x"}):
        assert not schema_version.is_behind()


# -- what they do meanwhile ------------------------------------------------------------------------


def test_pages_and_api_say_that_it_is_being_upgraded(ours):
    admin = person()
    _, secret = ApiToken.mint(account=admin.account)
    db.session.commit()
    browser = signed_in_browser(ours, admin)
    bearer = {"Authorization": f"Bearer {secret}"}
    make_another()

    page, posted = browser.get("/agents"), browser.post("/sign-in", data={"email": "x"})
    called = ours.test_client().get("/api/v1/agents", headers=bearer)

    for answer in (page, posted):
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert "Refine is being upgraded" in words_of(answer.text)
        assert "The database is at 9001, for another version" in words_of(answer.text)
    assert (called.status_code, called.json["status"]) == (503, 503)  # type: ignore[index]
    assert browser_of(ours).get("/sign-in").status_code == 200
    assert ours.test_client().get("/healthz").status_code == 200

    make_current()

    assert browser.get("/agents").status_code == 200


def test_the_clock_waits_logs_it_once_and_continues(ours, caplog):
    make_another()

    ticks = [tick.run_tick() for _ in range(3)]
    marks = PeriodicWork.age("tick")
    said = [record.getMessage() for record in caplog.records]
    make_current()
    tick.run_tick()

    assert all(each == tick.TickResult() for each in ticks)
    assert marks is None
    assert sum("waiting: the database schema is incompatible" in each for each in said) == 1
    assert PeriodicWork.age("tick") is not None
    assert any("compatible again" in record.getMessage() for record in caplog.records)


def test_waiting_services_continue_as_soon_as_they_are_compatible(ours):
    make_another()

    def wait() -> None:
        with ours.app_context():
            schema_version.wait_until_compatible()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        eventually(lambda: ours.extensions.get("refine.schema_version.waits"))
        has_waited = not waiting.done()
        make_current()
        waiting.result(60)

    assert has_waited


def test_a_command_says_what_to_do_first(ours, fresh):
    make_another()

    for command in (("agent", "list"), ("audit", "verify")):
        done = refine(*command, environ=fresh)

        assert (done.returncode, done.stderr) == (1, f"refine: {OTHER}\n")


def test_nobody_waits_for_the_schema_of_an_unreachable_database(environ):
    away = create_app(Settings.from_environ({**environ, "DATABASE_URL": "postgresql://[::1]:1/x"}))
    with away.app_context():
        assert not schema_version.must_wait()
        schema_version.require_compatible()


# -- upgrades --------------------------------------------------------------------------------------


def test_an_upgrade_begins_when_the_other_one_ends(ours, caplog):
    def upgrades() -> bool:
        with ours.app_context(), schema_version.upgrading():
            return True

    with ThreadPoolExecutor(1) as pool:
        with schema_version.upgrading():
            other = pool.submit(upgrades)
            eventually(lambda: "waiting for another upgrade" in caplog.text)
            has_waited = not other.done()
        assert other.result(60)

    assert has_waited


def test_an_upgrade_waits_for_another_one_for_a_limited_time(ours):
    with db.engine.connect() as other:
        assert other.exec_driver_sql(schema_version.TRY_LOCK).scalar()

        with (
            pytest.raises(Refused, match="another upgrade is running"),
            schema_version.upgrading("1ms"),
        ):
            pass

    with schema_version.upgrading(), schema_version.upgrading():
        assert sql.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 1


def test_an_upgrade_with_another_key_writes_nothing(ours, fresh):
    factories.agent("one")
    db.session.commit()
    before = sql.snapshot()
    key = Fernet.generate_key().decode()

    refused = refine("db", "upgrade", environ={**fresh, "REFINE_ENCRYPTION_KEYS": key})

    assert refused.returncode == 1
    assert "REFINE_ENCRYPTION_KEYS does not hold the key" in refused.stderr
    assert sql.snapshot() == before


def test_an_upgrade_leaves_the_database_of_another_version_alone(ours, fresh):
    make_another()

    refused = refine("db", "upgrade", environ=fresh)

    assert (refused.returncode, refused.stderr) == (1, f"refine: {OTHER}\n")
