"""A companion in two languages, above its budget: what holds stays, and what does not goes."""

import json
from datetime import UTC, datetime

import pytest

from refine.extensions import db
from tests import factories
from tests.scripted_model import send

# Each memory by a name: the day of 2026 on which it was stored, its text, and what that says.
MEMORIES = {
    "old home": ("01-05", "Mira wohnt in der Lindenstraße 12 in Bonn, im dritten Stock.",
                 {"lives in Bonn"}),
    "number": ("01-07", "Mira's phone number is 0151 555 0142.", {"number ends in 2"}),
    "concert": ("01-09", "Das Konzert von Jonas ist am 14. März um 19 Uhr in der Stadthalle.",
                {"concert on the 14th", "concert at 7 p.m. in the hall"}),
    # what the agent noted: a finished task of its own, which a session retires
    "todo": ("01-12", "TODO: remind Mira to renew her passport before the trip to Lisbon in April.",
             {"passport to renew", "trip to Lisbon in April"}),
    "work phone": ("01-15", "The number of Mira's work phone is 0228 77 31 09.",
                   {"number at work"}),
    "sister": ("01-20", "Mira's sister Katarina works as a nurse in Leipzig.",
               {"sister Katarina", "sister is a nurse in Leipzig"}),
    "tea": ("01-22", "Mira trinkt jeden Morgen grünen Tee mit Honig.", {"tea"}),
    "tea, wordy": ("02-03", "Wie Mira heute noch einmal gesagt hat, trinkt sie wirklich jeden "
                   "Morgen ihren grünen Tee, und den trinkt sie mit Honig.", {"tea"}),
    "run": ("02-04", "Every Tuesday evening Mira runs along the river with her friend Paul.",
            {"runs"}),
    "run, wordy": ("02-11", "As she does every week, Mira runs along the river every Tuesday "
                   "evening, and her friend Paul runs along the river with her.", {"runs"}),
    "nuts": ("02-12", "It may be worth remembering, as far as I can tell, that Mira is allergic to "
             "hazelnuts, and that she has her emergency pen with her in her handbag.",
             {"allergic to hazelnuts", "emergency pen"}),
    "calls": ("02-13", "As Mira has told me more than once, she does not want to be called before "
              "nine in the morning, except on Sundays, when she is up at seven.",
              {"no calls before nine", "Sundays are an exception"}),
    "corrected": ("02-14", "I noted a wrong phone number for Mira: her phone number is "
                  "0151 555 0143.", {"number ends in 3"}),
    "dog": ("02-15", "Miras Hund Bruno fürchtet sich vor Gewittern und schläft dann im Flur.",
            {"dog"}),
    "japanese": ("02-18", "ミラは毎週水曜日に田中先生の日本語の授業を受けている。",
                 {"learns Japanese"}),
    "postponed": ("02-20", "Das Konzert von Jonas in der Stadthalle ist verschoben: es ist jetzt "
                  "am 28. März um 19 Uhr.",
                  {"concert on the 28th", "concert at 7 p.m. in the hall"}),
    "done": ("02-21", "Mira has renewed her passport, so all is ready for the trip to Lisbon in "
             "April.", {"passport renewed", "trip to Lisbon in April"}),
    "wish": ("02-22", "Mira asked me to forget the number of her work phone.", {"wish to forget"}),
    "spelling": ("02-23", "Mira's sister spells her name Kataryna, with a y.", {"sister Kataryna"}),
    "new home": ("03-01", "Mira ist umgezogen: sie wohnt jetzt am Rosenweg 4 in Köln, im "
                 "Erdgeschoss.", {"lives in Köln"}),
    "garden": ("03-02", "Mira grows tomatoes and thyme on the balcony of her neighbour.",
               {"garden", "balcony is the neighbour's"}),
}  # fmt: skip
NO_LONGER = {
    *("lives in Bonn", "number ends in 2", "concert on the 14th", "passport to renew"),
    *("number at work", "sister Katarina"),
}
HOLDS = set.union(*(said for _, _, said in MEMORIES.values())) - NO_LONGER
SISTER = "Mira's sister Kataryna works as a nurse in Leipzig."
NUTS = "Mira is allergic to hazelnuts, and she has her emergency pen with her in her handbag."
CALLS = (
    "Mira does not want to be called before nine in the morning, except on Sundays, when she is "
    "up at seven."
)
POORER = "Mira grows tomatoes and thyme on the balcony."
SAYS = {
    **{text: said for _, text, said in MEMORIES.values()},
    SISTER: {"sister Kataryna", "sister is a nurse in Leipzig"},
    NUTS: {"allergic to hazelnuts", "emergency pen"},
    CALLS: {"no calls before nine", "Sundays are an exception"},
    POORER: {"garden"},
}
BUDGET = 300  # of 419 tokens


