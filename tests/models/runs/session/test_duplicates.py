from datetime import UTC, datetime, timedelta

import pytest

from refine.errors import RowAltered
from refine.extensions import db
from refine.models import RefinementSession
from refine.models.runs.session.duplicates import BATCH, remove_duplicates
from tests import factories, sql

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


@pytest.fixture
def agent(app):
    return factories.agent()


def dedup(owner):
    session = RefinementSession.queue(owner, "manual")
    removed = remove_duplicates(session, NOW)
    db.session.commit()
    return session, removed


def dedup_records(agent):
    records = factories.records(agent)
    return [record for record in records if record.action == "memory_refinement_dedup"]


def test_the_oldest_of_exact_duplicates_stays_and_takes_over_the_tags(agent):
    young = factories.memory(agent, "same", tags=["relational"])
    old = factories.memory(agent, " Same ", created_at=NOW)
    middle = factories.memory(agent, "same", created_at=NOW + timedelta(days=1))
    other = factories.memory(agent, "another")

    session, removed = dedup(agent)

    discarded = [memory.discarded for memory in (young, old, middle, other)]
    assert removed == session.duplicates_removed == 2
    assert discarded == [True, False, True, False]
    assert (old.tags, old.content) == (["relational"], "Same")
    assert (session.mutation_count, session.removed_tokens) == (0, 0)
    assert not any(session.stats.values())


@pytest.mark.parametrize("altered", ["the older", "the younger"])
def test_a_forged_hash_makes_nothing_a_duplicate(agent, altered):
    older, younger = (factories.memory(agent, text) for text in ("one thing", "another thing"))
    db.session.commit()
    row, hashed = (older, younger) if altered == "the older" else (younger, older)
    sql.tamper(
        f"UPDATE agent_memories SET content_hash = '{hashed.content_hash}' WHERE id = {row.id}"
    )

    with pytest.raises(RowAltered, match=f"memory {row.id} was changed in the database"):
        dedup(agent)


def test_all_locked_duplicates_stay_and_the_others_go(agent):
    plain = factories.memory(agent, "same", tags=["relational"], created_at=NOW)
    constitutional = factories.memory(agent, "same", constitutional=True)
    voice = factories.memory(agent, "same", tags=["voice"])

    _, removed = dedup(agent)

    assert removed == 1
    assert [memory.discarded for memory in (plain, constitutional, voice)] == [True, False, False]
    assert (constitutional.tags, voice.tags) == (["relational"], ["voice"])


def test_only_kept_core_memories_are_duplicates(agent):
    factories.memory(agent, "same")
    others = [
        factories.memory(agent, "same", memory_type="journal"),
        factories.memory(agent, "same", discarded_at=NOW),
    ]
    before = [memory.image() for memory in others]

    _, removed = dedup(agent)

    assert removed == 0
    assert [memory.image() for memory in others] == before


def test_each_removed_duplicate_is_recorded_and_the_survivor_if_it_took_tags(agent):
    kept = factories.memory(agent, "same")
    gone = [factories.memory(agent, "same", tags=tags) for tags in ([], ["relational"])]

    session, _ = dedup(agent)

    records = dedup_records(agent)
    assert [record.session_id for record in records] == [session.id] * 2
    assert [record.data["duplicate_of"] for record in records] == [kept.id] * 2
    assert [record.data["mass_after"] for record in records] == [2, 1]
    assert [int(record.auditable_id) for record in records] == [memory.id for memory in gone]
    changed = [[entry["id"] for entry in record.data["memories"]] for record in records]
    assert changed == [[gone[0].id], [gone[1].id, kept.id]]


def test_an_agent_that_was_erased_or_altered_is_told_of_no_removal(app, subtests):
    def alter(agent):
        sql.run(f"UPDATE agents SET model_id = 'evil/reader' WHERE id = {agent.id}")

    for change in (factories.erase, alter):
        with subtests.test(change=change.__name__):
            agent = factories.agent("same", "same")
            session, removed = dedup(agent)
            change(agent)
            db.session.expire_all()

            session.finish("failed", "internal error", at=NOW)

            assert removed == 1
            assert factories.journal(agent) == []


def test_many_copies_are_removed_in_batches(app):
    agent = factories.agent(*["one", "two"] * 78, "three")
    session = RefinementSession.queue(agent, "manual")

    removed = [remove_duplicates(session, NOW) for _ in range(3)]
    db.session.commit()

    assert removed == [BATCH, 4, 0]
    assert len(dedup_records(agent)) == session.duplicates_removed == BATCH + 4


def test_two_codes_that_differ_only_in_case_both_stay(agent):
    codes = [
        factories.memory(agent, text) for text in ("Code: xK9-aB", "code: xk9-ab", "Code: xK9-AB")
    ]

    _, removed = dedup(agent)

    assert removed == 0
    assert not any(code.discarded for code in codes)
