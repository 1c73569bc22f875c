"""`refine audit` and `refine keys`, also on a restored dump."""

import json
from collections.abc import Iterator

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog, ChainHead, RefinementSession
from refine.models.audit import PLATFORM
from refine.refinement import time_machine
from refine.sealing import Keyring
from tests import editing, factories, sql
from tests.cli.conftest import problem
from tests.conftest import app_of

NEW = Fernet.generate_key().decode()


@pytest.fixture
def recorded(ledger: Agent) -> Agent:
    """Ada, with a chain of seven records, beside the chains of her account and the platform."""
    for n in range(3):
        ledger.ledger.remember(f"the canary sang{'!' * n}", "core")
    session = RefinementSession.start(ledger)
    editing.update(session, ids_of(ledger)[-1], "the canary")
    editing.complete(session, "Done.")
    time_machine.undo(session, through="dashboard")
    AuditLog.record("user_signed_in", chain=ledger.account.chain)
    AuditLog.record("keys_rotated", chain=PLATFORM)
    db.session.commit()
    assert len(factories.records(ledger)) == 7
    return ledger


def ids_of(owner: Agent) -> list[int]:
    """The ids of the three memories that were recorded."""
    mine = db.select(AgentMemory.id).filter_by(agent_id=owner.id, session_id=None)
    return sorted(db.session.scalars(mine.order_by(AgentMemory.id.desc()).limit(3)))


def test_verify_prints_figures_and_writes_only_how_far_it_verified(recorded, run):
    before = sql.snapshot()

    done = run("audit", "verify")

    after = sql.snapshot()
    heads = db.session.scalars(db.select(ChainHead).order_by(ChainHead.id)).all()
    assert done.stderr == ""  # by itself, so that a failure shows all of it
    assert done.returncode == 0
    assert done.stdout == "verified: 9 records in 3 chains, 25 memories as recorded\n"
    changed = {table for table in before if before[table] != after[table]}
    assert changed == {"chain_heads", "verifications"}
    assert [head.verified_sequence for head in heads] == [1, 1, 7]
    assert all(head.verified_at for head in heads)


def test_tampering_is_reported_with_the_first_bad_record(recorded, run):
    record_id, agent_id = factories.records(recorded)[2].id, recorded.id
    db.session.commit()
    sql.tamper(
        f"UPDATE audit_logs SET user_id = 7 WHERE id = {record_id}",
        f"UPDATE agent_memories SET tags = '{{voice}}' WHERE id = {ids_of(recorded)[0]}",
    )
    before = sql.snapshot()

    done = run("audit", "verify")

    after = sql.snapshot()
    line = f"agent {agent_id}: record 3 (id {record_id}) was altered, added or moved"
    assert problem(done) == line
    changed = {table for table in before if before[table] != after[table]}
    assert changed == {"audit_logs", "chain_heads", "verifications"}


def test_an_anchor_shows_that_nothing_is_missing_since(recorded, run, tmp_path):
    kept = tmp_path / "anchor.json"
    kept.write_text(run("audit", "anchor").stdout)
    recorded.ledger.remember("a new memory", "core")
    anchored = json.loads(kept.read_text())

    sound = run("audit", "verify", "--anchor", kept)
    anchored["chains"][-1]["sequence"] += 2
    missing = run("audit", "verify", "--anchor", "-", stdin=json.dumps(anchored))
    other = run("audit", "verify", "--anchor", "-", stdin="the canary")

    assert (sound.returncode, sound.stderr) == (0, "")
    assert sound.stdout == (
        "verified: 10 records in 3 chains, 26 memories as recorded; nothing is missing since "
        f"{anchored['at'][:19]}Z\n"
    )
    assert problem(missing) == f"agent {recorded.id}: anchored record 9 is missing"
    assert problem(other).startswith("this is not an anchor;")
    assert "canary" not in other.stderr


@pytest.fixture
def both(environ: dict[str, str]) -> str:
    """A new key in front of the one that wraps now."""
    return f"{NEW},{environ['REFINE_ENCRYPTION_KEYS']}"


def under(key: str) -> int:
    """How many data keys are wrapped by this key."""
    (name,) = Keyring([key]).fingerprints
    return int(sql.value(f"SELECT count(*) FROM data_keys WHERE wrapped_by = '{name}'"))


