from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import (
    MAX_MUTATIONS,
    AgentMemory,
    AuditLog,
    EditRefused,
    RefinementSession,
    SessionEntry,
)
from refine.models.audit import PLATFORM
from refine.models.integrity import verify_all
from refine.models.runs.session import breaker, editing
from refine.models.runs.session.duplicates import remove_duplicates
from tests import factories, sql
from tests.factories import text_of

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def begin(*tokens, **fields):
    """A session over memories of these sizes; and their ids."""
    agent = factories.agent(**fields)
    ids = [memory.id for memory in factories.ledger(agent, *tokens)]
    return factories.session(agent), ids


def memory(memory_id):
    return db.session.get_one(AgentMemory, memory_id, populate_existing=True)


def state_of(agent):
    """Every core memory as it stands, discarded ones too."""
    db.session.flush()
    db.session.expire_all()
    memories = select(AgentMemory).where(
        AgentMemory.agent_id == agent.id, AgentMemory.memory_type == "core"
    )
    return {each.id: each.image() for each in db.session.scalars(memories.order_by(AgentMemory.id))}


def kept(agent):
    return {id_: image for id_, image in state_of(agent).items() if image["discarded_at"] is None}


def last_record(session):
    return factories.records(session.agent)[-1]


# -- edits -----------------------------------------------------------------------------------------


def test_a_merge_is_one_new_memory_dated_as_the_earliest_with_all_the_tags(app):
    agent = factories.agent()
    sources = [
        factories.memory(agent, text_of(10), created_at=NOW, tags=["relational"]),
        factories.memory(agent, text_of(10), created_at=NOW - timedelta(days=9)),
    ]
    session = factories.session(agent)

    merged = editing.consolidate(session, [source.id for source in sources], f"  {text_of(20)} ")

    assert merged.content == merged.content.strip()
    assert (merged.memory_type, merged.tags, merged.constitutional) == (
        "core",
        ["relational"],
        False,
    )
    assert merged.created_at == NOW - timedelta(days=9)
    assert [source.discarded for source in sources] == [True, True]
    assert list(kept(agent)) == [merged.id]
    assert session.stats["consolidated"] == 2
    assert session.mutation_count == 1


def test_a_merge_is_recorded_with_every_source_and_the_result(app):
    session, ids = begin(10, 10, 100)

    merged = editing.consolidate(session, ids[:2], text_of(20), NOW)

    record = last_record(session)
    assert (record.action, record.auditable_id) == (
        "memory_refinement_consolidate",
        str(merged.id),
    )
    assert (record.data["operation"], record.data["mass_after"]) == ("consolidate", 120)
    assert [
        (entry["id"], entry["before"] is None, entry["after"]["discarded_at"] is None)
        for entry in record.data["memories"]
    ] == [(ids[0], False, False), (ids[1], False, False), (merged.id, True, True)]
    assert record.sealed["memories"][2]["after"]["content"] == merged.content
    assert merged.content not in str(record.data)


@pytest.mark.parametrize(
    ("edit", "action", "figure"),
    [
        (lambda session, id_: editing.update(session, id_, text_of(9)), "update", "updated"),
        (lambda session, id_: editing.delete(session, id_), "delete", "deleted"),
        (lambda session, id_: editing.protect(session, id_), "protect", "protected"),
    ],
)
def test_an_edit_of_one_memory_is_recorded_before_and_after(app, edit, action, figure):
    session, ids = begin(10, 90)
    before = memory(ids[0]).image()

    edited = edit(session, ids[0])

    record = last_record(session)
    (entry,), (sealed,) = record.data["memories"], record.sealed["memories"]
    assert record.action == f"memory_refinement_{action}"
    assert (record.session_id, record.user_id) == (session.id, None)
    assert record.auditable_id == str(ids[0])
    assert {**entry["before"], **sealed["before"]}.items() >= before.items()
    assert {**entry["after"], **sealed["after"]}.items() >= edited.image().items()
    assert session.stats == {
        **dict.fromkeys(("consolidated", "updated", "deleted", "protected"), 0),
        figure: 1,
    }


