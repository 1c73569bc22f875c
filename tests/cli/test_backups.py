"""`refine backup` and `refine restore`."""

import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from refine.extensions import db
from refine.models import Agent, AgentMemory, ApiToken, backups, erasing
from tests import factories, sql
from tests.cli.conftest import Run, problem
from tests.commands import start
from tests.conftest import app_of
from tests.models.test_schema_version import HEAD


@pytest.fixture
def file(ledger: Agent, run: Run, tmp_path: Path) -> Path:
    """A backup of an installation with an agent and a token."""
    ApiToken.mint(account=ledger.account)
    factories.agent(account=ledger.account, name="Bee")
    written = tmp_path / "refine.zip"
    assert run("backup", written).returncode == 0
    return written


def test_a_backup_is_for_its_owner_alone_and_overwrites_nothing(file, run):
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()

    assert problem(run("backup", file)) == f"{file} exists already; give another name"
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_a_backup_that_fails_leaves_no_file(ledger, run, tmp_path):
    sql.run("ALTER TABLE agent_memories RENAME TO away")
    try:
        done = run("backup", tmp_path / "refine.zip")
    finally:
        sql.run("ALTER TABLE away RENAME TO agent_memories")

    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_a_backup_is_restored_into_a_new_database(file, run, fresh):
    done = run("restore", file, DATABASE_URL=fresh["DATABASE_URL"])

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].startswith("restored 20 memories, ")
    assert "ended: 1 tokens" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("verified: ")
    verified = run("audit", "verify", DATABASE_URL=fresh["DATABASE_URL"])
    assert verified.returncode == 0
    again = run("restore", file, DATABASE_URL=fresh["DATABASE_URL"])
    assert problem(again).startswith("the database is not empty: ")


def test_nothing_ends_if_nothing_happened_since(file, run, fresh):
    done = run("restore", file, "--keep-tokens", DATABASE_URL=fresh["DATABASE_URL"])

    assert done.returncode == 0
    assert "ended" not in done.stdout


def test_a_wrong_key_is_refused_before_anything_is_written(file, run, fresh):
    other = {"REFINE_ENCRYPTION_KEYS": Fernet.generate_key().decode()}

    done = run("restore", file, DATABASE_URL=fresh["DATABASE_URL"], **other)

    assert problem(done).startswith("REFINE_ENCRYPTION_KEYS does not hold the key")
    with app_of(fresh):
        assert sql.value("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0


def test_a_database_of_others_or_of_another_version_is_left_alone(file, run, fresh):
    with app_of(fresh):
        sql.run("CREATE TABLE theirs (id bigint)")
        done = run("restore", file, DATABASE_URL=fresh["DATABASE_URL"])
        assert "it has a table theirs" in problem(done)
    sql.run("UPDATE alembic_version SET version_num = '9999'")
    try:
        assert "for another version of Refine" in problem(run("restore", file))
    finally:
        sql.run(f"UPDATE alembic_version SET version_num = '{HEAD}'")


def test_what_was_erased_since_is_erased_again(file, ledger, run, fresh, tmp_path):
    ids = [each.id for each in db.session.scalars(ledger.ledger.core())][:2]
    db.session.commit()
    erasing.erase_again(ledger, ids)
    factories.erase(Agent.named("Bee"))
    anchor = tmp_path / "anchor.json"
    anchor.write_text(run("audit", "anchor").stdout)

    done = run("restore", file, "--anchor", anchor, DATABASE_URL=fresh["DATABASE_URL"])

    assert done.returncode == 0
    assert "erased again: 1 agents\nerased again: 2 memories\n" in done.stdout
    with app_of(fresh):
        assert all(db.session.get_one(AgentMemory, id_).is_erased for id_ in ids)
        assert Agent.named("Bee").is_erased


def test_a_drill_restores_verifies_and_leaves_nothing(file, run):
    before = sql.snapshot()

    done = run("backup", "--check", file)

    assert (done.returncode, done.stderr) == (0, "")
    assert "restored 20 memories, " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("the backup can be restored: ")
    assert sql.snapshot() == before


def test_standard_output_holds_the_backup_alone(ledger, environ, tmp_path):
    db.session.commit()
    with (tmp_path / "refine.zip").open("wb") as written:
        piped = start("backup", "-", environ=environ, stdout=written)
    _, said = piped.communicate(timeout=60)

    assert piped.returncode == 0
    assert said.startswith("backed up 20 memories, ")
    with (tmp_path / "refine.zip").open("rb") as held:
        assert backups.opened(held).manifest["rows"]["agent_memories"] == 20
