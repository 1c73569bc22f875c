"""Who decides whether an edit keeps what memories say: the code, and a second reading."""

from datetime import timedelta

import pytest

from refine import clock
from refine.extensions import db
from refine.models import EditRefused
from refine.models.ledger.memory import CORRECTION
from refine.models.runs.session.judging import MAX_OVERRULED
from refine.models.runs.session.survival import LedgerReading
from refine.rules.second_reading import Stored, Verdict
from tests import editing, factories
from tests.models.runs.session.ledgers import memory
from tests.models.runs.session.test_survival import LEAST, LESS, LONG, begin, next_session, ruled

# The code doubts that this keeps enough of LONG, and that LONG may go; it has no objection to LESS.
DOUBTFUL, ACCEPTED = LEAST, LESS
DENIED = LONG.replace("I like", "I do not like")
OBJECTS = Verdict(leaves_out=("the light",))


class Reader:
    """A second reading that finds this in every case, and notes them."""

    def __init__(self, verdict=None):
        self.verdict = verdict
        self.cases = []

    def __call__(self, case):
        self.cases.append(case)
        return self.verdict


def read(verdict=None):
    reader = Reader(verdict)
    return reader, LedgerReading(reader)


def refused(edit):
    with pytest.raises(EditRefused) as refusal:
        edit()
    return refusal.value


def walks(count):
    """As many memories as LONG, each of a place of its own."""
    places = ["Arno", "Elbe", "Isar", "Oder", "Saar"]
    return [LONG.replace("the river", f"the {place}") for place in places[:count]]


def thinned(walk):
    return walk.replace(" evening light turns the water", " light turns the water").replace(
        "copper and gold", "gold"
    )


# -- who decides -----------------------------------------------------------------------------------


def test_a_sure_objection_of_the_code_is_final_and_nothing_is_read(app):
    session, (walk,) = begin(LONG)
    reader, reading = read(Verdict())

    refusal = refused(lambda: editing.update(session, walk, DENIED, reading=reading))

    assert refusal.cause == "sure"
    assert reader.cases == []


def test_what_the_code_accepts_is_written_if_the_reader_finds_nothing(app):
    session, (walk,) = begin(LONG)
    reader, reading = read(Verdict())

    editing.update(session, walk, ACCEPTED, reading=reading)

    assert memory(walk).content == ACCEPTED
    assert session.counted("overruled") == 0
    (case,) = reader.cases
    assert case == ("same", (Stored(f"{clock.now():%Y-%m-%d}", LONG),), ACCEPTED, ())


@pytest.mark.parametrize("content", [ACCEPTED, DOUBTFUL])
def test_what_the_reader_objects_to_is_refused_with_its_words(app, content):
    session, (walk,) = begin(LONG)

    refusal = refused(lambda: editing.update(session, walk, content, reading=read(OBJECTS)[1]))

    assert refusal.cause == "second_reading"
    assert "it leaves out: the light" in str(refusal)
    assert memory(walk).content == LONG


def test_a_doubt_of_the_code_is_overruled_by_a_reader_who_finds_nothing_and_counted(app):
    session, (walk,) = begin(LONG)

    editing.update(session, walk, DOUBTFUL, reading=read(Verdict())[1])

    assert memory(walk).content == DOUBTFUL
    assert session.counted("overruled") == 1


@pytest.mark.parametrize("second", [None, Reader()])
def test_without_a_usable_second_reading_the_code_decides_alone(app, second):
    session, (walk, other) = begin(*walks(2))
    reading = LedgerReading(second)

    thin = thinned(walks(1)[0])
    refusal = refused(lambda: editing.update(session, walk, thin, reading=reading))
    editing.update(session, other, f"{walks(2)[1]}!", reading=reading)

    assert refusal.cause == "doubtful"


def test_an_edit_without_a_usable_answer_is_counted(app):
    session, (walk,) = begin(LONG)

    editing.update(session, walk, ACCEPTED, reading=read()[1])

    assert session.counted("unread") == 1


def test_with_the_setting_count_nothing_is_read_or_refused(app, monkeypatch):
    ruled(app, monkeypatch, details="count")
    session, (walk,) = begin(LONG)
    reader, reading = read(OBJECTS)

    editing.update(session, walk, DENIED, reading=reading)

    assert reader.cases == []


