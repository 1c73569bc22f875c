"""`refine doctor` names what is wrong: each fault is made with real servers, one at a time."""

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from flask import Flask
from redis import Redis
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import OperationalError

from refine.diagnoses import DIAGNOSES, Finding
from refine.embedded import database_url, postgres
from refine.extensions import db
from refine.health import database, machine
from refine.outages import connection_fault
from refine.settings import Settings
from tests import debian_postgres, factories, sql
from tests.chaos.pooler import pooled
from tests.cli.conftest import Run
from tests.commands import UNUSED_PORT
from tests.conftest import app_of
from tests.jobs.test_redis_tls import self_signed, tls_before
from tests.models.test_schema_version import HEAD
from tests.scripted_model import ScriptedModel
from tests.servers import Server

NOWHERE = f"127.0.0.1:{UNUSED_PORT}"
PORT = 18_400
LOCALE = "LOCALE_PROVIDER libc LOCALE 'C'"
PSYCOPG = "postgresql+psycopg:"


def codes(done: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    """The state of each finding, by its code."""
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert [each for each in found if not each["sentence"]] == []
    assert done.returncode == any(each["state"] == "fix" for each in found)
    return {each["code"]: each["state"] for each in found if each["state"] != "ok"}


@pytest.fixture
def doctor(run: Run, redis: Redis, model: ScriptedModel) -> Run:
    return partial(run, "doctor", "--json", OPENROUTER_BASE_URL=model.base_url)


def test_every_fault_is_said_in_one_sentence_with_one_remedy():
    for code, about in DIAGNOSES.items():
        assert "; " not in about["sentence"], code  # it parts the two
        assert about.get("remedy") or about["sentence"] == "{said}", code
    sentences = [about["sentence"] for about in DIAGNOSES.values()]
    sentences = [sentence for sentence in sentences if sentence != "{said}"]
    assert len(sentences) == len(set(sentences))


# -- the database lets nobody in ------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL that asks for passwords; fill in the role and the database."""
    folder = tmp_path_factory.mktemp("strict")
    server = Server(folder)
    server.start()
    admin = create_engine(database_url(folder), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        for statement in (
            "CREATE ROLE locked LOGIN PASSWORD 'right'",
            "CREATE ROLE busy LOGIN CONNECTION LIMIT 0",
            "CREATE ROLE barred LOGIN",
            "CREATE DATABASE closed ALLOW_CONNECTIONS false",
            "ALTER SYSTEM SET max_prepared_transactions = 2",
        ):
            connection.exec_driver_sql(statement)
    admin.dispose()
    rules = folder / "postgres" / "pg_hba.conf"
    first = "local all locked scram-sha-256\nlocal all barred reject\n"
    rules.write_text(first + rules.read_text())
    server.restart()
    try:
        yield f"postgresql://{{}}@/{{}}?host={make_url(database_url(folder)).query['host']}"
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("role", "name", "code"),
    [
        ("locked:secret", "refine", "database_password"),
        ("locked", "refine", "database_password"),
        ("nobody", "refine", "database_role"),
        ("barred", "refine", "database_role"),
        ("busy", "refine", "database_connections"),
        ("refine", "another", "database_missing"),
        ("refine", "closed", "database_starting"),
    ],
)
def test_who_is_not_let_in_reads_why(app, doctor, strict, role, name, code):
    done = doctor(DATABASE_URL=strict.format(role, name))

    assert codes(done)[code] == "fix"
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgresql://u@no-such-host.invalid/x", "database_host"),
        (f"postgresql://u@{NOWHERE}/x", "database_refused"),
        ("postgresql://u@/x?host=/no/such/folder", "database_refused"),
    ],
)
def test_an_address_without_a_database_is_named(app, doctor, run, url, code):
    assert codes(doctor(DATABASE_URL=url))[code] == "fix"

    said = run("agent", "list", DATABASE_URL=url).stderr  # every command says the same
    assert said == f"refine: {Finding.of(code)}\n"