class Companion:
    """A model that edits as a thoughtful one would, and reads each edit again honestly."""

    def __init__(self, world):
        self.world = world
        self.ids = dict(zip(MEMORIES, world.ids, strict=True))

    def edits(self, *calls):
        """Script the calls of one reply, and the second reading of them."""
        self.world.model.calls(*calls)
        self.world.model.answer(self.reads)

    def retires(self, name, by, reason="outdated"):
        return {"action": "delete", "id": self.ids[name], "reason": reason, "by": self.ids[by]}

    def rewrites(self, name, content, **reason):
        return {"action": "update", "id": self.ids[name], "content": content, **reason}

    def removes(self, name):
        return {"action": "delete", "id": self.ids[name]}

    def reads(self, handler):
        shown = self.world.model.requests[-1]["messages"][-1]["content"]
        cases = [json.loads(line) for line in shown.splitlines() if line.startswith('{"case"')]
        words = "\n".join(json.dumps(verdict(case)) for case in cases)
        message = {"role": "assistant", "content": words}
        send(handler, 200, {"model": "test/model", "choices": [{"message": message}]})


def verdict(case):
    """What an edit leaves out or adds, as anybody sees who knows what holds."""
    before = said_by(text for each in case["before"] for text in each.values())
    after = said_by(
        [case["after"]] if "after" in case else [t for e in case["kept"] for t in e.values()]
    )
    gone, new = before - after, after - before
    if case["claim"] != "same":
        gone -= NO_LONGER
    if case["claim"] != "same" or "kept" in case:
        new -= HOLDS
    return {"case": case["case"], "leaves_out": sorted(gone), "adds": sorted(new), "changes": []}


def said_by(texts):
    return set().union(*(SAYS[text] for text in texts))


# -- two sessions ----------------------------------------------------------------------------------


@pytest.fixture
def companion(world):
    world.variables["REFINE_SECOND_READING"] = "on"
    agent = factories.agent(core_token_budget=BUDGET)
    for day, text, _ in MEMORIES.values():
        at = datetime.fromisoformat(f"2026-{day}").replace(tzinfo=UTC)
        factories.memory(agent, text, created_at=at, recorded_at=at, updated_at=at)
    world.use(agent)
    db.session.commit()
    return Companion(world)

    return Companion(world)


def completed(companion):
    companion.world.model.call("complete", summary="Done.")
    session = companion.world.refine()
    assert (session.status, companion.world.model.left) == ("completed", 0)
    return session


@pytest.fixture
def sessions(companion):
    """Two sessions: what was retired in each, in the same reply as repeats went."""
    companion.world.model.say("YES")
    companion.edits(
        companion.retires("old home", "new home"),
        companion.retires("number", "corrected", "wrong"),
        companion.retires("concert", "postponed"),
        companion.removes("tea, wordy"),
        companion.removes("run, wordy"),
    )
    companion.edits(companion.rewrites("garden", POORER))
    first = completed(companion)
    companion.world.model.say("YES")
    companion.edits(
        companion.retires("todo", "done"),
        companion.retires("work phone", "wish"),
        companion.rewrites("sister", SISTER, reason="wrong"),
        companion.rewrites("nuts", NUTS),
        companion.rewrites("calls", CALLS),
    )
    return first, completed(companion)


def kept(companion):
    return list(db.session.scalars(companion.world.agent.ledger.core()))


@pytest.mark.slow
def test_after_two_sessions_it_is_within_its_budget_and_keeps_all_that_holds(companion, sessions):
    agent, context = companion.world.agent, companion.world.agent.memory_context()
    texts = [memory.content for memory in kept(companion)]

    assert agent.core_token_usage <= BUDGET
    assert said_by(texts) == HOLDS
    assert all(text in context for text in texts)
    assert [each.counted("refused_second_reading") for each in sessions] == [1, 0]
    assert [each.counted("refused_sure") for each in sessions] == [0, 0]


@pytest.mark.slow
def test_what_it_retired_is_out_of_its_context_linked_and_restorable(companion, sessions):
    agent, context = companion.world.agent, companion.world.agent.memory_context()
    retired = list(db.session.scalars(agent.ledger.retired()))
    (corrected,) = [memory.id for memory in kept(companion) if memory.content == SISTER]

    assert {memory.id: memory.replaced_by_id for memory in retired} == {
        companion.ids[name]: by
        for name, by in {
            "old home": companion.ids["new home"],
            "number": companion.ids["corrected"],
            "concert": companion.ids["postponed"],
            "todo": companion.ids["done"],
            "work phone": companion.ids["wish"],
            "sister": corrected,
        }.items()
    }
    assert not any(memory.content in context for memory in retired)
    assert "0228 77 31 09" not in context
    for memory in retired:
        memory.restore()
    assert all(memory.content in agent.memory_context() for memory in retired)