# -- how often doubts may be overruled -------------------------------------------------------------


def test_doubts_are_overruled_three_times_a_session(app):
    texts = walks(MAX_OVERRULED + 1)
    session, ids = begin(*texts, padding=2000)
    factories.ledger(session.agent, *[1] * 100)
    session = next_session(session)
    reader, reading = read(Verdict())

    for id_, text in zip(ids[:MAX_OVERRULED], texts, strict=False):
        editing.update(session, id_, thinned(text), reading=reading)
    refusal = refused(lambda: editing.update(session, ids[-1], thinned(texts[-1]), reading=reading))

    assert refusal.cause == "doubtful"
    assert len(reader.cases) == MAX_OVERRULED


def test_doubts_are_overruled_for_a_twentieth_of_the_ledger_in_thirty_days(app):
    texts = walks(2)
    session, (first, second) = begin(*texts)
    editing.update(session, first, thinned(texts[0]), reading=read(Verdict())[1])
    later, thin = next_session(session), thinned(texts[1])

    refusal = refused(lambda: editing.update(later, second, thin, reading=read(Verdict())[1]))

    assert refusal.cause == "doubtful"


@pytest.mark.parametrize("change", ["past", "undone", "rolled back"])
def test_what_is_past_or_did_not_stay_counts_no_more(app, change):
    texts = walks(2)
    session, (first, second) = begin(*texts)
    editing.update(session, first, thinned(texts[0]), reading=read(Verdict())[1])
    at = clock.now() - timedelta(days=31) if change == "past" else None
    later = next_session(session, at)
    session.undone_at = clock.now() if change == "undone" else None
    session.status = "rolled_back" if change == "rolled back" else session.status
    db.session.flush()

    editing.update(later, second, thinned(texts[1]), reading=read(Verdict())[1])

    assert later.counted("overruled") == 1


# -- how many memories may lose words --------------------------------------------------------------


def less(walk):
    """A walk without one word, which the code does not object to."""
    return walk.replace(" evening light", " light")


def wear(session, id_, text, verdict=None):
    reading = LedgerReading() if verdict is None else read(verdict)[1]
    return editing.update(session, id_, text, reading=reading)


def test_by_the_code_alone_one_memory_of_a_few_may_lose_words_in_sixty_days(app):
    texts = walks(2)
    session, (first, second) = begin(*texts)
    wear(session, first, less(texts[0]))
    refusal = refused(lambda: wear(session, second, less(texts[1])))
    later = next_session(session, clock.now() - timedelta(days=59))

    refused(lambda: wear(later, second, less(texts[1])))
    editing.update(later, second, f"{texts[1]}!")

    assert refusal.cause == "doubtful"
    assert (
        f'#{second} would lose "evening", and no more memories may lose words now: add it'
        in str(refusal)
    )
    assert [each.counted("worn") for each in (session, later)] == [1, 0]


def test_after_sixty_days_another_memory_may_lose_words(app):
    texts = walks(2)
    session, (first, second) = begin(*texts)
    wear(session, first, less(texts[0]))
    later = next_session(session, clock.now() - timedelta(days=61))

    wear(later, second, less(texts[1]))

    assert later.counted("worn") == 1


def test_three_memories_may_lose_words_where_a_reader_finds_nothing_missing(app):
    texts = walks(4)
    session, ids = begin(*texts)
    for id_, text in zip(ids[:3], texts, strict=False):
        wear(session, id_, less(text), Verdict())
    reader, reading = read(Verdict())

    refusal = refused(lambda: editing.update(session, ids[3], less(texts[3]), reading=reading))

    assert (session.counted("worn"), session.counted("overruled")) == (3, 0)
    assert refusal.cause == "doubtful"
    assert reader.cases == []


def test_a_share_of_the_ledger_as_it_was_smallest_may_lose_words(app):
    texts = walks(3)
    session, (first, second, third) = begin(*texts, others=50)
    wear(session, first, less(texts[0]))
    wear(session, second, less(texts[1]))
    factories.ledger(session.agent, *[1] * 100, source="mem0")

    refused(lambda: wear(next_session(session), third, less(texts[2])))


