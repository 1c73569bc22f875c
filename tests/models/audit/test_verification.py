"""Changes made outside the application, by somebody who can switch the guards off."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from refine import clock
from refine.extensions import db
from refine.models import AgentMemory, AuditLog, ChainHead
from refine.models.audit import PLATFORM
from refine.models.integrity import note_verified, verify_all
from tests import factories, sql
from tests.chains import verify_agent
from tests.models.cases import case


@pytest.fixture
def chain(app):
    """Two agents; the first has a chain of four records, and an account's chain stands beside."""
    agent = factories.agent(name="Ada")
    user = factories.user(account=agent.account)
    session = factories.session(agent)
    for n in range(3):
        agent.record(
            "memory_saved",
            user=user,
            session_id=session.id,
            subject=("AgentMemory", n),
            data={"n": n, "word": "a b"},
            sealed={"content": f"secret {n}"},
        )
    agent.account.record("sign_in")
    factories.agent("another memory")
    db.session.commit()
    return agent


def problems():
    db.session.rollback()
    db.session.expire_all()
    found = [verified.problem for verified in verify_all()]
    db.session.rollback()
    return [problem for problem in found if problem is not None]


def problems_after(*statements):
    """The problems that verification finds with these changes, which are then rolled back."""
    db.session.rollback()
    connection = db.session.connection()
    for statement in ("SET LOCAL session_replication_role = replica", *statements):
        connection.exec_driver_sql(statement)
    db.session.expire_all()
    found = [verified.problem for verified in verify_all()]
    db.session.rollback()
    return [problem for problem in found if problem is not None]


def record_id(agent, sequence):
    return factories.records(agent)[sequence - 1].id


# -- chains ----------------------------------------------------------------------------------------


def test_untouched_chains_have_no_problem(chain):
    db.session.rollback()

    found = list(verify_all())

    assert [(each.name, each.records, each.memories, each.problem) for each in found] == [
        (f"account {chain.account_id}", 1, 0, None),
        (f"agent {chain.id}", 4, 0, None),
        (f"agent {chain.id + 1}", 0, 1, None),
    ]


def test_the_platforms_chain_is_checked_by_its_name(app):
    AuditLog.record("sign_in", chain=PLATFORM)
    db.session.commit()

    assert [verified.name for verified in verify_all()] == ["platform"]


RECORD_CHANGES = [
    "id = id + 1000000",
    "account_id = NULL",
    "user_id = NULL",
    "agent_id = agent_id + 1",
    "session_id = NULL",
    "session_id = gen_random_uuid()",
    "action = 'memory_discarded'",
    "auditable_type = 'Agent'",
    "auditable_type = NULL",
    "auditable_id = '999'",
    "auditable_id = NULL",
    """data = '{"n":2,"word":"a b"}'""",
    """data = '{"n": 1,"word":"a b"}'""",
    """data = '{"word":"a b","n":1}'""",
    """data = '{"n":1,"word":"a  b"}'""",
    "sealed = NULL",
    "sealed = ''",
    "sealed = sealed || 'x'",
    "sealed = (SELECT sealed FROM audit_logs WHERE sequence = 2 AND sealed IS NOT NULL)",
    "created_at = created_at + interval '1 microsecond'",
    "hash = repeat('0', 64)",
]


def test_a_changed_column_of_a_record_is_found_and_named(chain, subtests):
    id_ = record_id(chain, 3)

    for change in RECORD_CHANGES:
        with subtests.test(change=change):
            named = id_ + 1_000_000 if change.startswith("id") else id_
            found = problems_after(f"UPDATE audit_logs SET {change} WHERE id = {id_}")
            assert found == [f"record 3 (id {named}) was altered, added or moved"]


def test_an_empty_sealed_part_is_not_the_same_as_none(app):
    record = AuditLog.record("sign_in", chain=PLATFORM)
    db.session.commit()

    sql.tamper("UPDATE audit_logs SET sealed = ''")

    assert problems() == [f"record 1 (id {record.id}) was altered, added or moved"]


def test_the_first_bad_record_is_named(chain):
    sql.tamper(f"UPDATE audit_logs SET action = 'x' WHERE agent_id = {chain.id} AND sequence > 1")

    assert problems() == [f"record 2 (id {record_id(chain, 2)}) was altered, added or moved"]


def test_a_deleted_record_is_missed(chain):
    next_id = record_id(chain, 3)

    sql.tamper(f"DELETE FROM audit_logs WHERE id = {record_id(chain, 2)}")

    assert problems() == [f"record 2 is missing (the next one is 3, id {next_id})"]


def test_a_deleted_record_is_found_even_if_the_others_are_renumbered(chain):
    later = [record_id(chain, 3), record_id(chain, 4)]

    sql.tamper(
        f"DELETE FROM audit_logs WHERE id = {record_id(chain, 2)}",
        f"UPDATE audit_logs SET sequence = 2 WHERE id = {later[0]}",
        f"UPDATE audit_logs SET sequence = 3 WHERE id = {later[1]}",
    )

    assert problems() == [f"record 2 (id {later[0]}) was altered, added or moved"]


