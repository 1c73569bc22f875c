"""What a simulated week counts, with the real loop and a real database."""

from datetime import timedelta

from bench.corpus import Corpus
from bench.lives import Life
from bench.survival import Scale, simulate
from refine import clock
from refine.extensions import db
from refine.models import Account, AgentMemory, RefinementSession
from refine.settings import Settings

SMALL = Scale(agents=1, weeks=2, memories=16, saved_weekly=2)


def test_a_week_passes_between_two_sessions(played: Settings) -> None:
    before = clock.now()

    weeks = list(simulate("careful", SMALL, played))

    first, second = db.session.scalars(
        db.select(RefinementSession).order_by(RefinementSession.created_at)
    )
    assert [week.week for week in weeks] == [1, 2]
    apart = second.created_at - first.created_at
    assert timedelta(days=7) < apart < timedelta(days=7, hours=1)
    assert clock.now() - before < timedelta(hours=1)


def test_the_careful_model_unites_duplicates_and_keeps_every_fact(played: Settings) -> None:
    *_, last = simulate("careful", Scale(agents=2, weeks=2, memories=30), played)

    assert last.failed == last.rolled_back == last.lookalikes_merged == 0
    assert last.duplicates_gone == last.duplicates > 0
    assert last.facts_left == last.facts
    assert last.originals_left == last.originals


def test_a_planted_memory_is_found_where_it_was_merged_into(played: Settings) -> None:
    account = Account(name="One", slug="one")
    life = Life(account, "trial/careful", Corpus(1, 0), 16)

    life.pass_week(played, 0, [])

    families = {root: each for root, each in life.families().items() if len(each) > 1}
    assert families
    for root, copies in families.items():
        assert len(life.places(copies)) == 1, life.corpus.memories[root]


def test_memories_that_a_model_saves_by_itself_are_kept_but_are_no_originals(
    played: Settings,
) -> None:
    *_, last = simulate("filler-save", Scale(agents=1, weeks=1, memories=10), played)

    saved = db.session.scalars(db.select(AgentMemory).where(AgentMemory.token_estimate > 400))
    assert len(saved.all()) == 1
    assert last.originals <= 10
