"""One real PostgreSQL and Valkey for each test process; every test finds the database empty."""

import dataclasses
import functools
import gc
import math
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from coverage import Coverage
from cryptography.fernet import Fernet
from flask import Flask
from flask.testing import FlaskClient, FlaskCliRunner
from flask_migrate import upgrade
from hypothesis import settings
from redis import Redis
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from refine import create_app
from refine.embedded import database_url, owned_servers, redis_url
from refine.extensions import db
from refine.models import schema_version
from refine.models.audit.record import PLATFORM_OWNER, ChainHead
from refine.models.keys import WrappedKey
from refine.rules.prices import parse_price_file
from refine.settings import Settings
from tests.commands import UNUSED_PORT, refine_here
from tests.costly import Meter, costly_tests, function_of
from tests.scripted_model import ScriptedModel

# A machine that is busy with other tests is no failure.
settings.register_profile("patient", deadline=None)
settings.register_profile("quick", parent=settings.get_profile("patient"), max_examples=20)
settings.load_profile("patient")

# Proofs at length, whole systems and the laboratory: every test in these folders is slow.
_FOLDERS_OF_PROOFS = {
    *("bench", "browser", "chaos", "degraded", "faults", "guessing", "interleaving"),
    *("privacy", "property"),
}

# Folders and files whose tests reach every branch of the modules that the guarantees depend on;
# what other tests reach is not measured.
_MEASURED = {
    *("access", "jobs", "llm", "models", "refinement", "remembering", "rules", "tools", "transfer"),
    *("test_lying_database.py", "test_migrations.py", "test_sealing.py"),
    "test_telemetry.py",
    *("api/test_access.py", "api/test_moving.py"),
    *("cli/test_audit_and_keys.py", "cli/test_import.py"),
    *("web/test_access.py", "web/test_audit.py", "web/test_bulk_actions.py", "web/test_errors.py"),
    *("web/test_metrics.py", "web/test_overview.py", "web/test_paging.py", "web/test_people.py"),
    *("web/test_second_factor.py", "web/test_secrets.py", "web/test_sessions.py"),
    *("web/test_signing_in.py",),
    *("web/test_two_tabs.py", "web/test_verification_alarm.py"),
}

# Tables whose first rows every test finds: the platform's key and chain.
_KEPT = ("data_keys", "chain_heads")

_HAS_FORGOTTEN = pytest.StashKey[bool]()

# For speed: nothing here outlives the test run.
_UNSAFE_BUT_FAST = ("fsync", "synchronous_commit", "full_page_writes")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Meter())
    # however slow the machine is, tests that count statements find as many
    schema_version._BELIEVED_SECONDS = math.inf


def pytest_xdist_auto_num_workers() -> int:
    """Tests wait for PostgreSQL and for processes: one more process than cores uses that time."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark proofs and costly tests as slow, and begin with those: none is left to run alone.

    Measuring coverage doubles what a test costs, so proofs and most folders go without; `make
    mutants`, which asks for contexts, measures all.
    """
    tests, costly = Path(__file__).parent, costly_tests()
    measures_all = config.getoption("cov_context", None) is not None
    for item in items:
        place = item.path.relative_to(tests) if item.path.is_relative_to(tests) else Path("/")
        folder = place.parts[0]
        is_marked = any(item.get_closest_marker(name) for name in ("slow", "nightly"))
        is_proof = is_marked or folder in _FOLDERS_OF_PROOFS
        if is_proof:
            item.add_marker(pytest.mark.proof)
        if is_proof or function_of(item) in costly:
            item.add_marker(pytest.mark.slow)
        if not measures_all and (is_proof or not _MEASURED & {folder, str(place)}):
            item.add_marker(pytest.mark.unmeasured)
    items.sort(key=_is_quick)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Pause measuring for an unmeasured test and its fixtures."""
    coverage = Coverage.current()
    if coverage is None:
        return (yield)
    if not item.get_closest_marker("unmeasured"):
        _forget_what_is_cached(item.config)
        return (yield)
    coverage.stop()
    try:
        return (yield)
    finally:
        coverage.start()


def _forget_what_is_cached(config: pytest.Config) -> None:
    """Before the first measured test of a process, empty the caches of unmeasured ones."""
    if config.stash.get(_HAS_FORGOTTEN, False):
        return
    config.stash[_HAS_FORGOTTEN] = True
    for name, module in list(sys.modules.items()):
        for each in vars(module).values() if name.startswith("refine.") else ():
            if isinstance(each, functools._lru_cache_wrapper):
                each.cache_clear()


def _is_quick(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is None


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of tests, which live to the end, are not the collector's to look at
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a running PostgreSQL and Valkey."""
    with servers_in(tmp_path_factory.mktemp("servers")) as folder:
        yield folder