def test_an_update_keeps_all_but_the_content(app):
    agent = factories.agent()
    old = factories.memory(agent, text_of(10), tags=["relational"], created_at=NOW)
    session = factories.session(agent)

    updated = editing.update(session, old.id, "  rewritten " + text_of(10))

    assert updated.content.startswith("rewritten")
    assert (updated.id, updated.tags, updated.created_at) == (old.id, ["relational"], NOW)
    assert updated.row_digest == updated.digest_of_row()


def test_protecting_what_is_protected_records_nothing(app):
    session, ids = begin(10)
    editing.protect(session, ids[0])
    before = len(factories.records(session.agent))

    again = editing.protect(session, ids[0])

    assert again.constitutional
    assert len(factories.records(session.agent)) == before
    assert session.stats["protected"] == 1


# -- what may be changed ---------------------------------------------------------------------------


def locked(session, ids, **fields):
    for id_ in ids:
        for field, value in fields.items():
            setattr(memory(id_), field, value)
    db.session.commit()


@pytest.mark.parametrize(
    ("fields", "lock"),
    [
        ({"constitutional": True}, "constitutional"),
        ({"tags": ["audio"]}, "immutable"),
        ({"tags": ["somatic"]}, "immutable"),
        ({"tags": ["voice"]}, "immutable"),
        ({"tags": ["voice"], "constitutional": True}, "constitutional"),
    ],
)
def test_a_locked_memory_is_not_edited_and_the_refusal_names_it(app, fields, lock):
    agent = factories.agent()
    a, b, c = (factories.memory(agent, **(fields if n else {})) for n in range(3))
    session = factories.session(agent)
    before = state_of(agent)

    for edit, message in [
        (lambda: editing.delete(session, b.id), f"Cannot delete {lock} memory #{b.id}"),
        (lambda: editing.update(session, b.id, "new"), f"Cannot update {lock} memory #{b.id}"),
        (
            lambda: editing.consolidate(session, [c.id, a.id, b.id], "new"),
            f"Cannot consolidate {lock} memories: {c.id}, {b.id}",
        ),
    ]:
        with pytest.raises(EditRefused, match=f"^{message}$"):
            edit()

    assert state_of(agent) == before
    assert session.mutation_count == 0


def test_a_memory_that_the_session_protected_is_locked(app):
    session, ids = begin(10, 90)
    editing.protect(session, ids[0])

    with pytest.raises(EditRefused, match="constitutional"):
        editing.delete(session, ids[0])


def test_a_tagged_memory_may_be_protected(app):
    agent = factories.agent()
    voice = factories.memory(agent, tags=["voice"])
    session = factories.session(agent)

    assert editing.protect(session, voice.id).constitutional


def test_what_is_no_kept_core_memory_of_the_agent_is_not_found(app, subtests):
    agent, other = factories.agent(), factories.agent()
    there = factories.memory(agent)
    all_absent = {
        "unknown": 10**15,
        "journal": factories.memory(agent, memory_type="journal").id,
        "discarded": factories.memory(agent, discarded_at=NOW).id,
        "another agent's": factories.memory(other).id,
    }
    session = factories.session(agent)
    before = sql.snapshot()

    for kind, absent in all_absent.items():
        for verb, arguments in {
            "delete": [absent],
            "update": [absent, "new"],
            "protect": [absent],
            "consolidate": [[there.id, absent], "new"],
        }.items():
            with subtests.test(kind=kind, verb=verb):
                with pytest.raises(EditRefused, match=f"Memory #{absent} not found"):
                    getattr(editing, verb)(session, *arguments)
                db.session.commit()
                assert sql.snapshot() == before


def test_every_absent_id_is_named(app):
    session, ids = begin(10)

    with pytest.raises(EditRefused, match="Memories #999999991, #999999992 not found"):
        editing.consolidate(session, [999999991, ids[0], 999999992], "new")


