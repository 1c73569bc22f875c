import dataclasses
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from refine import clock
from refine.extensions import db
from refine.models import EditRefused
from refine.models.runs.session.survival import LedgerReading
from refine.tools import RefinementTool
from tests import editing, factories, sql
from tests.models.runs.session.ledgers import memory, state_of

TOWER = "The tower at Kastell has 17 steps and a green door"
SAME_TOWER = "Green is the door of the tower at Kastell, and it has seventeen steps"
LONG = "I like to walk along the river when the evening light turns the water into copper and gold"
LESS = "I like to walk along the river when the light turns the water into copper and gold"
LEAST = "I like to walk along the river when the light turns the water into gold"
OWED = " as it was before edits of the last 30 days"


def begin(*contents, padding=400, others=0):
    """A session over these memories, one that leaves room to remove them, and others of one token
    that were imported; and their ids.
    """
    agent = factories.agent(*contents)
    ids = [each.id for each in db.session.scalars(agent.ledger.core())]
    factories.ledger(agent, padding, *[1] * others, source="mem0")
    return factories.session(agent), ids


def next_session(session, at=None):
    session.finish("completed", "the agent completed it", at=at)
    db.session.commit()
    return factories.session(session.agent)


def refused(edit, *expected):
    """The edit is refused, says this, and changes and counts nothing."""
    before = sql.snapshot()
    with pytest.raises(EditRefused) as refusal:
        edit()
    db.session.flush()
    assert sql.snapshot() == before
    for words in expected:
        assert words in str(refusal.value)


def owed(id_):
    """That earlier edits count."""
    return f"too little of #{id_}{OWED} would remain"


def ruled(app, monkeypatch, **settings):
    """Other settings than the default, for this test."""
    known = app.extensions
    changed = dataclasses.replace(known["refine.settings"], **settings)
    monkeypatch.setitem(known, "refine.settings", changed)


# -- what is refused -------------------------------------------------------------------------------


def test_an_edit_that_would_lose_a_detail_is_refused_and_names_it_and_its_memory(app):
    session, (tower, tea) = begin(TOWER, "Mira drinks green tea in the morning")
    named = (f'#{tower} would lose "17", "Kastell": add them',)

    refused(lambda: editing.delete(session, tower), f"no other memory says what #{tower} says")
    refused(lambda: editing.update(session, tower, "The tower has steps and a green door"), *named)
    refused(
        lambda: editing.consolidate(session, [tower, tea], "Mira drinks green tea at the tower"),
        *named,
    )


def test_all_objections_to_an_edit_are_told_at_once_and_name_only_its_memories(app):
    session, (tower, tea, other) = begin(
        TOWER, "Mira never drinks bitter tea at sunrise", "The tower at Kastell has 19 steps"
    )
    text = "The tower at Kastell has 18 steps and a green door; Mira drinks tea, Oskar as well"

    refused(
        lambda: editing.consolidate(session, [tower, tea], text),
        f'#{tower} would lose "17"',
        f"too little of #{tea} would remain in one memory: add 1 of",
        '"18" stands in none of the memories',
        '"Oskar" stands in none of the memories',
        'what is denied would change, at "never"',
    )
    with pytest.raises(EditRefused) as refusal:
        editing.consolidate(session, [tower, tea], text)
    assert f"#{other}" not in str(refusal.value)


def test_a_text_may_name_the_month_in_which_a_memory_was_stored_and_no_other(app):
    session, _ = begin()
    agent = session.agent
    stored = factories.memory(agent, TOWER, created_at=datetime(2026, 3, 9, tzinfo=UTC))
    session = next_session(session)

    refused(
        lambda: editing.update(session, stored.id, f"{TOWER} (April 2026)"),
        '"2026-04" stands in none',
    )
    editing.update(session, stored.id, f"{TOWER} (March 2026)")


def test_a_memory_whose_details_and_words_another_carries_may_go(app):
    session, (tower, same) = begin(TOWER, SAME_TOWER)

    editing.delete(session, tower)

    assert memory(tower).discarded
    refused(lambda: editing.delete(session, same), f"what #{same} says")


def test_the_same_number_elsewhere_does_not_carry_a_memory(app):
    session, (tower, _, _) = begin(
        TOWER, "Mira was 17 when she came", "The tower at Kastell has steps and a green door"
    )

    refused(lambda: editing.delete(session, tower), f'#{tower} would lose "17"')


def test_filler_of_the_same_length_does_not_stand_in_for_a_memory(app):
    session, (walk,) = begin(LONG)
    filler = "There is nothing more to be said about this, and so it goes on and on and on here"

    refused(lambda: editing.update(session, walk, filler), f"too little of #{walk} would remain")


