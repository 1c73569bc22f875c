"""The picture of a session: what became of which memory, from sizes and kinds of edits alone."""

import re
from collections.abc import Callable

import pytest

from refine.extensions import db
from refine.models import Agent, RefinementSession, User
from refine.models.runs.session.duplicates import remove_duplicates
from refine.refinement.time_machine import undo
from refine.web.picture import Picture, picture_of, sizes
from tests import editing, factories
from tests.factories import text_of
from tests.web.conftest import Browser, words_of


@pytest.fixture
def agent(admin: User) -> Agent:
    return factories.agent(account=admin.account, name="Ada", refinement_threshold=0.1)


def begun(agent: Agent, *tokens: int) -> tuple[RefinementSession, list[int]]:
    """A session that found these memories, after exact duplicates went, and their ids."""
    ids = [memory.id for memory in factories.ledger(agent, *tokens)]
    session = RefinementSession.queue(agent, "manual")
    session.claim()
    while remove_duplicates(session):
        pass
    session.take_snapshot()
    db.session.commit()
    return session, ids


def pictured(session: RefinementSession) -> Picture:
    records = [
        each
        for each in factories.records(session.agent)
        if each.session_id == session.id and each.action in factories.EDITS
    ]
    mine = db.select(sizes()).where(RefinementSession.id == session.id)
    picture = picture_of(session, records, db.session.scalar(mine))
    assert picture is not None
    return picture


def told(session: RefinementSession) -> list[tuple[str, tuple[int, int]]]:
    """What is said of each part, and its tokens before and after."""
    return [(part.told, part.tokens) for part, *_ in pictured(session).drawn]


def test_every_memory_is_told_with_what_became_of_it(agent: Agent) -> None:
    factories.memory(agent, text_of(15), tags=["voice"])
    for _ in range(3):
        factories.memory(agent, f"{'x' * 35} copy")
    session, ids = begun(agent, *[20] * 6, *[30] * 4)

    editing.consolidate(session, ids[:3], text_of(25))
    editing.update(session, ids[3], text_of(12))
    editing.delete(session, ids[4])
    editing.delete(session, ids[6], reason="wrong", by_id=ids[9])
    editing.update(session, ids[7], text_of(31), reason="outdated")
    editing.protect(session, ids[8])
    editing.complete(session, "done")

    assert told(session) == [
        ("1 memory locked", (15, 15)),
        ("3 memories unchanged", (60, 60)),
        ("2 exact duplicates removed", (20, 0)),
        ("3 memories merged into 1", (60, 25)),
        ("1 memory rewritten", (20, 12)),
        ("1 memory deleted", (20, 0)),
        ("1 memory retired", (30, 0)),
        ("1 memory retired and replaced", (30, 31)),
        ("1 memory protected", (30, 30)),
    ]
    picture = pictured(session)
    assert (picture.memories, picture.tokens) == ((14, 8), (285, 173))
    assert "session: 14 → 8 memories, 112 tokens saved (" in session.summary
    assert ", 2 exact duplicates removed)." in session.summary


def test_edits_of_the_same_memory_are_one_part(agent: Agent) -> None:
    session, ids = begun(agent, *[20] * 5)

    editing.update(session, ids[0], text_of(18))
    editing.delete(session, ids[4])
    merged = editing.consolidate(session, ids[:2], text_of(30))
    editing.consolidate(session, [merged.id, ids[2]], text_of(40))

    assert told(session) == [
        ("1 memory unchanged", (20, 20)),
        ("3 memories merged into 1", (60, 40)),
        ("1 memory deleted", (20, 0)),
    ]


def test_later_changes_leave_the_sums_of_an_earlier_picture(agent: Agent) -> None:
    session, ids = begun(agent, *[20] * 6)
    editing.delete(session, ids[0])
    editing.complete(session, "done")
    db.session.commit()
    before = pictured(session)
    assert len(before.drawn[0].part.before) == 5

    factories.memory(agent, text_of(9))
    later, _ = begun(agent, 50)
    editing.update(later, ids[1], text_of(10))
    editing.delete(later, ids[2])
    editing.complete(later, "done")
    db.session.commit()

    assert pictured(session)[1:] == before[1:]
    assert told(session)[:2] == [
        ("3 memories unchanged", (60, 60)),
        ("2 memories unchanged", (40, 40)),
    ]


def test_a_large_ledger_is_one_bar_and_so_are_many_duplicates(
    dashboard: Browser, agent: Agent
) -> None:
    for _ in range(62):
        factories.memory(agent, "a memory that is here many times over....")
    session, ids = begun(agent, *[20] * 160)
    editing.consolidate(session, ids[:8], text_of(30))
    editing.complete(session, "done")
    db.session.commit()

    assert told(session) == [
        ("153 memories unchanged", (152 * 20 + 11, 152 * 20 + 11)),
        ("61 exact duplicates removed", (61 * 11, 0)),
        ("8 memories merged into 1", (160, 30)),
    ]
    assert pictured(session).is_shortened
    page = dashboard.get(f"/sessions/{session.id}").text
    assert page.count("<path") < 20
    assert "The bar of unchanged memories is shortened." in page
    undo(session, through="dashboard")
    db.session.commit()
    assert told(session)[1] == ("61 exact duplicates removed", (61 * 11, 0))


def _completes(session: RefinementSession) -> None:
    editing.complete(session, "done")


def _goes_too_far(session: RefinementSession) -> None:
    editing.delete(session, max(memory.id for memory in session.agent.ledger.each_core()))


def _is_undone(session: RefinementSession) -> None:
    _completes(session)
    undo(session, through="dashboard")


@pytest.mark.parametrize(
    ("ends", "headline", "drawn"),
    [
        (lambda _: None, "40 tokens fewer in every prompt (25%)", {"After: 6 memories"}),
        (_completes, "40 tokens fewer in every prompt (25%)", {"After: 6 memories"}),
        (
            _goes_too_far,
            "20 tokens fewer in every prompt (12%)",
            {"After: 5 memories", "Rolled back: its"},
        ),
        (
            _is_undone,
            "As many tokens in every prompt as before",
            {"After: 6 memories, 120 tokens", "Undone: 8 memories, 160 tokens again"},
        ),
    ],
)
def test_the_page_says_what_it_saved_and_whether_it_was_taken_back(
    dashboard: Browser,
    agent: Agent,
    ends: Callable[[RefinementSession], None],
    headline: str,
    drawn: set[str],
) -> None:
    agent.refinement_threshold = 0.85
    for _ in range(2):
        factories.memory(agent, f"{'x' * 75} copy")
    session, ids = begun(agent, *[20] * 6)
    editing.delete(session, ids[0])
    ends(session)
    db.session.commit()

    page = dashboard.get(f"/sessions/{session.id}").text

    assert headline in words_of(page)
    assert all(each in page for each in drawn)
    assert len(re.findall("<svg class=.drawing.", page)) == 1


def test_a_session_that_changed_nothing_has_no_picture(dashboard: Browser, agent: Agent) -> None:
    session, _ = begun(agent, 20)
    editing.complete(session, "done")
    db.session.commit()

    page = dashboard.get(f"/sessions/{session.id}").text

    assert "Ada finished and changed nothing." in page
    assert "drawing" not in page
