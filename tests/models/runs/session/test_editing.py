from datetime import UTC, datetime, timedelta

import pytest

from refine.models import EditRefused, RefinementSession
from refine.models.ledger.image import changes_in, images_in
from tests import editing, factories
from tests.factories import text_of
from tests.faults.invariants import as_recorded
from tests.models.cases import case
from tests.models.runs.session.ledgers import begin, kept, memory

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
            before = as_recorded(memory(ids[0]).image())
            edited = edits[verb]()
            record = last_record(session)
            (change,) = changes_in(record.data, record.sealed)
            assert record.action == f"memory_refinement_{verb}"
            assert (record.session_id, record.user_id) == (session.id, None)
            assert record.auditable_id == str(ids[0])
            assert (change.before, change.after) == (before, as_recorded(edited.image()))
            others = dict.fromkeys(("consolidated", "updated", "deleted", "protected"), 0)
            assert session.stats == {**others, figure: 1}


# -- refusals --------------------------------------------------------------------------------------


def test_a_tagged_memory_may_be_protected(app):
    agent = factories.agent()
    voice = factories.memory(agent, tags=["voice"])
    session = factories.session(agent)

    assert editing.protect(session, voice.id).constitutional


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


def test_the_agent_knows_its_own_changes(app):
    session, ids = begin(10, 10, 100)

    editing.update(session, ids[0], text_of(10))
    editing.update(session, ids[0], text_of(10))
    merged = editing.consolidate(session, ids[:2], text_of(20))
    editing.protect(session, merged.id)

    assert session.mutation_count == 3
    assert memory(merged.id).constitutional


# -- searching -------------------------------------------------------------------------------------


def test_a_search_finds_kept_core_memories_of_the_agent_only(app):
    agent = factories.agent()
    found = factories.memory(agent, "A Straße in Berlin")
    factories.memory(agent, "a strasse", memory_type="journal")
    factories.memory(agent, "a strasse", discarded_at=NOW)
    factories.memory(factories.agent(), "a strasse")
    session = factories.session(agent)

    assert editing.search(session, "STRASSE") == [found]
