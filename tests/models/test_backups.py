"""Backups restored into an empty database: all of it comes back, but what lets somebody in."""

import json
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, NamedTuple
from zipfile import ZipFile

import pytest
from cryptography.fernet import Fernet
from flask import Flask
from flask_migrate import upgrade
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from refine import clock
from refine.errors import InvalidValue, RefineError, Refused, RowAltered, WrongKey
from refine.extensions import db
from refine.models import (
    AccessGrant,
    Agent,
    AgentMemory,
    ApiToken,
    AuditLog,
    Delivery,
    Endpoint,
    Invitation,
    MemoryTask,
    RefinementSession,
    SignIn,
    User,
    agent_erasure,
    backups,
    erasing,
)
from refine.models.audit.anchor import anchor, missing_since
from refine.models.integrity import verify_all
from refine.models.mail import Mail
from refine.models.people.second_factor import SecondFactor
from refine.models.people.user import NO_PASSWORD
from refine.models.restoring import ENDS, end_all, erase_again, note_restored
from tests import factories, sql
from tests.conftest import app_of

# Why a restore leaves the rows of a table as they were.
STAYS = {
    "agent_memories": "what agents keep",
    "audit_logs": "the record",
    "chain_heads": "the record",
    "data_keys": "they open what is sealed",
    "deliveries": "they end with their webhooks",
    "idempotency_keys": "answers to tokens, which end",
    "notices": "what people were told of",
    "periodic_work": "what the clock did last",
    "put_aside": "what people have seen",
    "session_entries": "figures of sessions, which end",
    "shared_counts": "limits, which lapse",
    "verifications": "outcomes; the next one counts",
}

CANARY = "the canary sings at dawn"
MEMORIES = ("kept", "locked", "since", "before")


class Before:
    """An installation in which everything that lets somebody in is in use, and a backup of it."""

    def __init__(self) -> None:
        owner = factories.agent(CANARY, "a constitutional memory", system_prompt=CANARY)
        account = owner.account
        first = db.session.scalars(owner.ledger.core()).first()
        assert first is not None
        reader = factories.user(account=account)
        first.set_constitutional(True, user=reader)
        self.code = SecondFactor.make_codes(reader)[0]
        self.sign_in = SignIn.begin(reader).secret
        self.link = Invitation.issue(factories.user(account=account))
        _, self.token = ApiToken.mint(account=account, agent=owner)
        _, self.platform = ApiToken.mint(account=account)
        factories.endpoint(account)
        account.request_sweep()
        Mail.remind(reader.email, clock.now())
        self.grant_id = factories.live_grant(owner, reader).id
        RefinementSession.queue(factories.agent(account=account), "cli")
        agent_erasure.request(factories.agent(account=account))
        factories.session(factories.agent("a", "b", account=account))
        factories.extraction(factories.agent(account=account), CANARY)
        assert factories.extraction(factories.agent(account=account)).claim()
        # no entities: those of this database must not be looked for in the other
        self.agent_id, self.email = owner.id, reader.email
        self.last_id = db.session.scalars(select(func.max(AgentMemory.id))).one()
        self.back_up()

    def back_up(self) -> None:
        db.session.commit()
        self.rows = sql.snapshot()
        self.file = BytesIO()
        self.manifest = backups.write(self.file)


@pytest.fixture
def before(app: Flask) -> Before:
    return Before()


@pytest.fixture
def restored(before: Before, fresh: dict[str, str]) -> Iterator[Callable[..., dict[str, int]]]:
    """Restores the backup into an empty database, in which the test goes on."""
    with app_of(fresh):
        upgrade()

        def restore(*, is_complete: bool = False) -> dict[str, int]:
            backup = backups.opened(before.file)
            backups.require_fitting(backup)
            backups.load(backup, is_complete=is_complete)
            ended = {} if is_complete else end_all(before.manifest["at"])
            note_restored(before.manifest["at"], ended, is_complete=is_complete)
            db.session.commit()
            return ended

        yield restore


def restored_agent(before: Before) -> Agent:
    return db.session.get_one(Agent, before.agent_id)


def is_verified(manifest: dict[str, Any]) -> bool:
    problems = [each.problem for each in verify_all() if each.problem]
    db.session.rollback()
    return problems == [] and list(missing_since(manifest["anchor"])) == []


def test_all_that_was_there_comes_back(before, restored):
    restored(is_complete=True)

    after = sql.snapshot()
    changed = {table for table in after if after[table] != before.rows[table]}
    assert changed == {"audit_logs", "chain_heads"}  # the record of the restore
    assert len(after["audit_logs"]) == len(before.rows["audit_logs"]) + 1
    agent = restored_agent(before)
    assert CANARY in (agent.memory_context() or "")
    assert is_verified(before.manifest)