@pytest.mark.parametrize("ids", [[], [1], [1, 1]])
def test_a_merge_needs_two_memories(app, ids):
    session, _ = begin(10)

    with pytest.raises(EditRefused, match="consolidate requires at least 2 memory IDs"):
        editing.consolidate(session, ids, "new")


def test_an_update_must_differ(app):
    session, ids = begin(10)

    with pytest.raises(EditRefused, match="already has this content"):
        editing.update(session, ids[0], f" {memory(ids[0]).content}\n")

    assert session.mutation_count == 0


@pytest.mark.parametrize("content", ["", " ", "x" * 10_001, "\x00"])
def test_content_that_breaks_a_rule_changes_nothing(app, content):
    session, ids = begin(10, 10)
    before = sql.snapshot()

    with pytest.raises(InvalidValue):
        editing.update(session, ids[0], content)
    with pytest.raises(InvalidValue):
        editing.consolidate(session, ids, content)
    db.session.commit()

    assert sql.snapshot() == before


def test_what_was_not_shown_is_changed_only_after_it_was_found(app):
    agent = factories.agent()
    shown, unseen, *_ = factories.ledger(agent, 10, 10, 100)
    session = RefinementSession.queue(agent, "manual")
    session.claim()
    session.take_snapshot({shown.id})

    with pytest.raises(EditRefused, match=f"#{unseen.id} was not shown in this session"):
        editing.delete(session, unseen.id)
    editing.search(session, unseen.content[:5], limit=20)
    editing.delete(session, unseen.id)

    assert unseen.discarded


def test_what_a_search_found_but_did_not_return_counts_as_not_shown(app):
    agent = factories.agent()
    memories = factories.ledger(agent, *([10] * 10))
    session = RefinementSession.queue(agent, "manual")
    session.claim()
    session.take_snapshot(set())

    editing.search(session, "", limit=9)

    with pytest.raises(EditRefused, match="was not shown"):
        editing.delete(session, memories[9].id)


@pytest.mark.parametrize("verb", ["delete", "protect", "update"])
def test_what_was_saved_since_the_snapshot_cannot_be_changed_at_all(app, verb):
    session, _ = begin(100)
    new = factories.memory(session.agent, "a canary sang")
    editing.search(session, "canary", limit=20)

    with pytest.raises(EditRefused, match="was not there when this session began"):
        getattr(editing, verb)(session, new.id, *(["new"] if verb == "update" else []))

    assert not new.discarded


@pytest.mark.parametrize(
    "change", [{"tags": ["relational"]}, {"content": "other words"}, {"created_at": NOW}]
)
@pytest.mark.parametrize("verb", ["delete", "update", "consolidate", "protect"])
def test_what_changed_since_it_was_shown_is_refused_once_with_its_present_content(
    app, change, verb
):
    session, ids = begin(10, 10, 400)
    locked(session, ids[:1], **change)
    arguments = {
        "update": (ids[0], text_of(10)),
        "consolidate": (ids[:2], text_of(20)),
    }.get(verb, (ids[0],))

    with pytest.raises(EditRefused, match="has changed since you last saw it") as refusal:
        getattr(editing, verb)(session, *arguments)
    refused_at = memory(ids[0]).image()
    getattr(editing, verb)(session, *arguments)

    assert refusal.value.memory is memory(ids[0])
    assert refused_at["discarded_at"] is None
    assert memory(ids[0]).image() != refused_at


def test_what_the_session_changed_itself_is_known_to_the_agent(app):
    session, ids = begin(10, 10, 100)

    editing.update(session, ids[0], text_of(10))
    editing.update(session, ids[0], text_of(10))
    merged = editing.consolidate(session, ids[:2], text_of(20))
    editing.protect(session, merged.id)

    assert session.mutation_count == 3
    assert memory(merged.id).constitutional


# -- the hard cap ----------------------------------------------------------------------------------