def test_only_kept_core_memories_of_the_agent_carry_what_goes(app):
    session, (tower,) = begin(TOWER)
    factories.agent(SAME_TOWER)
    factories.entry(session.agent, SAME_TOWER)
    factories.memory(session.agent, f"{SAME_TOWER}!").discard()

    refused(lambda: editing.delete(session, tower), f"what #{tower} says")


def test_a_locked_memory_and_one_saved_meanwhile_carry_what_goes(app, subtests):
    for fields in ({"constitutional": True}, {"tags": ["voice"]}, {}):
        with subtests.test(**fields):
            session, (tower,) = begin(TOWER)
            factories.memory(session.agent, SAME_TOWER, **fields)

            editing.delete(session, tower)

            assert memory(tower).discarded


def test_a_row_that_was_changed_outside_the_application_carries_nothing(app):
    session, (tower, same) = begin(TOWER, SAME_TOWER)
    memory(same).discard()
    db.session.commit()
    sql.tamper(f"UPDATE agent_memories SET discarded_at = NULL WHERE id = {same}")
    db.session.expire_all()

    refused(lambda: editing.delete(session, tower), f"what #{tower} says")


def test_carriers_of_a_memory_are_read_again_for_each_call(app):
    session, (tower, same, third) = begin(TOWER, SAME_TOWER, SAME_TOWER + "!")
    tool = RefinementTool(session)
    assert tool.execute(action="delete", id=same)["type"] == "deleted"
    memory(third).discard()
    db.session.commit()

    result = tool.execute(action="delete", id=tower)

    assert result["type"] == "error"
    assert f"what #{tower} says. Merge it with a memory so" in result["error"]
    assert (result["operations_left"], tool.stats["deleted"]) == (9, 1)


# -- small steps -----------------------------------------------------------------------------------


def test_a_memory_is_not_worn_away_by_sessions_of_thirty_days(app):
    session, (walk,) = begin(LONG)
    editing.update(session, walk, LESS)
    later = next_session(session)

    refused(lambda: editing.update(later, walk, LEAST), owed(walk))


def test_what_a_memory_said_more_than_thirty_days_ago_holds_nothing_up(app):
    session, (walk,) = begin(LONG, others=50)
    editing.update(session, walk, LESS, clock.now() - timedelta(days=31))
    later = next_session(session)

    editing.update(later, walk, LEAST)

    assert memory(walk).content == LEAST


def test_the_carrier_of_a_deleted_memory_must_keep_what_that_memory_said(app):
    session, (walk, carrier) = begin(LONG, f"{LONG}, over grey stones and wet sand, by old boats")
    editing.delete(session, walk)
    later = next_session(session)

    refused(
        lambda: editing.update(
            later, carrier, f"{LEAST}, over grey stones and wet sand, by old boats"
        ),
        owed(carrier),
    )


def test_a_memory_that_denies_what_another_says_does_not_carry_what_that_loses(app):
    session, (walk, _) = begin(LONG, LONG.replace("I like", "I do not like"))

    refused(lambda: editing.update(session, walk, LEAST), f"too little of #{walk} would remain")


def test_a_session_may_take_back_what_it_wrote_itself(app):
    session, (tower,) = begin(TOWER)
    editing.update(session, tower, f"{TOWER}, as it was")

    editing.update(session, tower, f"{TOWER}!")

    assert memory(tower).content == f"{TOWER}!"


def test_a_session_may_take_back_what_it_wrote_into_a_merge(app):
    session, (tower, walk) = begin(TOWER, LONG)
    merged = editing.consolidate(session, [tower, walk], f"{TOWER}. {LONG}, as it was"[:140])

    editing.update(session, merged.id, f"{TOWER}. {LONG}")

    refused(lambda: editing.update(session, merged.id, LONG), f'#{merged.id}{OWED} would lose "17"')


def test_a_tool_that_first_protects_a_memory_still_reads_the_originals(app):
    session, (walk, vow) = begin(LONG, "a vow that stays")
    editing.update(session, walk, LESS)
    tool = RefinementTool(next_session(session))
    assert tool.execute(action="protect", id=vow)["type"] == "protected"

    result = tool.execute(action="update", id=walk, content=LEAST)

    assert owed(walk) in result["error"]


def test_a_protection_does_not_hide_that_others_changed_the_ledger_before_it(app):
    session, (tower, same, vow) = begin(TOWER, SAME_TOWER, "a vow that stays")
    tool = RefinementTool(session)
    assert tool.execute(action="update", id=vow, content="nothing of it")["type"] == "error"
    memory(same).discard()
    db.session.commit()
    assert tool.execute(action="protect", id=vow)["type"] == "protected"

    result = tool.execute(action="delete", id=tower)

    assert f"what #{tower} says" in result["error"]