@pytest.mark.parametrize(
    ("kind", "room"), [("saved", 1), ("corrected", 1), ("saved long ago", 2), ("merged", 2)]
)
def test_what_the_agent_saved_itself_of_late_gives_no_room(app, kind, room):
    texts = walks(2)
    first, ids = begin(*texts)
    ago = clock.now() - timedelta(days=61)
    fields = {
        "saved": {},
        "corrected": {"source": CORRECTION},
        "saved long ago": {"recorded_at": ago},
        "merged": {"session_id": first.id},
    }
    factories.ledger(first.agent, *[1] * 50, **fields[kind])
    session = next_session(first, ago)
    wear(session, ids[0], less(texts[0]))

    if room == 1:
        refused(lambda: wear(session, ids[1], less(texts[1])))
    else:
        wear(session, ids[1], less(texts[1]))

    assert session.counted("worn") == room


def test_each_memory_counts_that_a_merge_wears_or_that_was_merged_before(app):
    texts = walks(2)
    session, ids = begin(*texts)
    worn = ". ".join(map(less, texts))
    refused(lambda: editing.consolidate(session, ids, worn))
    merged = editing.consolidate(session, ids, ". ".join(texts))
    later = next_session(session)

    refused(lambda: wear(later, merged.id, worn))
    wear(later, merged.id, worn, Verdict())

    assert (session.counted("worn"), later.counted("worn")) == (0, 2)


def test_what_was_undone_or_put_back_leaves_room(app):
    texts = walks(2)
    session, (first, second) = begin(*texts)
    wear(session, first, less(texts[0]))
    editing.update(session, first, texts[0])
    later = next_session(session)
    refused(lambda: wear(later, second, less(texts[1])))
    session.undone_at = clock.now()
    db.session.flush()

    wear(later, second, less(texts[1]))


# -- what is read ----------------------------------------------------------------------------------


def test_a_deletion_is_read_with_the_memories_that_say_most_of_it(app):
    session, (walk, copy, other) = begin(LONG, f"{LONG}, and it is so", "Mira likes green tea")
    reader, reading = read(Verdict())

    editing.delete(session, walk, reading=reading)

    (case,) = reader.cases
    assert [kept.text for kept in case.kept] == [memory(copy).content]
    assert case.after is None
    assert memory(other).is_kept_core


def test_a_deletion_is_read_with_the_memory_that_the_agent_names(app):
    session, (walk, other) = begin(LONG, "Ich gehe gern am Fluss")
    reader, reading = read(Verdict())

    editing.delete(session, walk, reading=reading, by_id=other)

    assert [kept.text for kept in reader.cases[0].kept] == ["Ich gehe gern am Fluss"]


def test_an_edit_is_read_against_what_was_said_before_sessions_changed_it(app):
    session, (walk,) = begin(LONG)
    reader, reading = read(Verdict())

    editing.update(session, walk, ACCEPTED, reading=reading)
    editing.update(session, walk, LONG, reading=reading)
    editing.update(next_session(session), walk, ACCEPTED, reading=LedgerReading(reader))

    assert [{each.text for each in case.before} for case in reader.cases] == [{LONG}] * 3


def test_an_edit_with_a_reason_is_read_with_its_claim(app):
    session, (walk,) = begin(LONG)
    reader, reading = read(Verdict())

    editing.update(session, walk, ACCEPTED, reading=reading)
    editing.update(session, walk, DENIED, reading=reading, reason="wrong")

    case = reader.cases[-1]
    assert (case.claim, case.after) == ("wrong", DENIED)
    assert [each.text for each in case.before] == [ACCEPTED]


def test_a_reader_may_refuse_an_edit_with_a_reason(app):
    session, (walk,) = begin(LONG)

    refusal = refused(
        lambda: editing.update(session, walk, DENIED, reading=read(OBJECTS)[1], reason="outdated")
    )

    assert refusal.cause == "second_reading"


def test_an_edit_with_a_reason_is_refused_where_the_reader_gave_no_usable_answer(app):
    session, (walk,) = begin(LONG)

    refusal = refused(lambda: editing.delete(session, walk, reading=read()[1], reason="wrong"))

    assert refusal.cause == "retiring"
    assert "second reading" in str(refusal)
    assert memory(walk).is_kept_core
    assert session.counted("unread") == 1