def test_the_eleventh_mutation_is_refused(app):
    session, ids = begin(*([1] * 14), 1000)
    for id_ in ids[:4]:
        editing.delete(session, id_)
    for id_ in ids[4:7]:
        editing.update(session, id_, text_of(2))
    for n in (7, 9, 11):
        editing.consolidate(session, ids[n : n + 2], text_of(2))

    with pytest.raises(EditRefused, match="Hard cap reached: 10 mutating operations performed"):
        editing.delete(session, ids[13])

    assert session.mutation_count == MAX_MUTATIONS == 10
    assert not memory(ids[13]).discarded


def test_every_mutating_verb_is_capped_and_protect_is_not(app):
    session, ids = begin(*([1] * 12), 1000)
    for id_ in ids[:10]:
        editing.delete(session, id_)

    for edit in (
        lambda: editing.delete(session, ids[10]),
        lambda: editing.update(session, ids[10], "new"),
        lambda: editing.consolidate(session, ids[10:], "new"),
    ):
        with pytest.raises(EditRefused, match="Hard cap reached"):
            edit()
    editing.protect(session, ids[10])

    assert memory(ids[10]).constitutional
    assert session.mutation_count == 10


def test_protecting_does_not_use_up_the_cap(app):
    session, ids = begin(*([1] * 12), 1000)
    for id_ in ids:
        editing.protect(session, id_)

    assert session.mutation_count == 0
    assert session.stats["protected"] == 13


# -- the circuit breaker ---------------------------------------------------------------------------


def test_removing_exactly_what_may_go_stands(app):
    session, ids = begin(25, 75)

    editing.delete(session, ids[0])

    assert (session.status, session.removed_tokens, session.removable_tokens) == ("running", 25, 25)
    assert memory(ids[0]).discarded


def test_one_token_more_undoes_everything(app):
    session, ids = begin(24, 2, 74)
    before = state_of(session.agent)
    editing.delete(session, ids[0])

    editing.delete(session, ids[1])

    assert session.removable_tokens == 25
    assert session.status == "rolled_back"
    assert state_of(session.agent) == before
    assert session.removed_tokens == 0
    assert (session.memories_after, session.mass_after) == (3, 100)


def test_padding_hides_no_deletion(app):
    session, ids = begin(*([10] * 10))
    editing.update(session, ids[9], text_of(1000))
    for id_ in ids[:2]:
        editing.delete(session, id_)
    assert session.status == "running"

    editing.delete(session, ids[2])

    assert session.status == "rolled_back"


def test_a_memory_counts_at_most_what_it_had_at_the_snapshot(app):
    session, ids = begin(100, 100)

    editing.update(session, ids[0], text_of(70))
    after_shrinking = session.removed_tokens
    editing.update(session, ids[0], text_of(300))
    after_growing = session.removed_tokens

    assert (after_shrinking, after_growing) == (30, 0)


def test_a_memory_that_shrank_grows_back_to_what_it_had(app):
    session, ids = begin(40, 60)
    editing.update(session, ids[0], text_of(15))
    editing.update(session, ids[0], text_of(40))

    editing.delete(session, ids[0])

    assert session.status == "rolled_back"
    assert "40 of 100 tokens" in session.end_reason


def test_a_merge_result_counts_at_most_what_its_sources_counted(app):
    session, ids = begin(10, 10, 80)

    merged = editing.consolidate(session, ids[:2], text_of(500))
    padded = session.removed_tokens
    editing.update(session, merged.id, text_of(5))

    assert padded == 0
    assert session.removed_tokens == 15


def test_a_merge_result_that_is_shorter_removes_the_difference(app):
    session, ids = begin(30, 30, 40)

    editing.consolidate(session, ids[:2], text_of(36))

    assert session.removed_tokens == 24


def test_a_merge_of_a_merge_counts_at_most_what_the_first_sources_counted(app):
    session, ids = begin(10, 10, 10, 70)
    first = editing.consolidate(session, ids[:2], text_of(15))
    editing.update(session, first.id, text_of(200))

    editing.consolidate(session, [first.id, ids[2]], text_of(200))

    entries = {entry.memory_id: entry for entry in db.session.scalars(select(SessionEntry))}
    result = entries[max(entries)]
    assert session.removed_tokens == 0
    assert (result.ceiling_tokens, result.counting_tokens) == (30, 30)
    assert entries[first.id].counting_tokens == 0
    assert entries[first.id].merged_into_id == result.memory_id