def test_the_originals_are_read_once_and_then_kept_up_with(app):
    session, (walk,) = begin(LONG)
    reading = LedgerReading()
    editing.update(session, walk, f"{LONG}!", reading=reading)
    editing.update(session, walk, LESS, reading=reading)

    db.session.refresh(session.agent)
    assert sql.statements_of(lambda: reading.follow(session.agent)) == 0
    refused(
        lambda: editing.update(session, walk, LEAST, reading=reading),
        owed(walk),
    )


# -- settings --------------------------------------------------------------------------------------


def test_with_the_setting_count_nothing_is_refused_and_what_went_is_counted_and_told(
    app, monkeypatch
):
    ruled(app, monkeypatch, details="count")
    session, (tower, walk) = begin(TOWER, LONG)

    editing.delete(session, tower)
    editing.update(session, walk, "a walk")
    editing.complete(session, "Done.")

    (told,) = factories.journal(session.agent)
    assert session.details_lost == 2
    assert "1 deleted, 1 updated, 2 details lost" in told.content
    assert factories.records(session.agent)[-1].data["details_lost"] == 2


def test_a_rollback_brings_back_the_details_that_went(app, monkeypatch):
    ruled(app, monkeypatch, details="count")
    session, (tower,) = begin(TOWER, padding=10)
    before = state_of(session.agent)

    editing.delete(session, tower)

    assert (session.status, session.details_lost) == ("rolled_back", 0)
    assert state_of(session.agent) == before


def test_the_share_of_words_is_the_operators_choice(app, monkeypatch):
    session, (walk,) = begin(LONG)
    ruled(app, monkeypatch, likeness=Decimal(1))
    refused(lambda: editing.update(session, walk, LESS), f"too little of #{walk} would remain")

    ruled(app, monkeypatch, likeness=Decimal("0.65"))
    editing.update(session, walk, LESS)

    assert memory(walk).content == LESS


# -- how far one edit may go -----------------------------------------------------------------------


def test_a_merge_takes_two_to_eight_memories(app):
    session, _ = begin()
    ids = [each.id for each in factories.ledger(session.agent, *[10] * 9)]
    session = next_session(session)

    refused(lambda: editing.consolidate(session, ids, "new"), "at most 8 memory IDs")
    merged = editing.consolidate(session, ids[:8], factories.text_of(80))

    assert [memory(id_).discarded for id_ in ids] == [True] * 8 + [False]
    assert not merged.discarded


def test_a_merge_is_no_longer_than_its_sources_were_together(app):
    session, _ = begin()
    ids = [each.id for each in factories.ledger(session.agent, 10, 20)]
    session = next_session(session)

    refused(
        lambda: editing.consolidate(session, ids, factories.text_of(31)),
        "at most 30 tokens, and this text has 31",
    )
    assert editing.consolidate(session, ids, factories.text_of(30)).token_estimate == 30


def test_an_update_lengthens_by_a_tenth_at_most_counted_from_the_snapshot(app):
    session, _ = begin()
    (long, short) = [each.id for each in factories.ledger(session.agent, 100, 10)]
    session = next_session(session)

    refused(
        lambda: editing.update(session, long, factories.text_of(111)),
        f"Memory #{long} may have at most 110 tokens, and this text has 111",
    )
    editing.update(session, long, factories.text_of(110))
    refused(lambda: editing.update(session, long, factories.text_of(111)), "at most 110 tokens")
    editing.update(session, short, factories.text_of(18))
    refused(lambda: editing.update(session, short, factories.text_of(19)), "at most 18 tokens")


def test_a_memory_of_emoji_alone_is_not_lost(app):
    session, (emoji, _) = begin("🔑🏠➡️🌵 🎂❤️", "Mira drinks green tea in the morning")

    refused(lambda: editing.delete(session, emoji), f"no other memory says what #{emoji} says")


def test_a_merge_result_may_be_tightened(app):
    first, (one, other) = begin("Tea is good", "Tea is fine")
    editing.update(first, one, "Tea is good, and it was so then")
    editing.update(first, other, "Tea is fine, as it is here")
    merged = editing.consolidate(
        first, [one, other], "Tea is good and fine, and it was so then, as it is here"
    )

    tight = "Tea is good and fine, and was so then, as it is here"
    assert len(tight) < len(merged.content)
    editing.update(first, merged.id, tight)
