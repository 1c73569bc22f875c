"""Ways round the rule that what memories say survives their sessions."""

import time
from decimal import Decimal

import pytest
from sqlalchemy import event

from refine.errors import RowAltered
from refine.extensions import db
from refine.models import RefinementSession
from refine.models.runs.session import editing
from refine.models.runs.session.survival import LedgerReading
from refine.refinement import time_machine
from refine.refinement.loop import refine
from refine.rules.details import carries, read
from refine.rules.survival import Original, losses, refusal
from refine.settings import Settings
from tests import factories, sql
from tests.models.runs.session.test_survival import begin, next_session, ruled

HALF = Decimal("0.5")


def kept_texts(agent):
    return [
        each.content
        for each in db.session.scalars(
            agent.ledger.core().execution_options(populate_existing=True)
        )
    ]


def test_an_undo_does_not_lose_what_a_later_session_deleted_because_the_undone_one_carried_it(app):
    near = "We walked along the river at Kastell and watched the herons in the evening"
    fact = "Mira found 17 herons at Kastell"
    first, (one, other, third) = begin(f"{near}.", f"{near}!", fact)
    editing.consolidate(first, [one, other], f"{near}. {fact}")
    second = next_session(first)
    editing.delete(second, third)
    second.finish("completed", "the agent completed it")
    db.session.commit()

    try:
        time_machine.undo(first, through="dashboard")
    except time_machine.UndoConflict:
        return

    db.session.commit()
    original = read(fact)
    left = [read(text) for text in kept_texts(first.agent)]
    assert all(any(carries(each, key, original) for each in left) for key in original.details)


def test_a_memory_of_emoji_alone_is_not_lost(app):
    session, (emoji, _) = begin("🔑🏠➡️🌵 🎂❤️", "Mira drinks green tea in the morning")

    with pytest.raises(editing.EditRefused):
        editing.delete(session, emoji)


def test_a_memory_of_emoji_may_be_merged_into_one_with_words(app):
    session, (emoji, tea) = begin("🎂❤️ 🎂", "Mira drinks green tea")

    editing.consolidate(session, [emoji, tea], "Mira drinks green tea 🎂❤️")


def test_a_refusal_is_short_however_many_memories_one_memory_stands_in_for():
    facts = [
        f"Person{n} Surname{n} lives at Street{n} {n}, and likes tea no. {1000 + n}"
        for n in range(200)
    ]
    hub = read("; ".join(facts))
    lost = losses([Original(n, read(fact)) for n, fact in enumerate(facts)], [hub], [], share=HALF)

    assert len(refusal(lost, HALF)) < 5000


def test_each_version_of_a_memory_full_of_names_adds_little_time_to_a_comparison():
    syllables = ["ба", "ко", "ми", "та", "ре", "ло", "ни", "са", "ду", "фе"]

    def name(n):
        return "".join(syllables[int(digit)] for digit in f"{n:04}").capitalize()

    hub = read("Это " + " ".join(f"и {name(n)}" for n in range(900)))
    others = [
        read(f"Вчера {name(5000 + n)} купила {n} книг для дома и {name(9999 - n)}")
        for n in range(300)
    ]
    seconds = [
        _seconds(losses, [Original(n, hub) for n in range(versions)], hub, others)
        for versions in (1, 6)
    ]

    assert seconds[1] < 2 * seconds[0]


def _seconds(work, originals, hub, others):
    began = time.perf_counter()
    work(originals, [hub], others, share=HALF)
    return time.perf_counter() - began


def test_originals_are_read_with_few_queries(app):
    session, _ = begin("Mira drinks green tea")
    agent = session.agent
    for n in range(8):
        factories.memory(agent, f"The tower at Kastell has 17 steps and a green door {'!' * n}")
    db.session.commit()
    session = next_session(session)
    ids = [each.id for each in db.session.scalars(agent.ledger.core()) if "tower" in each.content]
    for id_ in ids[1:]:
        editing.delete(session, id_)
    session = next_session(session)
    statements = []
    engine = db.engine

    def listener(*args):
        statements.append(args[2])

    event.listen(engine, "before_cursor_execute", listener)
    db.session.expire_all()

    LedgerReading()._read_originals(session.agent)

    event.remove(engine, "before_cursor_execute", listener)
    audit = [each for each in statements if "audit_logs" in each]
    assert len(audit) <= 2


def test_a_number_of_lost_details_that_was_changed_in_the_database_is_found(app, monkeypatch):
    ruled(app, monkeypatch, details="count")
    session, (tower, _) = begin(
        "The tower at Kastell has 17 steps and a green door", "Mira drinks green tea"
    )
    editing.delete(session, tower)
    session.finish("completed", "the agent completed it")
    db.session.commit()
    assert session.details_lost == 2

    sql.run("UPDATE refinement_sessions SET details_lost = 0")
    db.session.expire_all()

    with pytest.raises(RowAltered):
        db.session.get_one(RefinementSession, session.id).require_genuine()


def test_a_detail_that_stands_in_two_originals_counts_once_when_it_goes(app, monkeypatch):
    first, (tower, _) = begin(
        "The tower at Kastell has 17 steps and a green door there", "Mira drinks green tea"
    )
    editing.update(first, tower, "The tower at Kastell has 17 steps and a green door")
    second = next_session(first)
    ruled(app, monkeypatch, details="count")

    editing.delete(second, tower)

    assert second.details_lost == 2


def test_a_merge_result_may_be_tightened(app):
    first, (one, other) = begin("Tea is good", "Tea is fine")
    editing.update(first, one, "Tea is good and warm in the evening")
    editing.update(first, other, "Tea is fine and warm at night here")
    merged = editing.consolidate(
        first, [one, other], "Tea is good and fine and warm in the evening, and also at night here"
    )

    tight = "Tea is good and fine and warm in the evening, also at night here"
    assert len(tight) < len(merged.content)
    editing.update(first, merged.id, tight)


def test_two_memories_joined_by_a_blank_may_be_merged(app):
    session, (one, other) = begin("Anna likes green tea", "Anna likes black tea")
    editing.consolidate(session, [one, other], "Anna likes green tea Anna likes black tea")


def test_the_tools_description_promises_no_refusal_where_losses_are_only_counted(
    app, environ, model, monkeypatch
):
    ruled(app, monkeypatch, details="count")
    agent = factories.agent(*(factories.text_of(25) for _ in range(20)))
    queued = RefinementSession.queue(agent, "cli")
    db.session.commit()
    model.say("NO")

    settings = Settings.from_environ(
        {**environ, "OPENROUTER_BASE_URL": model.base_url, "REFINE_DETAILS": "count"}
    )
    refine(queued.id, settings)

    described = model.requests[0]["tools"][0]["function"]["description"]
    assert "No edit may lose" not in described