def test_swapped_records_are_found(chain):
    second, third = record_id(chain, 2), record_id(chain, 3)

    sql.tamper(
        f"UPDATE audit_logs SET sequence = 99 WHERE id = {second}",
        f"UPDATE audit_logs SET sequence = 2 WHERE id = {third}",
        f"UPDATE audit_logs SET sequence = 3 WHERE id = {second}",
    )

    assert problems() == [f"record 2 (id {third}) was altered, added or moved"]


def test_an_added_record_is_found(chain, subtests):
    add = f"""INSERT INTO audit_logs
                (id, chain_id, sequence, agent_id, action, data, created_at, hash)
              SELECT 777777, chain_id, 5, agent_id, action, data, created_at, hash
              FROM audit_logs WHERE id = {record_id(chain, 4)}"""
    move_head = f"UPDATE chain_heads SET sequence = 5 WHERE agent_id = {chain.id}"

    for statements in ([add], [add, move_head]):
        with subtests.test(statements=len(statements)):
            assert problems_after(*statements) == [
                "record 5 (id 777777) was altered, added or moved"
            ]


def test_a_record_moved_to_another_chain_is_missed_in_its_own(chain):
    other = db.session.scalar(select(ChainHead.id).where(ChainHead.account_id == chain.account_id))

    sql.tamper(
        f"UPDATE audit_logs SET chain_id = {other}, sequence = 2 WHERE id = {record_id(chain, 4)}"
    )

    assert [problem.split(" (")[0] for problem in problems()] == [
        "record 2",
        "the chain ends at record 3, its head says 4",
    ]


def test_a_changed_head_is_found(chain, subtests):
    for change, says in [
        ("sequence = 3", 3),
        ("sequence = 9", 9),
        ("sequence = 0", 0),
        ("hash = repeat('0', 64)", 4),
    ]:
        with subtests.test(change=change):
            found = problems_after(f"UPDATE chain_heads SET {change} WHERE agent_id = {chain.id}")
            assert found == [f"the chain ends at record 4, its head says {says}"]


def test_a_tail_deleted_without_its_head_is_found(chain):
    sql.tamper(f"DELETE FROM audit_logs WHERE id = {record_id(chain, 4)}")

    assert problems() == ["the chain ends at record 3, its head says 4"]


def test_records_without_a_head_are_found(chain):
    head = db.session.scalar(select(ChainHead.id).where(ChainHead.agent_id == chain.id))

    sql.tamper(f"DELETE FROM chain_heads WHERE id = {head}")

    found, other = [verified for verified in verify_all() if verified.problem is not None]
    assert found.problem == "the chain has records, but its head is missing"
    assert (found.records, found.memories) == (0, 0)  # none was verified
    assert (other.name, other.problem) == (f"agent {chain.id}", "its audit chain is gone")


@pytest.mark.parametrize(
    ("action", "minutes", "found"),
    [
        ("memory_saved", 4, None),
        ("memory_saved", 6, "record 2 is dated before an earlier one: time ran backwards"),
        # an expired grant is recorded as of its end, whenever that is noticed
        ("memory_access_ended", 60, None),
    ],
)
def test_times_that_run_backwards_are_found(app, action, minutes, found):
    agent = factories.agent()
    agent.record("memory_saved")
    note_verified(*verify_all())
    agent.record(action, at=clock.now() - timedelta(minutes=minutes))

    for in_full in (True, False):
        said = [each for each in verify_all(in_full=in_full) if each.name == f"agent {agent.id}"]
        assert [each.problem for each in said] == [found]


def test_one_bad_chain_does_not_hide_another(chain):
    sql.tamper("UPDATE audit_logs SET action = 'x' WHERE sequence = 1")

    assert len(problems()) == 2


# -- memories --------------------------------------------------------------------------------------

COLUMNS = [
    "id = id + 1000000",
    "memory_type = 'journal'",
    "content = content || 'x'",
    "content = (SELECT content FROM agent_memories WHERE agent_id = a.agent_id AND id <> a.id)",
    "constitutional = NOT constitutional",
    "tags = '{voice}'",
    "tags = '{}'",
    "content_hash = 'x'",
    "token_estimate = 99",
    "discarded_at = now()",
    "created_at = created_at - interval '1 microsecond'",
    "recorded_at = recorded_at - interval '1 microsecond'",
    "updated_at = updated_at - interval '1 microsecond'",
    "source = 'mem0'",
    "source = NULL",
    "source_id = '2'",
    "extra = NULL",
    "extra = ''",
    "session_id = gen_random_uuid()",
    "row_digest = 'x'",
]


@pytest.fixture
def remembered(app):
    """A memory with every column filled, and a record; beside it another one."""
    agent = factories.agent()
    memory, _ = agent.ledger.remember("a memory", "core", ["relational"])
    memory.source, memory.source_id, memory.extra = "letta", "1", "more"
    agent.ledger.remember("another memory", "core")
    db.session.commit()
    return memory