@contextmanager
def servers_in(folder: Path) -> Iterator[Path]:
    """Run PostgreSQL and Valkey there, as fast as they can be."""
    with owned_servers(folder, holder="tests"):
        engine = create_engine(database_url(folder), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for setting in _UNSAFE_BUT_FAST:
                connection.execute(text(f"ALTER SYSTEM SET {setting} = off"))
            connection.execute(text("SELECT pg_reload_conf()"))
        engine.dispose()
        yield folder


@pytest.fixture(scope="session")
def environ(servers: Path) -> dict[str, str]:
    """The environment of an installation that has its own servers and keys."""
    return environ_of(servers)


def environ_of(servers: Path) -> dict[str, str]:
    """The same for the servers in this folder."""
    return {
        "DATABASE_URL": database_url(servers),
        "REDIS_URL": redis_url(servers),
        "REFINE_DATA_DIR": str(servers),
        "SECRET_KEY": "a secret of the tests, of 32 bytes or more",
        "REFINE_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "OPENROUTER_API_KEY": "a key of the tests",
        # a scripted model answers in turn; tests of runs side by side set another number
        "REFINE_CONCURRENCY": "1",
        # tests of second readings turn them on
        "REFINE_SECOND_READING": "off",
        # no test asks a real provider
        "OPENROUTER_BASE_URL": f"http://127.0.0.1:{UNUSED_PORT}/v1",
    }


@pytest.fixture(scope="session")
def migrated_app(environ: dict[str, str]) -> Iterator[Flask]:
    with migrated(environ) as app:
        yield app


@contextmanager
def migrated(environ: dict[str, str]) -> Iterator[Flask]:
    """The application in this environment, with its context pushed and its tables made."""
    app = create_app(Settings.from_environ(environ))
    with app.app_context():
        upgrade()
        _keep_platform()
        yield app
        db.engine.dispose()


@pytest.fixture
def app(migrated_app: Flask) -> Iterator[Flask]:
    """The application, with its context pushed and an empty database."""
    with emptied(migrated_app):
        yield migrated_app


@pytest.fixture
def fresh(app: Flask, environ: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of an installation with an empty database."""
    url = make_url(environ["DATABASE_URL"]).set(database=f"fresh_{uuid4().hex}")
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {url.database} TEMPLATE template0")
        yield {**environ, "DATABASE_URL": url.render_as_string(hide_password=False)}
        connection.exec_driver_sql(f"DROP DATABASE {url.database} WITH (FORCE)")


@contextmanager
def app_of(environ: dict[str, str]) -> Iterator[Flask]:
    """The application in this environment, its context pushed."""
    made = create_app(Settings.from_environ(environ))
    with made.app_context():
        yield made
        db.session.remove()
        db.engine.dispose()


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


@pytest.fixture
def cli(app: Flask) -> FlaskCliRunner:
    return app.test_cli_runner()


@pytest.fixture
def run_under(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process, under the environment that is given first."""
    return partial(refine_here, monkeypatch, capsys)


@pytest.fixture
def redis(environ: dict[str, str]) -> Iterator[Redis]:
    """Redis, empty before and after."""
    with Redis.from_url(environ["REDIS_URL"]) as connection:
        connection.flushall()
        yield connection
        connection.flushall()


@pytest.fixture
def set_setting(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change settings for the rest of the test."""
    given = app.extensions["refine.settings"]
    return lambda **values: monkeypatch.setitem(
        app.extensions, "refine.settings", dataclasses.replace(given, **values)
    )


@pytest.fixture
def with_prices(set_setting: Callable[..., None]) -> Callable[[str], None]:
    """Name prices for the rest of the test."""
    return lambda text: set_setting(prices=parse_price_file(text))


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """A real HTTP server that plays the model, from a queue of replies."""
    with ScriptedModel() as scripted:
        yield scripted


@contextmanager
def emptied(app: Flask) -> Iterator[None]:
    """With the application's context pushed; the block's rows are deleted at the end."""
    with app.app_context():
        yield
        db.session.rollback()
        db.session.remove()
        try:
            _empty()
        except OperationalError:  # a deadlock with the last request of a browser that has gone
            _empty()


def _keep_platform() -> None:
    """Make the platform's key and chain, with which every test begins, and keep copies."""
    WrappedKey.platform()
    ChainHead.begin(PLATFORM_OWNER)
    for name in _KEPT:
        db.session.execute(text(f"CREATE TABLE kept_{name} AS SELECT * FROM {name}"))
    db.session.commit()


def _empty() -> None:
    """Delete every row in one round trip; the role keeps the guards from refusing it."""
    tables = [table.name for table in reversed(db.metadata.sorted_tables)]
    deletions = "; ".join(f"DELETE FROM {name}" for name in tables)
    kept = "; ".join(f"INSERT INTO {name} SELECT * FROM kept_{name}" for name in _KEPT)
    with db.engine.begin() as connection:
        connection.exec_driver_sql(
            f"SET LOCAL session_replication_role = replica; {deletions}; {kept}"
        )