@contextmanager
def listening(answer: Callable[[socket.socket], object] = lambda _: None) -> Iterator[int]:
    """A listener; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as open_until:

        def serve() -> None:
            while True:
                try:
                    connection = open_until.enter_context(server.accept()[0])
                    answer(connection)
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def connecting_to(url: str) -> str:
    with pytest.raises(OperationalError) as refused:
        create_engine(url, connect_args={"connect_timeout": 2}).connect()
    return connection_fault(refused.value).code


def test_a_database_that_says_nothing_is_told_from_one_that_is_not_there():
    with listening() as port:
        assert connecting_to(f"postgresql+psycopg://u@127.0.0.1:{port}/x") == "database_silent"


def test_a_database_without_tls_is_named():
    with listening(lambda connection: connection.recv(8) and connection.sendall(b"N")) as port:
        url = f"postgresql+psycopg://u@127.0.0.1:{port}/x?sslmode=require"
        assert connecting_to(url) == "database_tls"


def test_a_database_that_only_answers_nonsense_is_away():
    with listening(lambda connection: connection.recv(8) and connection.sendall(b"?")) as port:
        url = f"postgresql+psycopg://u@127.0.0.1:{port}/x?sslmode=disable"
        assert connecting_to(url) == "database_away"


# -- a database that answers ----------------------------------------------------------------------


@contextmanager
def broken(statement: str, mend: str) -> Iterator[None]:
    name = {"name": db.engine.url.database}
    db.session.commit()
    sql.run(statement.format(**name))
    try:
        yield
    finally:
        db.engine.dispose()
        sql.run("SET default_transaction_read_only = off; SET search_path = public")
        sql.run(mend.format(**name))
        db.engine.dispose()


def of_database(setting: str) -> tuple[str, str]:
    name = setting.split()[0]
    return f"ALTER DATABASE {{name}} SET {setting}", (
        f"SET default_transaction_read_only = off; ALTER DATABASE {{name}} RESET {name}"
    )


INDEX = "CREATE INDEX ix_agents_name ON agents (lower(name), id)"
VALID = "UPDATE pg_index SET indisvalid = {} WHERE indexrelid = 'ix_agents_name'::regclass"
TRIGGER = "ALTER TABLE audit_logs {} TRIGGER audit_logs_append_only"


@pytest.mark.parametrize(
    ("statement", "mend", "code", "state"),
    [
        (*of_database("default_transaction_read_only = on"), "database_read_only", "fix"),
        (*of_database("statement_timeout = '30s'"), "database_timeout", "warn"),
        (*of_database("session_replication_role = replica"), "guards_bypassed", "fix"),
        (*of_database("search_path = pg_catalog"), "schema_elsewhere", "fix"),
        (TRIGGER.format("DISABLE"), TRIGGER.format("ENABLE"), "guards_off", "fix"),
        ("DROP INDEX ix_agents_name", INDEX, "indexes_altered", "fix"),
        (VALID.format("false"), VALID.format("true"), "indexes_altered", "fix"),
        (
            "UPDATE alembic_version SET version_num = '9999'",
            f"UPDATE alembic_version SET version_num = '{HEAD}'",
            "schema_ahead",
            "fix",
        ),
    ],
)
def test_a_database_that_is_not_as_it_should_be(app, doctor, statement, mend, code, state):
    with broken(statement, mend):
        assert codes(doctor())[code] == state


def test_a_database_without_tables(doctor, fresh):
    assert codes(doctor(DATABASE_URL=fresh["DATABASE_URL"]))["schema_none"] == "fix"


def test_a_database_in_another_encoding(app, doctor):
    name = f"ascii_{uuid4().hex}"
    made = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' {LOCALE}"
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(made)
        url = db.engine.url.set(database=name).render_as_string(hide_password=False)
        found = codes(doctor(DATABASE_URL=url))
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")

    assert found["database_encoding"] == "fix"


def test_a_role_without_rights(app, doctor):
    url = db.engine.url.set(username="poor").render_as_string(hide_password=False)
    granted = "CREATE ROLE poor LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO poor"
    with broken(granted, "DROP OWNED BY poor; DROP ROLE poor"):
        assert codes(doctor(DATABASE_URL=url))["database_rights"] == "fix"


def found_in_database(**about: Any) -> set[str]:
    return {each.code for each in database.findings(is_pooled=False, **about)}


def test_an_old_server_is_named(app, monkeypatch):
    monkeypatch.setattr(database, "OLDEST_VERSION", 99)

    assert "database_version" in found_in_database()


def test_a_transaction_that_stays_open_is_named(app):
    with db.engine.connect() as other:
        other.exec_driver_sql("SELECT 1")
        assert "database_idle" in found_in_database(longest=timedelta(0))
    assert "database_idle" not in found_in_database()


@pytest.fixture(params=[postgres.running, debian_postgres.running], ids=["newest", "oldest"])
def pooled_database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database behind the real PgBouncer, where both are installed."""
    with TemporaryDirectory(prefix="refine-pooled-") as name, ExitStack() as until:
        folder = Path(name)
        (folder / "logs").mkdir()
        if request.param is debian_postgres.running and not debian_postgres.BINARIES.exists():
            pytest.skip("PostgreSQL 15 is not installed")
        until.enter_context(request.param(folder))
        if not (behind := until.enter_context(pooled(folder))):
            pytest.skip("PgBouncer is not installed")
        yield behind["DATABASE_URL"]