def test_what_a_source_lost_before_a_merge_is_not_won_back_by_it(app):
    session, ids = begin(20, 20, 60)
    editing.update(session, ids[0], text_of(5))

    editing.consolidate(session, ids[:2], text_of(500))

    assert session.removed_tokens == 15


def test_deleting_a_merge_result_loses_what_its_sources_counted(app):
    session, ids = begin(15, 15, 70)
    merged = editing.consolidate(session, ids[:2], text_of(30))

    editing.delete(session, merged.id)

    assert session.status == "rolled_back"


def test_what_others_save_meanwhile_pays_for_nothing(app):
    session, ids = begin(30, 70)
    factories.ledger(session.agent, 1000)

    editing.delete(session, ids[0])

    assert session.status == "rolled_back"


def test_what_others_discard_meanwhile_costs_nothing(app):
    session, ids = begin(20, 50, 30)
    memory(ids[1]).discard()

    editing.delete(session, ids[0])

    assert (session.status, session.removed_tokens) == ("running", 20)


def test_an_empty_snapshot_has_no_breaker(app):
    session, _ = begin()
    factories.ledger(session.agent, 10)

    assert not breaker.trip(session)
    editing.complete(session, "Nothing to do.")

    assert session.status == "completed"


def test_where_nothing_may_go_the_first_token_trips(app):
    session, ids = begin(10, 90, refinement_threshold=1)

    editing.update(session, ids[0], text_of(9))

    assert session.status == "rolled_back"


def test_a_change_that_removes_nothing_stands_where_nothing_may_go(app):
    session, ids = begin(10, 90, refinement_threshold=1)

    editing.update(session, ids[0], text_of(10))

    assert session.status == "running"


def test_the_breaker_is_checked_again_at_the_end(app):
    session, ids = begin(10, 90)
    editing.delete(session, ids[0])
    db.session.commit()
    sql.run("UPDATE session_entries SET counting_tokens = 0")

    editing.complete(session, "Done.")

    assert session.status == "rolled_back"
    assert not memory(ids[0]).discarded


def test_protecting_never_trips(app):
    session, ids = begin(10, 90, refinement_threshold=1)

    editing.protect(session, ids[0])

    assert (session.status, session.removed_tokens) == ("running", 0)


# -- the whole way back ----------------------------------------------------------------------------


def trip(session, ids):
    """Delete one after the other, until the breaker fires."""
    for id_ in ids:
        if session.status == "running":
            editing.delete(session, id_)
    assert session.status == "rolled_back"


def test_a_rollback_puts_back_every_kind_of_edit_to_the_letter(app):
    session, ids = begin(*([10] * 10))
    before = state_of(session.agent)
    editing.update(session, ids[0], text_of(11))
    editing.update(session, ids[0], text_of(12))
    editing.protect(session, ids[1])
    first = editing.consolidate(session, ids[2:4], text_of(20))
    second = editing.consolidate(session, [first.id, ids[0]], text_of(30))
    editing.protect(session, second.id)

    trip(session, ids[5:])

    after = state_of(session.agent)
    assert {id_: after[id_] for id_ in ids} == before
    assert set(kept(session.agent)) == set(ids)
    assert after[first.id]["discarded_at"]
    assert after[second.id]["discarded_at"]
    assert [verified.problem for verified in _verified()] == [None, None]


def _verified():
    db.session.commit()
    factories.account()
    AuditLog.record("memory_saved", chain=PLATFORM)
    db.session.commit()
    return list(verify_all())


def test_a_protection_of_the_session_goes_and_an_older_one_stays(app):
    agent = factories.agent()
    old = factories.memory(agent, text_of(10), constitutional=True)
    young, *rest = factories.ledger(agent, 10, 30, 30)
    session = factories.session(agent)
    editing.protect(session, old.id)
    editing.protect(session, young.id)

    trip(session, [each.id for each in rest])

    assert (old.constitutional, young.constitutional) == (True, False)


