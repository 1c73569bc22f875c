"""The role that runs the application: it can do all that the application does, and no more."""

import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import psycopg
import pytest
from flask import Flask
from psycopg import sql
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from refine import clock, create_app
from refine.extensions import db
from refine.models import ApiToken, AuditLog, Delivery, IdempotencyKey, Mail
from refine.models.shared_count import SharedCount
from refine.refinement import time_machine
from refine.settings import Settings
from tests import factories
from tests.cli.conftest import problem
from tests.refinement.conftest import World

Run = Callable[..., "subprocess.CompletedProcess[str]"]

LACKS_PRIVILEGE = "42501"


REFUSED = (
    "TRUNCATE audit_logs",
    "TRUNCATE agent_memories CASCADE",
    "TRUNCATE sign_ins",
    "ALTER TABLE audit_logs DISABLE TRIGGER ALL",
    "ALTER TABLE agent_memories DISABLE TRIGGER USER",
    "ALTER TABLE agents ADD COLUMN note text",
    "ALTER TABLE agents OWNER TO current_user",
    "DROP TRIGGER audit_logs_append_only ON audit_logs",
    "DROP TABLE audit_logs",
    "CREATE TRIGGER mine BEFORE INSERT ON audit_logs EXECUTE FUNCTION refuse_change()",
    "CREATE RULE mine AS ON INSERT TO audit_logs DO INSTEAD NOTHING",
    "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RETURN NULL; END $$",
    "SET session_replication_role = replica",
    "SET ROLE tests_owner",
    "GRANT tests_owner TO CURRENT_USER",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "UPDATE audit_logs SET action = action",
    "DELETE FROM audit_logs",
    "DELETE FROM agent_memories",
    "DELETE FROM access_grants",
    "DELETE FROM data_keys",
    "UPDATE alembic_version SET version_num = '0001'",
    "SELECT setval('audit_logs_id_seq', 1)",
    "CREATE TABLE audit_logs_copy (id bigint)",
    "CREATE TEMP TABLE audit_logs (id bigint)",
    "CREATE SCHEMA mine",
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "SELECT pg_read_file('/etc/passwd')",
)


OWNER, APP = "tests_owner", "refine_app"


@pytest.fixture(scope="module")
def superuser(migrated_app: Flask) -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
    url = db.engine.url.set(drivername="postgresql").render_as_string()
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def installation(
    superuser: "psycopg.Connection[tuple[object, ...]]", environ: dict[str, str]
) -> Iterator[dict[str, str]]:
    """The environment of a new database with two roles, neither of them a superuser."""
    superuser.execute(f"CREATE ROLE {OWNER} LOGIN CREATEROLE")
    superuser.execute(f"CREATE DATABASE two_roles OWNER {OWNER}")
    url = make_url(environ["DATABASE_URL"]).set(database="two_roles")
    yield {
        **environ,
        "DATABASE_URL": url.set(username=APP).render_as_string(),
        "REFINE_OWNER_DATABASE_URL": url.set(username=OWNER).render_as_string(),
    }
    superuser.execute("DROP DATABASE two_roles WITH (FORCE)")
    for role in (APP, OWNER):
        superuser.execute(f"DROP ROLE IF EXISTS {role}")


@pytest.fixture
def run(installation: dict[str, str], run_under: Run) -> Run:
    """Run a command of this installation; variables override its environment."""
    return lambda *arguments, stdin="", **variables: run_under(
        {**installation, **variables}, *arguments, stdin=stdin
    )


@pytest.fixture
def migrated(run: Run) -> Run:
    """The same, on a database that is migrated and has its roles."""
    for command in ("upgrade", "roles"):
        done = run("db", command)
        assert done.returncode == 0, done.stderr
    return run


@pytest.fixture
def running(migrated: Run, installation: dict[str, str]) -> Iterator[Flask]:
    """The application as its running role sees it."""
    app = create_app(Settings.from_environ(installation))
    with app.app_context():
        assert db.session.scalar(db.text("SELECT current_user")) == APP
        db.session.rollback()
        yield app
        db.session.remove()
        db.engine.dispose()


def refusal(*statements: str) -> str | None:
    """The SQLSTATE that ends a transaction of these statements."""
    try:
        with db.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
    except DBAPIError as error:
        return str(getattr(error.orig, "sqlstate", None))
    return None


def test_runs_a_session_and_undoes_it(running, installation, model):
    world = World(running, installation, model)
    model.say("YES").call("delete", id=world.ids[0])
    model.call("protect", id=world.ids[1]).call("complete", summary="One repeat less.")

    session = world.refine()
    undone = time_machine.undo(session, through="dashboard")
    db.session.commit()

    assert (session.status, session.mutation_count) == ("completed", 1)
    assert undone
    assert world.kept() == world.ids


def test_the_running_role_can_delete_what_the_application_deletes(running):
    later = clock.now() + timedelta(days=2)
    token, _ = ApiToken.mint(account=factories.account())
    IdempotencyKey.reserve(token, "a key", "a request")
    SharedCount.add(["a user"], lasts=timedelta(minutes=15))
    agent = factories.agent()
    factories.endpoint(agent.account)
    factories.ended(agent)
    db.session.scalars(db.select(Delivery)).one().note(clock.now(), "200")

    SharedCount.delete_ended(later)

    assert IdempotencyKey.delete_expired(later) == 1
    assert Delivery.prune(later + timedelta(days=30)) == 1
    assert Mail.prune(later) == 0
    assert db.session.query(SharedCount).count() == 0
    db.session.rollback()