@pytest.mark.nightly
def test_a_pooler_in_transaction_mode_is_named_and_backups_go_through_it_both_ways(
    redis, environ, pooled_database, run_under, tmp_path
):
    aware = {**environ, "DATABASE_URL": pooled_database, "REFINE_POOLED": "1"}
    assert run_under(aware, "db", "upgrade").returncode == 0
    with app_of(aware):
        factories.ledger(factories.agent(), *[25] * 20)
        db.session.commit()
        with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("CREATE DATABASE restored TEMPLATE template0")

    unaware = codes(run_under({**aware, "REFINE_POOLED": "0"}, "doctor", "--json"))
    assert unaware["database_pooled"] == "fix"
    assert "database_pooled" not in codes(run_under(aware, "doctor", "--json"))
    file = str(tmp_path / "refine.zip")
    assert run_under(aware, "backup", file).stderr == ""
    restored = {**aware, "DATABASE_URL": pooled_database.replace("/refine?", "/restored?")}
    done = run_under(restored, "restore", file)
    assert done.stdout.startswith("restored 20 memories, "), done.stderr
    assert run_under(restored, "audit", "verify").returncode == 0


def test_a_prepared_transaction_that_nobody_ended_is_named(strict):
    engine = create_engine(strict.format("refine", "refine").replace("postgresql:", PSYCOPG))
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS held (id bigint)")
        connection.exec_driver_sql("PREPARE TRANSACTION 'held'")
        connection.commit()
        found = database._about_transactions(connection, timedelta(0))
        assert "database_prepared" in {each.code for each in found}
        connection.commit()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ROLLBACK PREPARED 'held'")
    engine.dispose()


# -- Redis ----------------------------------------------------------------------------------------


@contextmanager
def told(redis: Redis, *commands: str) -> Iterator[None]:
    for command in commands:
        redis.execute_command(*command.split())
    try:
        yield
    finally:
        for command in (
            *("CONFIG SET maxmemory 0", "CONFIG SET maxmemory-policy noeviction"),
            *("REPLICAOF NO ONE", "ACL SETUSER default on nopass ~* &* +@all"),
        ):
            redis.execute_command(*command.split())


@pytest.mark.parametrize(
    ("commands", "code", "state"),
    [
        (["CONFIG SET maxmemory 1"], "redis_full", "fix"),
        (["CONFIG SET maxmemory-policy allkeys-lru"], "redis_evicts", "warn"),
        ([f"REPLICAOF 127.0.0.1 {UNUSED_PORT}"], "redis_read_only", "fix"),
        (["ACL SETUSER default -set"], "redis_rights", "fix"),
    ],
)
def test_a_redis_that_takes_nothing(app, doctor, redis, commands, code, state):
    with told(redis, *commands):
        assert codes(doctor())[code] == state


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("redis://no-such-host.invalid:6379/0", "redis_host"),
        (f"redis://{NOWHERE}/0", "redis_away"),
    ],
)
def test_an_address_without_redis(app, doctor, url, code):
    assert codes(doctor(REDIS_URL=url))[code] == "fix"


def test_a_redis_that_refuses_the_password_or_number(app, doctor, redis, environ):
    address = environ["REDIS_URL"].removeprefix("unix://").partition("?")[0]

    assert codes(doctor(REDIS_URL=f"unix://u:secret@{address}"))["redis_password"] == "fix"
    assert codes(doctor(REDIS_URL=f"unix://{address}?db=99"))["redis_number"] == "fix"


def test_a_redis_without_tls(app, doctor, redis):
    redis.config_set("port", str(PORT))
    try:
        found = codes(doctor(REDIS_URL=f"rediss://127.0.0.1:{PORT}/0"))
    finally:
        redis.config_set("port", "0")

    assert found["redis_without_tls"] == "fix"