def test_what_an_admin_set_meanwhile_stays(app):
    session, ids = begin(10, 10, 10, 30, 40)
    editing.update(session, ids[0], text_of(9))
    memory(ids[0]).set_constitutional(True)
    editing.delete(session, ids[1])
    memory(ids[1]).restore()
    memory(ids[2]).set_constitutional(True)

    trip(session, ids[3:])

    assert memory(ids[0]).constitutional
    assert memory(ids[0]).token_estimate == 10
    assert not memory(ids[1]).discarded
    assert memory(ids[2]).constitutional


def test_a_protection_that_an_admin_lifted_meanwhile_stays_lifted(app):
    session, ids = begin(10, 30, 60)
    editing.protect(session, ids[0])
    memory(ids[0]).set_constitutional(False)

    trip(session, ids[1:])

    assert not memory(ids[0]).constitutional


def test_what_was_deleted_restored_and_discarded_by_an_admin_stays_discarded(app):
    session, ids = begin(10, 30, 60)
    editing.delete(session, ids[0])
    memory(ids[0]).restore()
    memory(ids[0]).discard(at=NOW)

    trip(session, ids[1:])

    assert memory(ids[0]).discarded_at == NOW


def test_what_the_session_protected_and_an_admin_lifted_and_set_again_stays_protected(app):
    session, ids = begin(10, 30, 60)
    editing.protect(session, ids[0])
    memory(ids[0]).set_constitutional(False)
    memory(ids[0]).set_constitutional(True)

    trip(session, ids[1:])

    assert memory(ids[0]).constitutional


def test_a_memory_that_was_discarded_by_an_admin_after_an_update_gets_its_content_back(app):
    session, ids = begin(10, 30, 60)
    was = memory(ids[0]).content
    editing.update(session, ids[0], text_of(10))
    memory(ids[0]).discard(at=NOW)

    trip(session, ids[1:])

    assert (memory(ids[0]).content, memory(ids[0]).discarded_at) == (was, NOW)


def test_a_merge_result_that_was_discarded_meanwhile_keeps_its_date(app):
    session, ids = begin(10, 10, 30, 50)
    merged = editing.consolidate(session, ids[:2], text_of(20))
    memory(merged.id).discard(at=NOW)

    trip(session, ids[2:])

    assert memory(merged.id).discarded_at == NOW
    assert set(kept(session.agent)) == set(ids)


def test_what_the_session_deleted_and_an_admin_protected_comes_back_protected(app):
    session, ids = begin(10, 30, 60)
    editing.delete(session, ids[0])
    memory(ids[0]).set_constitutional(True)

    trip(session, ids[1:])

    assert (memory(ids[0]).discarded, memory(ids[0]).constitutional) == (False, True)


def test_what_others_save_meanwhile_survives_a_rollback(app):
    session, ids = begin(10, 90)
    factories.memory(session.agent, "saved meanwhile")

    trip(session, ids[1:])

    assert len(kept(session.agent)) == 3


def test_duplicates_stay_removed(app):
    agent = factories.agent("same", "same")
    memories = factories.ledger(agent, 50, 50)
    session = RefinementSession.queue(agent, "manual")
    session.claim()
    remove_duplicates(session)
    session.take_snapshot()

    trip(session, [each.id for each in memories])

    assert [memory["content"] for memory in kept(agent).values()].count("same") == 1


def test_records_are_reversed_newest_first_by_sequence_not_by_clock(app):
    session, ids = begin(10, 30, 60)
    was = memory(ids[0]).content
    for n in range(3):
        editing.update(session, ids[0], text_of(10), NOW - timedelta(days=n))

    trip(session, ids[1:])

    assert memory(ids[0]).content == was