def test_a_changed_column_of_a_memory_is_found_and_named(remembered, subtests):
    without_record = factories.memory(
        factories.agent("another memory"),
        "a memory",
        tags=["relational"],
        source="letta",
        source_id="1",
        extra="more",
    )
    db.session.commit()

    for id_ in (remembered.id, without_record.id):
        for change in COLUMNS:
            with subtests.test(id=id_, change=change):
                named = id_ + 1_000_000 if change.startswith("id") else id_
                found = problems_after(f"UPDATE agent_memories a SET {change} WHERE id = {id_}")
                assert found == [f"memory {named} was changed outside the application"]


def test_a_memory_moved_to_another_agent_is_missed(remembered):
    other = factories.agent()
    db.session.commit()
    id_ = remembered.id

    sql.tamper(f"UPDATE agent_memories SET agent_id = {other.id} WHERE id = {id_}")

    assert problems() == [
        f"memory {id_} has records, but is gone",
        f"memory {id_} was changed outside the application",
    ]


def test_a_deleted_memory_with_records_is_missed(remembered):
    id_ = remembered.id

    sql.tamper(f"DELETE FROM agent_memories WHERE id = {id_}")

    assert problems() == [f"memory {id_} has records, but is gone"]


def test_a_change_without_a_record_is_found_although_the_row_is_sound(remembered, subtests):
    for field, value in [("content", "new words"), ("tags", ["voice"]), ("memory_type", "journal")]:
        with case(subtests, field=field):
            setattr(remembered, field, value)
            db.session.flush()
            found = verify_agent(remembered.agent).problem
            assert found == f"memory {remembered.id} does not match its last record"


def test_fields_outside_the_state_may_change_without_a_record(remembered):
    remembered.extra = "something else"
    db.session.commit()

    assert problems() == []


def test_a_memory_is_compared_with_its_last_record(remembered):
    remembered.discard()
    remembered.restore()
    remembered.set_constitutional(True)
    db.session.commit()

    assert problems() == []


def test_memories_without_records_are_accepted(app):
    agent = factories.agent("one", "two")
    db.session.commit()
    agent.ledger.remember("three", "core")
    db.session.commit()

    (verified,) = verify_all()

    assert (verified.problem, verified.memories, verified.records) == (None, 3, 1)


def test_the_chain_of_an_erased_agent_still_verifies(remembered):
    remembered.agent.erase()
    db.session.commit()

    (verified,) = verify_all()

    assert (verified.problem, verified.records, verified.memories) == (None, 3, 0)


# -- one agent, and what is kept -------------------------------------------------------------------


def test_a_single_agent_can_be_verified(chain):
    other = db.session.scalar(select(AgentMemory)).agent
    sql.tamper("UPDATE agent_memories SET source = 'x'")
    db.session.expire_all()

    assert verify_agent(chain).problem is None
    assert verify_agent(other).problem.endswith("was changed outside the application")


def test_a_sound_chain_is_stamped_with_its_verified_length(chain):
    db.session.rollback()
    found = list(verify_all())
    db.session.commit()

    for verified in found:
        note_verified(verified)

    heads = db.session.scalars(select(ChainHead).order_by(ChainHead.id)).all()
    lengths = [(head.verified_sequence, head.verified_memories) for head in heads]
    assert lengths == [(0, 0), (1, 0), (4, 0), (0, 0), (0, 1)]
    assert all(head.verified_at for head in heads if head.verified_sequence)


def test_a_broken_chain_is_not_stamped(chain):
    sql.tamper("UPDATE audit_logs SET action = 'x' WHERE sequence = 1")
    db.session.rollback()
    found = list(verify_all())
    db.session.commit()

    for verified in found:
        note_verified(verified)

    heads = db.session.scalars(select(ChainHead).where(ChainHead.sequence > 0)).all()
    assert [(head.verified_sequence, head.verified_at) for head in heads] == [(0, None)] * 2


def test_a_long_chain_is_followed_to_its_end(app):
    agent = factories.agent()
    for _ in range(3):
        agent.record("x")
    db.session.commit()
    sql.tamper(
        """INSERT INTO audit_logs (chain_id, sequence, agent_id, action, data, created_at, hash)
           SELECT chain_id, sequence + n, agent_id, action, data, created_at, hash
           FROM audit_logs, generate_series(1, 600) n WHERE sequence = 3"""
    )

    (problem,) = problems()

    assert problem.startswith("record 4 (id ")


def test_uncommitted_changes_are_verified_too(app):
    agent = factories.agent("a memory")
    db.session.commit()
    agent.ledger.remember("another one", "core")

    found = [chain for chain in verify_all() if chain.name == f"agent {agent.id}"]

    assert [(chain.memories, chain.problem) for chain in found] == [(2, None)]