def test_guards_are_as_before(before, restored):
    restored()

    with pytest.raises(IntegrityError, match="constitutional"):
        sql.run("UPDATE agent_memories SET content = 'x' WHERE constitutional")
    tokens = restored_agent(before).core_token_usage
    factories.memory(restored_agent(before), factories.text_of(25))
    db.session.expire_all()
    assert restored_agent(before).core_tokens == tokens + 25


def test_what_would_let_somebody_in_ends_and_is_listed(before, restored):
    ended = restored()

    assert ended == {
        "sign-ins": 1,
        "links for passwords": 1,
        "second factors": 1,
        "passwords": 2,
        "tokens": 2,
        "access to memories": 1,
        "webhooks": 1,
        "mails that waited": 1,
        "sessions": 2,
        "attempts at memory tasks": 1,
        "erasures of agents that were asked for": 1,
        "sweeps": 1,
    }
    assert SignIn.find_valid(before.sign_in) is None
    assert Invitation.by_secret(before.link) is None
    assert User.with_password(before.email, factories.PASSWORD) is None
    reader = User.by_email(before.email)
    assert reader is not None
    with pytest.raises(InvalidValue):
        SecondFactor.use_code(reader, before.code)
    assert not ApiToken.of_secret(before.token).is_valid
    assert not ApiToken.of_secret(before.platform).is_valid
    assert not db.session.get_one(AccessGrant, before.grant_id).permits_reading
    assert db.session.scalars(select(Endpoint.removed_at)).one() is not None
    assert db.session.scalar(select(func.count(Delivery.next_at))) == 0
    statuses = select(RefinementSession.status).order_by(RefinementSession.status)
    assert db.session.scalars(statuses).all() == ["failed", "skipped"]
    record = db.session.scalars(select(AuditLog).filter_by(action="database_restored")).one()
    assert record.data["ended"] == ended
    assert is_verified(before.manifest)


def test_conversations_that_wait_are_still_read_and_no_lease_holds(before, restored):
    restored()

    tasks = db.session.scalars(select(MemoryTask)).all()
    assert {task.status for task in tasks} == {"queued"}
    assert {task.lease_token for task in tasks} == {None}


def test_agents_are_told_that_something_is_missing(before, restored):
    restored()

    note = factories.journal(restored_agent(before))[-1].content
    assert note.startswith(f"My memories were restored from a backup of {before.manifest['at']}")


def test_an_id_that_was_given_after_the_backup_never_means_another_row(before, restored):
    restored()

    assert factories.memory(restored_agent(before)).id > before.last_id + 100_000


def test_ids_go_on_without_a_gap_after_a_complete_backup(before, restored):
    restored(is_complete=True)

    assert factories.memory(restored_agent(before)).id == before.last_id + 1


@pytest.fixture
def altered(before: Before) -> None:
    """Rows were changed outside the application before the backup, and an agent was erased."""
    factories.erase(factories.agent(account=db.session.get_one(Agent, before.agent_id).account))
    db.session.commit()
    sql.tamper(
        "UPDATE users SET role = 'viewer'",
        "UPDATE sign_ins SET created_at = created_at + interval '1 hour'",
        "UPDATE refinement_sessions SET threshold = 0.5",
        "UPDATE accounts SET name = 'Somebody'",
        f"UPDATE agents SET core_token_budget = 7 WHERE id <> {before.agent_id}",
    )
    before.back_up()


def test_altered_rows_stay_and_grant_nothing(before, altered, restored):
    restored()

    assert db.session.scalar(select(func.count()).where(User.password_hash != NO_PASSWORD)) == 2
    assert SignIn.find_valid(before.sign_in) is None
    with pytest.raises(RowAltered):
        User.with_password(before.email, factories.PASSWORD)


def test_every_table_is_kept_or_ended_for_a_reason():
    ended = {kind.__tablename__ for kind, _, _ in ENDS.values()}

    assert ended.isdisjoint(STAYS)
    assert ended | STAYS.keys() == db.metadata.tables.keys()


def test_no_content_is_readable_in_a_backup(before):
    with ZipFile(before.file) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}

    assert entries.keys() == {*db.metadata.tables, "manifest.json"}
    words = [word.encode() for word in ("canary", "sings", "constitutional memory")]
    readable = [name for name, held in entries.items() if any(word in held for word in words)]
    assert readable == []


def test_a_manifest_names_keys_by_fingerprint_alone(before, environ):
    manifest = json.dumps(before.manifest)

    assert before.manifest["keys"] == sorted(set(before.manifest["keys"]))
    assert environ["REFINE_ENCRYPTION_KEYS"] not in manifest