def test_a_rollback_reverses_the_records_of_its_session_alone(app):
    first, ids = begin(10, 40, 50)
    editing.delete(first, ids[0])
    editing.complete(first, "Done.")
    second = factories.session(first.agent)

    trip(second, ids[1:])

    assert memory(ids[0]).discarded
    assert set(kept(first.agent)) == set(ids[1:])


def test_a_rollback_is_one_record_with_figures(app):
    session, ids = begin(10, 30, 60)
    editing.update(session, ids[0], text_of(9))

    trip(session, ids[1:])

    record = last_record(session)
    assert record.action == "memory_refinement_rollback"
    assert [each.action for each in factories.records(session.agent)].count(record.action) == 1
    for figure, value in {
        "mass_before": 100,
        "mass_after": 100,
        "threshold": "0.7500",
        "removable_tokens": 25,
        "attempted_tokens": 31,
        "stats": {"consolidated": 0, "updated": 1, "deleted": 1, "protected": 0},
    }.items():
        assert record.data[figure] == value, figure


def test_the_agent_is_told_what_would_have_gone_and_that_it_was_undone(app):
    session, ids = begin(10, 10, 30, 50)
    editing.consolidate(session, ids[:2], text_of(20))

    trip(session, ids[2:])

    (told,) = factories.journal(session.agent)
    assert f"consolidate #{ids[0]}, #{ids[1]}; delete #{ids[2]}" in told.content
    assert "30 of 100 tokens; at most 25 may go" in told.content
    assert "All of it was undone" in told.content
    assert session.agent.last_refinement_at == session.ended_at


def test_a_rollback_of_a_merge_of_very_many_memories_is_told_in_short(app):
    agent = factories.agent()
    for n in range(700):
        factories.memory(agent, f"memory {n}", id=10**15 + n)
    session = factories.session(agent)
    ids = list(kept(agent))

    editing.consolidate(session, ids, "one")

    (told,) = factories.journal(agent)
    assert session.status == "rolled_back"
    assert list(kept(agent)) == ids
    assert f"consolidate #{ids[0]}, " in told.content


def test_after_a_rollback_the_entries_count_in_full_again(app):
    session, ids = begin(10, 10, 30, 50)
    editing.consolidate(session, ids[:2], text_of(20))

    trip(session, ids[2:])

    counted = {
        entry.memory_id: entry.counting_tokens for entry in db.session.scalars(select(SessionEntry))
    }
    assert {id_: counted[id_] for id_ in ids} == dict(zip(ids, (10, 10, 30, 50), strict=True))
    assert sum(counted.values()) == 100
    assert RefinementSession.removed_recently(session.agent) == 0


# -- seeing ----------------------------------------------------------------------------------------


def test_a_search_finds_kept_core_memories_of_the_agent_alone(app):
    agent = factories.agent()
    found = factories.memory(agent, "A Straße in Berlin")
    factories.memory(agent, "a strasse", memory_type="journal")
    factories.memory(agent, "a strasse", discarded_at=NOW)
    factories.memory(factories.agent(), "a strasse")
    session = factories.session(agent)

    count, memories = editing.search(session, "STRASSE", limit=20)

    assert (count, memories) == (1, [found])


def test_a_search_without_a_query_goes_by_date(app):
    agent = factories.agent()
    memories = [
        factories.memory(agent, created_at=NOW + timedelta(days=days)) for days in (0, 1, 2)
    ]
    session = factories.session(agent)

    count, found = editing.search(
        session, None, NOW + timedelta(days=1), NOW + timedelta(days=2), limit=9
    )

    assert (count, found) == (1, memories[1:2])


def test_a_rollback_passes_by_what_the_agent_did_to_its_settings_meanwhile(app):
    agent = factories.agent()
    first, *others = factories.ledger(agent, *[25] * 8)
    session = factories.session(agent)
    editing.delete(session, first.id)
    agent.author("refinement_prompt", "Be brief.")

    editing.delete(session, others[0].id)
    editing.delete(session, others[1].id)

    assert session.status == "rolled_back"
    assert agent.core_token_usage == 200
    assert agent.refinement_prompt == "Be brief."
