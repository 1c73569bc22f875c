from datetime import UTC, datetime, timedelta

import pytest

from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import MAX_MUTATIONS, EditRefused, RefinementSession
from refine.models.ledger import changes_in, images_in
from tests import editing, factories, sql
from tests.factories import text_of
from tests.models.cases import case, set_fields
from tests.models.runs.session.ledgers import begin, kept, memory, state_of

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def last_record(session):
    return factories.records(session.agent)[-1]


def edits_of(session, ids, content="new"):
    """Every edit of the first memory, by name; a merge takes all of these memories."""
    return {
        "delete": lambda: editing.delete(session, ids[0]),
        "update": lambda: editing.update(session, ids[0], content),
        "consolidate": lambda: editing.consolidate(session, ids, content),
        "protect": lambda: editing.protect(session, ids[0]),
    }


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
        for entry in images_in(record.data)
    ] == [(ids[0], False, False), (ids[1], False, False), (merged.id, True, True)]
    assert record.sealed["memories"][2]["after"]["content"] == merged.content
    assert merged.content not in str(record.data)


def test_an_edit_of_one_memory_is_recorded_before_and_after(app, subtests):
    session, ids = begin(10, 90)
    edits = edits_of(session, ids, text_of(9))

    for verb, figure in [("update", "updated"), ("delete", "deleted"), ("protect", "protected")]:
        with case(subtests, verb=verb):
            before = memory(ids[0]).image()
            edited = edits[verb]()
            record = last_record(session)
            (change,) = changes_in(record.data, record.sealed)
            assert record.action == f"memory_refinement_{verb}"
            assert (record.session_id, record.user_id) == (session.id, None)
            assert record.auditable_id == str(ids[0])
            assert (change.before, change.after) == (before, edited.image())
            others = dict.fromkeys(("consolidated", "updated", "deleted", "protected"), 0)
            assert session.stats == {**others, figure: 1}


def test_an_update_keeps_everything_but_the_content(app):
    agent = factories.agent()
    old = factories.memory(agent, text_of(10), tags=["relational"], created_at=NOW)
    session = factories.session(agent)

    updated = editing.update(session, old.id, "  again " + text_of(10))

    assert updated.content.startswith("again")
    assert (updated.id, updated.tags, updated.created_at) == (old.id, ["relational"], NOW)
    assert updated.is_genuine


def test_protecting_a_protected_memory_records_nothing(app):
    session, ids = begin(10)
    editing.protect(session, ids[0], NOW)
    before = factories.records(session.agent)

    again = editing.protect(session, ids[0])

    assert again.constitutional
    assert factories.records(session.agent) == before
    assert before[-1].created_at == NOW
    assert session.stats["protected"] == 1


# -- refusals --------------------------------------------------------------------------------------


def test_a_locked_memory_is_not_edited_and_the_refusal_names_it(app, subtests):
    session, (a, b, c) = begin(10, 10, 10)
    for lock, fields in [
        ("constitutional", {"constitutional": True}),
        ("immutable", {"tags": ["audio"]}),
        ("immutable", {"tags": ["somatic"]}),
        ("immutable", {"tags": ["voice"]}),
        ("constitutional", {"tags": ["voice"], "constitutional": True}),
    ]:
        for verb, message in {
            "delete": f"Cannot delete {lock} memory #{b}",
            "update": f"Cannot update {lock} memory #{b}",
            "consolidate": f"Cannot consolidate {lock} memories: {b}, {c}",
        }.items():
            with case(subtests, fields=fields, verb=verb):
                for id_ in (b, c):
                    set_fields(memory(id_), **fields)
                before = state_of(session.agent)
                with pytest.raises(EditRefused, match=f"^{message}$"):
                    edits_of(session, [b, a, c])[verb]()
                assert state_of(session.agent) == before
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


def test_only_the_agents_own_kept_core_memories_are_found(app, subtests):
    agent = factories.agent()
    there = factories.memory(agent)
    absent_ids = {
        "unknown": 10**15,
        "journal": factories.memory(agent, memory_type="journal").id,
        "discarded": factories.memory(agent, discarded_at=NOW).id,
        "another agent's": factories.memory(factories.agent()).id,
    }
    session = factories.session(agent)
    before = sql.snapshot()

    for kind, absent in absent_ids.items():
        for verb, edit in edits_of(session, [absent, there.id]).items():
            with subtests.test(kind=kind, verb=verb):
                with pytest.raises(EditRefused, match=f"Memory #{absent} not found"):
                    edit()
                db.session.commit()
                assert sql.snapshot() == before


def test_every_absent_id_is_named(app):
    session, ids = begin(10)

    with pytest.raises(EditRefused, match="Memories #999999991, #999999992 not found"):
        editing.consolidate(session, [999999991, ids[0], 999999992], "new")