def test_rotation_records_the_number_of_keys_and_changes_no_content(recorded, run, both):
    before = sql.snapshot()

    done = run("keys", "rotate", REFINE_ENCRYPTION_KEYS=both)

    after = sql.snapshot()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "data keys rewrapped: 2; all data keys now need only the first of REFINE_ENCRYPTION_KEYS\n"
    )
    assert not any(key in done.stdout for key in both.split(","))
    record = db.session.scalars(db.select(AuditLog).order_by(AuditLog.id.desc()).limit(1)).one()
    assert (record.action, record.data) == ("keys_rotated", {"data_keys": 2})
    assert (record.agent_id, record.account_id, record.sequence) == (None, None, 2)
    changed = {table for table in before if before[table] != after[table]}
    assert changed == {"data_keys", "audit_logs", "chain_heads"}
    assert set(before["audit_logs"]) < set(after["audit_logs"])
    assert len(after["audit_logs"]) == len(before["audit_logs"]) + 1


def test_rotation_names_an_altered_key_and_rewraps_the_others(recorded, run, both):
    id_ = recorded.data_key_id
    db.session.commit()
    sql.run(f"UPDATE data_keys SET wrapped = wrapped || 'x' WHERE id = {id_}")

    line = problem(run("keys", "rotate", REFINE_ENCRYPTION_KEYS=both))

    assert line == (
        f"1 altered data key cannot be opened ({id_}): restore from a backup. "
        "Data keys rewrapped: 1"
    )
    assert under(NEW) == 1


def test_rotation_leaves_a_locked_key_for_the_next_run(recorded, run, both):
    with db.engine.begin() as another:
        another.exec_driver_sql(
            f"SELECT 1 FROM data_keys WHERE id = {recorded.data_key_id} FOR UPDATE"
        )
        first = run("keys", "rotate", REFINE_ENCRYPTION_KEYS=both)
    second = run("keys", "rotate", REFINE_ENCRYPTION_KEYS=both)

    assert problem(first) == "1 data key could not be locked; run this command again"
    assert second.stdout.startswith("data keys rewrapped: 1; all data keys")
    assert under(NEW) == 2


@pytest.fixture
def restored(recorded: Agent, fresh: dict[str, str]) -> dict[str, str]:
    """The environment of another database, into which a dump of this one was restored."""
    dump, there = sql.tool("pg_dump", db.engine.url), make_url(fresh["DATABASE_URL"])
    sql.tool("psql", there, "--quiet", "--set=ON_ERROR_STOP=1", given=dump)
    return fresh


@pytest.fixture
def restored_app(restored: dict[str, str]) -> Iterator[None]:
    """The application on the restored database, its context pushed."""
    with app_of(restored):
        yield


def test_a_restored_dump_verifies_is_guarded_and_usable(run, restored, restored_app, tmp_path):
    kept, there = tmp_path / "anchor.json", restored["DATABASE_URL"]
    kept.write_text(run("audit", "anchor").stdout)
    like_the_original = [
        run("audit", "verify", "--anchor", kept).stdout,
        run("audit", "verify", "--anchor", kept, DATABASE_URL=there).stdout,
    ]
    for statement in ("DELETE FROM agent_memories", "UPDATE audit_logs SET action = 'x'"):
        with pytest.raises(DBAPIError) as error:
            sql.run(statement)
        assert error.value.orig.sqlstate == "23001", statement
    saved, _ = Agent.named("Ada").ledger.remember("the first words after the restore", "core")
    db.session.commit()

    verified = run("audit", "verify", DATABASE_URL=there)

    assert like_the_original[0] == like_the_original[1]
    assert saved.content == "the first words after the restore"
    assert verified.stdout == "verified: 10 records in 3 chains, 26 memories as recorded\n"


NOT_STORED = "refine: the outcome could not be stored: the database is read-only\n"
READING = (
    *(("agent", "list"), ("agent", "show", "Ada"), ("session", "list")),
    *(("audit", "anchor"), ("export", "Ada")),
)


@pytest.fixture
def read_only(environ: dict[str, str]) -> dict[str, str]:
    """The environment of a role that only reads by default."""
    option = "options=-cdefault_transaction_read_only%3Don"
    return {"DATABASE_URL": f"{environ['DATABASE_URL']}&{option}"}


def test_a_replica_is_verified_and_the_outcome_is_not_stored(recorded, run, read_only):
    anchored = run("audit", "anchor").stdout
    before = sql.snapshot()

    for options in ((), ("--anchor", "-")):
        done = run("audit", "verify", *options, stdin=anchored, **read_only)

        assert (done.returncode, done.stderr) == (0, NOT_STORED), options
        assert done.stdout.startswith("verified: 9 records in 3 chains, 25 memories as recorded")
    assert sql.snapshot() == before


def test_read_only_commands_work_on_a_replica(recorded, run, read_only):
    for command in READING:
        done = run(*command, **read_only)

        assert (done.returncode, done.stderr) == (0, ""), command
    found = run("doctor", **read_only)
    assert "PostgreSQL answers" in found.stdout
    assert "internal" not in found.stdout + found.stderr