def test_passes_every_command_that_changes_something(migrated, running):
    for arguments in (
        ("account", "add", "Acme"),
        ("user", "add", "ada@example.org", "--account", "acme", "--password-stdin"),
        ("agent", "add", "Ada", "--account", "acme", "--model", "test/model"),
        ("token", "add", "--platform", "--account", "acme"),
        ("webhook", "add", "https://example.org/", "--account", "acme"),
        ("keys", "rotate"),
        ("tick",),
        ("audit", "verify"),
        ("audit", "anchor"),
    ):
        done = migrated(*arguments, stdin="correct horse battery")
        assert (done.returncode, done.stderr) == (0, ""), arguments


def test_is_refused_everything_else(running, subtests):
    agent = factories.agent("a vow")
    agent.record("memory_saved")
    db.session.commit()

    for statement in REFUSED:
        with subtests.test(statement):
            assert refusal(statement) == LACKS_PRIVILEGE
    assert db.session.query(AuditLog).count() > 0


def test_cannot_call_on_a_temporary_audit_log(running, superuser):
    memory = factories.memory(factories.agent(), "a vow", constitutional=True)
    db.session.commit()
    superuser.execute(f"GRANT TEMPORARY ON DATABASE two_roles TO {APP}")

    sqlstate = refusal(
        "CREATE TEMP TABLE audit_logs AS SELECT pg_current_xact_id() AS transaction_id, "
        f"transaction_timestamp() AS transaction_at, {memory.agent_id} AS agent_id, "
        "'memory_refinement_rollback' AS action, '' AS auditable_type, '' AS auditable_id, "
        "'{}'::jsonb AS data",
        f"UPDATE agent_memories SET content = 'other' WHERE id = {memory.id}",
    )

    superuser.execute(f"REVOKE TEMPORARY ON DATABASE two_roles FROM {APP}")
    assert sqlstate == "23001"


def test_reads_and_writes_the_tables_of_later_migrations(migrated, running, installation):
    owner = make_url(installation["REFINE_OWNER_DATABASE_URL"]).set(drivername="postgresql")
    with psycopg.connect(owner.render_as_string(), autocommit=True) as connection:
        connection.execute("CREATE TABLE later (id bigserial PRIMARY KEY, word text)")
        assert refusal("INSERT INTO later (word) VALUES ('new')") is None
        assert refusal("UPDATE later SET word = 'newer'") is None
        assert refusal("DELETE FROM later") == refusal("TRUNCATE later") == LACKS_PRIVILEGE
        connection.execute("DROP TABLE later")


def test_an_upgrade_gives_the_privileges_again(migrated, running, superuser):
    assert refusal("DELETE FROM idempotency_keys") is None
    owner = db.engine.url.set(drivername="postgresql", username=OWNER).render_as_string()
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(f"REVOKE DELETE ON idempotency_keys FROM {APP}")
        connection.execute(f"GRANT UPDATE, DELETE ON audit_logs TO {APP}")

    migrated("db", "upgrade")

    assert refusal("DELETE FROM idempotency_keys") is None
    assert refusal("UPDATE audit_logs SET action = action") == LACKS_PRIVILEGE


def test_sends_and_prints_no_password(migrated, superuser):
    done = migrated("db", "roles", "--password-stdin", stdin="open sesame\n")

    (stored,) = superuser.execute(
        sql.SQL("SELECT rolpassword FROM pg_authid WHERE rolname = {}").format(APP)
    ).fetchone() or ("",)
    assert str(stored).startswith("SCRAM-SHA-256$")
    assert "sesame" not in done.stdout + done.stderr


def test_refuses_a_role_that_could_get_past_the_guards(migrated, superuser):
    superuser.execute("CREATE ROLE tests_member")
    for role, reason in (
        ("refine", "is a superuser, who can bypass every trigger"),
        (OWNER, "owns the tables, and can disable their triggers"),
        ("tests_member", f"is a member of pg_database_owner, pg_write_all_data, {OWNER}"),
    ):
        superuser.execute(f"GRANT {OWNER}, pg_write_all_data TO tests_member")
        refused = migrated("db", "roles", "--role", role)
        assert problem(refused) == f"the role {role} {reason}: choose another for the application"
    superuser.execute("DROP ROLE tests_member")


def test_doctor_warns_of_a_role_that_can_get_past_the_guards(migrated, installation, superuser):
    owner = installation["REFINE_OWNER_DATABASE_URL"]

    assert role_in(migrated("doctor")) == "ok   role        it cannot bypass the database's guards"
    assert role_in(migrated("doctor", DATABASE_URL=owner)).startswith(
        "warn role        the role in DATABASE_URL owns the tables, and can disable their triggers"
    )
    as_owner = make_url(owner).set(drivername="postgresql").render_as_string()
    with psycopg.connect(as_owner, autocommit=True) as connection:
        connection.execute(f"GRANT DELETE ON audit_logs TO {APP}")
    assert role_in(migrated("doctor")).startswith(
        "warn role        the role in DATABASE_URL may change or delete audit records"
    )


def role_in(done: "subprocess.CompletedProcess[str]") -> str:
    return next(line for line in done.stdout.splitlines() if line.split()[1] == "role")


def test_the_running_role_makes_no_roles(migrated):
    as_app = partial(migrated, REFINE_OWNER_DATABASE_URL="")

    for role in (APP, "another"):
        refused = problem(as_app("db", "roles", "--role", role))
        assert refused.startswith("this needs the owner of the tables")
        assert refused.endswith("and repeat this without --password-stdin")