def test_a_merge_needs_two_memories(app, subtests):
    session, (id_,) = begin(10)

    for ids in ([], [id_], [id_, id_]):
        with (
            subtests.test(ids=len(ids)),
            pytest.raises(EditRefused, match="consolidate requires at least 2 memory IDs"),
        ):
            editing.consolidate(session, ids, "new")


def test_an_update_to_the_same_content_is_refused(app):
    session, ids = begin(10)

    with pytest.raises(EditRefused, match="already has this content"):
        editing.update(session, ids[0], f" {memory(ids[0]).content}\n")

    assert session.mutation_count == 0


def test_invalid_content_changes_nothing(app, subtests):
    session, ids = begin(10, 10)
    before = sql.snapshot()

    for content in ("", " ", "x" * 10_001, "\x00"):
        edits = edits_of(session, ids, content)
        for verb in ("update", "consolidate"):
            with subtests.test(content=content[:5], verb=verb):
                with pytest.raises(InvalidValue):
                    edits[verb]()
                db.session.commit()
                assert sql.snapshot() == before


def showing(session, shown):
    session.claim()
    session.take_snapshot(shown)
    return session


def test_a_memory_that_was_not_shown_can_be_changed_once_a_search_returned_it(app):
    agent = factories.agent()
    shown, unseen, *_ = factories.ledger(agent, 10, 10, 100)
    session = showing(RefinementSession.queue(agent, "manual"), {shown.id})

    with pytest.raises(EditRefused, match=f"#{unseen.id} was not shown in this session"):
        editing.delete(session, unseen.id)
    editing.search(session, unseen.content[:5])
    editing.delete(session, unseen.id)

    assert unseen.discarded


def test_a_memory_that_was_saved_since_the_snapshot_cannot_be_changed(app, subtests):
    session, ids = begin(100)
    new = factories.memory(session.agent, "a canary sang")
    editing.search(session, "canary")

    for verb, edit in edits_of(session, [new.id, *ids]).items():
        with case(subtests, verb=verb):
            with pytest.raises(EditRefused, match="was not there when this session began"):
                edit()
            assert not new.discarded


def test_refuses_a_memory_changed_since_it_was_shown_once_and_returns_its_new_content(
    app, subtests
):
    session, ids = begin(10, 10, 400)
    changes = [{"tags": ["relational"]}, {"content": text_of(9)}, {"created_at": NOW}]
    for change in changes:
        for verb, edit in edits_of(session, ids[:2], text_of(15)).items():
            with case(subtests, change=change, verb=verb):
                set_fields(memory(ids[0]), **change)
                db.session.flush()
                with pytest.raises(EditRefused, match="has changed since you last") as refusal:
                    edit()
                refused_at = refusal.value.memory.image()
                assert refused_at == memory(ids[0]).image()
                edit()
                assert refused_at["discarded_at"] is None
                assert memory(ids[0]).image() != refused_at


def test_the_agent_knows_its_own_changes(app):
    session, ids = begin(10, 10, 100)

    editing.update(session, ids[0], text_of(10))
    editing.update(session, ids[0], text_of(10))
    merged = editing.consolidate(session, ids[:2], text_of(20))
    editing.protect(session, merged.id)

    assert session.mutation_count == 3
    assert memory(merged.id).constitutional


# -- the hard cap ----------------------------------------------------------------------------------


def test_after_ten_mutations_only_protecting_is_allowed(app, subtests):
    session, ids = begin(*([1] * 15), 1000)
    for id_ in ids[:4]:
        editing.delete(session, id_)
    for id_ in ids[4:7]:
        editing.update(session, id_, text_of(2))
    for n in (7, 9, 11):
        editing.consolidate(session, ids[n : n + 2], text_of(2))
    edits = edits_of(session, ids[13:15])
    editing.protect(session, ids[15])
    assert session.mutation_count == MAX_MUTATIONS == 10

    for verb in ("delete", "update", "consolidate"):
        with (
            subtests.test(verb=verb),
            pytest.raises(EditRefused, match="Hard cap reached: 10 mutating operations performed"),
        ):
            edits[verb]()
    edits["protect"]()

    assert memory(ids[13]).constitutional
    assert (session.mutation_count, session.stats["protected"]) == (10, 2)


# -- searching -------------------------------------------------------------------------------------


def test_a_search_finds_kept_core_memories_of_the_agent_only(app):
    agent = factories.agent()
    found = factories.memory(agent, "A Straße in Berlin")
    factories.memory(agent, "a strasse", memory_type="journal")
    factories.memory(agent, "a strasse", discarded_at=NOW)
    factories.memory(factories.agent(), "a strasse")
    session = factories.session(agent)

    assert editing.search(session, "STRASSE") == [found]


def test_a_search_without_a_query_goes_by_date(app):
    agent = factories.agent()
    memories = [
        factories.memory(agent, created_at=NOW + timedelta(days=days)) for days in (0, 1, 2)
    ]
    session = factories.session(agent)

    found = editing.search(session, None, NOW + timedelta(days=1), NOW + timedelta(days=2))

    assert found == memories[1:2]