def test_a_backup_is_of_one_moment(before):
    file = BytesIO()
    with sql.just_before("COPY agent_memories", "DELETE FROM sign_ins"):
        manifest = backups.write(file)

    assert manifest["rows"]["sign_ins"] == 1


class Erased(NamedTuple):
    """The ids of an agent and memories of before the backup, and an anchor of after erasures."""

    agent: int
    kept: int
    locked: int
    since: int
    before: int
    anchor: dict[str, Any]


@pytest.fixture
def erased(before: Before) -> Erased:
    owner = db.session.get_one(Agent, before.agent_id)
    other = factories.agent("a memory", account=owner.account)
    gone_along = db.session.scalars(other.ledger.core()).one().id
    made = [
        factories.memory(owner, f"a memory of {name}") for name in ("Ann", "Bob", "Cleo", "Dan")
    ]
    kept, locked, since, earlier = [each.id for each in made]
    made[1].set_constitutional(True)
    erasing.erase_again(owner, [earlier])
    agent_id = other.id
    before.back_up()
    made[1].set_constitutional(False)
    erasing.erase_again(owner, [locked, since])
    erasing.erase_again(other, [gone_along])
    factories.erase(other)
    factories.erase(factories.agent())  # was not there when the backup was made
    db.session.commit()
    newer = anchor()
    db.session.commit()
    return Erased(agent_id, kept, locked, since, earlier, newer)


def test_what_was_erased_since_is_erased_again_from_an_anchor(before, erased, restored):
    restored()
    done = erase_again(erased.anchor)
    db.session.commit()

    assert done == {"agents": 1, "memories": 1, "constitutional memories, which stay": 1}
    assert db.session.get_one(Agent, erased.agent).is_erased
    memories = {name: db.session.get_one(AgentMemory, getattr(erased, name)) for name in MEMORIES}
    gone = {name for name, memory in memories.items() if memory.is_erased}
    assert gone == {"since", "before"}
    assert is_verified(before.manifest)
    assert erase_again(erased.anchor) == {"constitutional memories, which stay": 1}


# -- refused --------------------------------------------------------------------------------------


def test_only_an_empty_database_is_restored_into(before, restored):
    restored()
    rows = sql.snapshot()

    with pytest.raises(Refused, match="^the database is not empty: .* has rows"):
        restored()

    db.session.rollback()
    assert sql.snapshot() == rows


def test_tables_of_others_are_left_alone(app, fresh):
    with app_of(fresh):
        backups.require_no_tables()
        sql.run("CREATE TABLE theirs (id bigint)")
        with pytest.raises(Refused, match="^the database is not empty: it has a table theirs"):
            backups.require_no_tables()


def test_the_keys_are_checked_before_anything_is_written(before, fresh):
    with (
        app_of({**fresh, "REFINE_ENCRYPTION_KEYS": Fernet.generate_key().decode()}),
        pytest.raises(WrongKey, match=before.manifest["keys"][0]),
    ):
        backups.require_fitting(backups.opened(before.file))


def test_a_backup_of_another_schema_needs_its_version(before):
    backup = backups.opened(before.file)
    backup.manifest["migration"] = "0000"

    with pytest.raises(
        Refused, match="^the backup is of the migration 0000: restore it with Refine "
    ):
        backups.require_fitting(backup)


@pytest.mark.parametrize("content", [b"", b"PK", b"no zip", b"{}"])
def test_another_file_is_no_backup(content):
    with pytest.raises(InvalidValue, match="^this is not a whole backup"):
        backups.opened(BytesIO(content))


def rewritten(file: BytesIO, change: Callable[[str, bytes], bytes]) -> BytesIO:
    """The same archive, with other entries."""
    copy = BytesIO()
    with ZipFile(file) as old, ZipFile(copy, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return copy


def test_an_archive_of_others_is_no_backup(before):
    other = rewritten(before.file, lambda _name, _held: b'{"format": "another"}')

    with pytest.raises(InvalidValue, match="^this is not a whole backup"):
        backups.opened(other)


def test_a_damaged_byte_is_noticed(before, restored):
    held = bytearray(before.file.getvalue())
    held[held.index(b"agent_memories") + 200] ^= 1
    before.file = BytesIO(bytes(held))

    with pytest.raises(RefineError, match="not a whole backup"):
        restored()


def test_missing_rows_are_noticed(before, restored):
    empty = b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\xff\xff"
    before.file = rewritten(before.file, lambda name, held: empty if name == "sign_ins" else held)

    with pytest.raises(InvalidValue, match="^the backup lacks rows: sign_ins has 0 of 1$"):
        restored()
