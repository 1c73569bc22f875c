"""A merge keeps the first and the last date of what it says."""

from datetime import UTC, datetime, timedelta

import pytest

from refine.extensions import db
from refine.models import EditRefused
from refine.prompts import as_entry
from refine.refinement import time_machine
from tests import editing, factories
from tests.chains import problems
from tests.models.runs.session.ledgers import memory, state_of
from tests.models.runs.session.test_survival import next_session

FEBRUARY = datetime(2023, 2, 4, 12, tzinfo=UTC)
JUNE = datetime(2023, 6, 13, 9, tzinfo=UTC)
TEA = "Mira drinks green tea with honey every morning"
SPAN = "2023-02-04 to 2023-06-13"


def memories(*days):
    """Memories of these days that say the same, and a session on them."""
    agent = factories.agent()
    mine = [
        factories.memory(agent, f"{TEA}{factories.mark(n)}", created_at=day)
        for n, day in enumerate(days, start=1)
    ]
    factories.ledger(agent, 400)
    return factories.session(agent), [each.id for each in mine]


@pytest.fixture
def spanning(app):
    """A session, the memory that it merged, and one of a day within the span of that."""
    may = JUNE - timedelta(days=30)
    session, (*ids, within) = memories(JUNE, FEBRUARY, may)
    return session, editing.consolidate(session, ids, f"{TEA}."), memory(within)


def test_the_dates_of_a_merge_span_those_of_its_sources(spanning):
    _, merged, _ = spanning

    assert (merged.created_at, merged.spans_until) == (FEBRUARY, JUNE)


def test_a_merge_of_one_day_has_no_span(app):
    session, ids = memories(FEBRUARY, FEBRUARY + timedelta(hours=3))

    merged = editing.consolidate(session, ids, f"{TEA}.")

    assert (merged.created_at, merged.spans_until) == (FEBRUARY, None)


def test_the_span_of_a_merge_is_kept_by_the_next_one(spanning):
    session, merged, within = spanning

    again = editing.consolidate(session, [merged.id, within.id], TEA)

    assert (again.created_at, again.spans_until) == (FEBRUARY, JUNE)


def test_a_correction_keeps_the_span(spanning):
    session, merged, _ = spanning

    corrected = editing.update(
        next_session(session), merged.id, TEA.replace("honey", "milk"), reason="wrong"
    )

    assert (corrected.created_at, corrected.spans_until) == (FEBRUARY, JUNE)


def test_what_replaces_outdated_memories_is_of_the_last_day_of_their_spans(spanning):
    session, merged, within = spanning
    later = next_session(session)

    new = editing.consolidate(
        later, [merged.id, within.id], TEA.replace("honey", "milk"), reason="outdated"
    )

    assert (new.created_at, new.spans_until) == (JUNE, None)


def test_the_ledger_and_the_context_show_the_span(spanning):
    session, merged, _ = spanning

    assert as_entry(merged.ledger_entry()).startswith(f'{{"{merged.id} {SPAN} ')
    assert f"- ({SPAN}) {TEA}" in session.agent.memory_context()


def test_a_search_finds_a_memory_by_each_day_of_its_span(spanning):
    session, merged, within = spanning

    assert editing.search(session, TEA, after=JUNE - timedelta(days=1)) == [merged]
    assert editing.search(session, TEA, before=FEBRUARY + timedelta(days=1)) == [merged]
    assert editing.search(session, TEA, after=JUNE - timedelta(days=40)) == [merged, within]


def test_the_last_day_of_a_span_counts_for_what_replaces_a_memory(spanning):
    session, merged, within = spanning
    later = next_session(session)

    with pytest.raises(EditRefused, match="not of a later date"):
        editing.delete(later, merged.id, reason="outdated", by_id=within.id)
    editing.delete(later, within.id, reason="outdated", by_id=merged.id)

    assert within.replaced_by_id == merged.id


def test_an_undo_restores_spans_exactly(spanning):
    session, merged, within = spanning
    editing.complete(session, "Merged.")
    db.session.commit()
    before, later = state_of(session.agent), factories.session(session.agent)
    again = editing.consolidate(later, [merged.id, within.id], TEA)
    editing.complete(later, "Merged again.")
    db.session.commit()

    time_machine.undo(later, through="agent")
    db.session.commit()

    after = state_of(session.agent)
    assert after.pop(again.id)["spans_until"] == "2023-06-13T09:00:00.000000+00:00"
    assert after == before
    assert problems() == []