# -- the environment and the machine --------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "code", "state"),
    [
        ({"REFINE_CONCURENCY": "3"}, "settings_unknown", "warn"),
        ({"REFINE_NONSENSE": "3"}, "settings_unknown", "warn"),
        ({"REFINE_CONCURRENCY": "many"}, "settings_bad", "fix"),
        ({"REFINE_ENCRYPTION_KEYS": ""}, "settings_bad", "fix"),
        ({"REFINE_ENCRYPTION_KEYS": "short"}, "settings_bad", "fix"),
        ({"REFINE_ENCRYPTION_KEYS": Fernet.generate_key().decode()}, "keys_wrong", "fix"),
        ({"PUBLIC_URL": "refine.example.org"}, "settings_bad", "fix"),
        ({"PUBLIC_URL": "http://refine.example.org"}, "plain_http", "warn"),
        ({"PUBLIC_URL": "https://refine.example.org"}, "proxies_none", "fix"),
        ({"SECRET_KEY": "short"}, "secret_short", "warn"),
        ({"OPENROUTER_BASE_URL": f"http://{NOWHERE}/v1"}, "provider", "fix"),
    ],
)
def test_settings_are_judged(app, doctor, variables, code, state):
    assert codes(doctor(**variables))[code] == state


def test_a_misspelt_setting_is_told_beside_the_one_that_is_missing(app, doctor, environ):
    keys = environ["REFINE_ENCRYPTION_KEYS"]

    found = json.loads(doctor(REFINE_ENCRYPTION_KEYS="", REFINE_ENCRYPTION_KEY=keys).stdout)

    assert [each["code"] for each in found] == ["settings_unknown", "settings_bad"]
    assert found[0]["remedy"] == "did you mean REFINE_ENCRYPTION_KEYS?"


def test_a_data_folder_that_cannot_be_made(app, doctor):
    done = doctor(REDIS_URL="", REFINE_DATA_DIR="/proc/refine")

    assert codes(done) == {"data_folder": "fix"}


def judged(app: Flask, check: Callable[..., Iterator[Finding]], **values: Any) -> list[str]:
    settings: Settings = app.extensions["refine.settings"]
    return [each.code for each in check(replace(settings, **values))]


def test_a_data_folder_that_takes_nothing_or_is_full_is_named(app, tmp_path):
    assert judged(app, machine.data_folder, data_dir=tmp_path) == []
    assert judged(app, machine.data_folder, data_dir="/proc/refine") == ["data_folder"]
    full = partial(machine.data_folder, least_free=1 << 60)
    assert judged(app, full, data_dir=tmp_path) == ["disk_full"]


def test_time_zones_that_this_machine_lacks_are_named(app, doctor):
    factories.account()
    db.session.commit()
    sql.tamper("UPDATE accounts SET time_zone = 'Mars/Olympus'")

    assert codes(doctor())["zones_missing"] == "fix"


def test_what_does_not_run_is_named(app, doctor):
    found = codes(doctor())

    assert found["clock_never"] == "fix"
    assert found["worker_never"] == "fix"
    assert found["verified_never"] == "warn"


def test_a_redis_that_wants_tls(app, doctor, redis, environ, tmp_path):
    address = environ["REDIS_URL"].removeprefix("unix://").partition("?")[0]
    with tls_before(address, self_signed(tmp_path)) as port:
        plain = codes(doctor(REDIS_URL=f"redis://127.0.0.1:{port}/0"))
        distrusted = codes(doctor(REDIS_URL=f"rediss://127.0.0.1:{port}/0"))

    assert plain["redis_needs_tls"] == "fix"
    assert distrusted["redis_certificate"] == "fix"


def test_a_model_of_active_agents_that_the_provider_does_not_list(app, doctor, model):
    for model_id in ("test/gone", "test/gone", "test/model", "rehearsal/any"):
        factories.agent(model_id=model_id)
    factories.agent(model_id="test/unused", active=False)

    assert "model_unlisted" not in codes(doctor())  # there is no list
    model.catalogue = [{"id": "test/model"}]
    found = json.loads(doctor().stdout)

    told = [each["sentence"] for each in found if each["code"] == "model_unlisted"]
    assert told == ["the provider lists no model test/gone, which is that of 2 active agents"]
