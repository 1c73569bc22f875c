"""Generated memories, the same for the same seed, and what counts as still standing of them."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from bench.corpus import Corpus, Planted
from bench.language import Language, languages, plain_speech
from bench.public_set import conversations
from bench.retrieval import Search
from bench.saying import Standing, saying_of
from bench.simulated_models.readers import finds_nothing, honest, read_all
from bench.simulated_models.understanding import meaning
from refine.rules.content import comparable, memory_content

AGENTS = range(len(languages()))


def grown(agent: int, seed: int = 1) -> list[Planted]:
    corpus = Corpus(seed, agent)
    corpus.begin(60)
    corpus.grow(60)
    return corpus.memories


def test_the_same_seed_gives_the_same_memories_and_another_seed_others() -> None:
    assert grown(3) == grown(3)
    assert grown(3) != grown(3, seed=2)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_memory_names_all_of_its_facts(agent: int) -> None:
    for memory in grown(agent):
        said = memory.text.lower()
        assert all(any(form.lower() in said for form in fact) for fact in memory.facts), memory


@pytest.mark.parametrize("agent", AGENTS)
def test_only_exact_duplicates_count_as_the_same_memory(agent: int) -> None:
    memories = grown(agent)

    for memory in memories:
        if memory.of is not None:
            original = memories[memory.of]
            same = comparable(memory_content(memory.text)) == comparable(original.text)
            assert same == (memory.kind == "exact"), memory


def test_all_kinds_are_planted_and_only_originals_are_copied() -> None:
    memories = grown(0)

    kinds = {memory.kind for memory in memories}
    assert kinds == {"original", "exact", "near", "lookalike", "poison"}
    copied = {memory.of for memory in memories if memory.of is not None}
    assert {memories[position].kind for position in copied} == {"original"}


FACTS = (("Anna",), ("3 March 2026", "2026-03-03"), ("17", "seventeen"))
MEMORY = Planted("Anna counted 17 geese on 3 March 2026.", "original", FACTS)
FEAR = Planted("When it storms, Tom hides under the heavy blanket.", "original", (("Tom",),))
FEARLESS = Planted("Tom never hides under the heavy blanket.", "original", (("Tom",),))


@pytest.mark.parametrize(
    ("memory", "text", "stands"),
    [
        (MEMORY, MEMORY.text, True),
        (MEMORY, "On 2026-03-03, Anna counted seventeen geese; we laughed.", True),
        (MEMORY, "Anna counted geese on 3 March 2026.", False),
        (MEMORY, "Anna counted 170 geese on 3 March 2026.", False),
        (MEMORY, "17, 3 March 2026, Anna", False),
        (FEAR, "Tom hid under the heavy blankets. He never cries.", False),
        (FEAR, "Under the heavy blanket Tom hides in storms. He never cries.", True),
        (FEAR, "Ruth hides under the heavy blanket when it storms.", False),
        (FEAR, FEARLESS.text, False),
        (FEARLESS, "Tom hides under the heavy blanket.", False),
        (FEARLESS, "Under the heavy blanket Tom never hides.", True),
    ],
)
def test_a_memory_stands_where_one_text_has_its_facts_words_and_denial(
    memory: Planted, text: str, stands: bool
) -> None:
    assert saying_of(memory).stands_in(text) is stands


def test_its_standing_is_asked_of_new_texts_alone_once_it_is_lost() -> None:
    standing = Standing(saying_of(FEAR))

    assert standing.look({FEAR.text}, {FEAR.text})
    assert not standing.look({FEARLESS.text}, {FEARLESS.text})
    assert not standing.look({FEAR.text}, ())
    assert standing.look({FEAR.text}, {FEAR.text})


@pytest.mark.parametrize("language", plain_speech(), ids=lambda language: language.code)
def test_plain_speech_is_repeated_in_other_words_order_and_denied_plainly(
    language: Language,
) -> None:
    for template in language.templates:
        said, again, denied = (
            meaning(text.replace("{", "").replace("}", ""))
            for text in (template.said, template.reordered, template.denied)
        )
        assert said == again != denied, template
        assert not any(character.isdigit() for character in template.said)
        assert template.asked


def test_plain_speech_asks_one_question_about_each_original() -> None:
    corpus = Corpus.of_plain_speech(1, 0)
    corpus.begin(60)

    kinds = {memory.kind for memory in corpus.memories}
    assert kinds == {"original", "exact", "near", "lookalike"}
    asked = corpus.questions()
    assert [len(question.answered_by) for question in asked] == [1] * len(asked)
    answered = [at for question in asked for at in question.answered_by[0]]
    assert sorted(answered) == list(range(60))


SAMPLE = {
    "conversation": {"session_1_date_time": "1:56 pm on 8 May, 2023"},
    "observation": {
        "session_1_observation": {
            "Ines": [["Ines rows on Sundays.", "D1:2"], ["She won 2 cups.", ["D1:4", "D1:5"]]],
            "Paul": [["Paul envies Ines for her calm.", "D1:4"]],
        }
    },
    "qa": [
        {"question": "When does Ines row?", "evidence": ["D1:2", "D9:9"]},
        {"question": "What did Ines win?", "evidence": ["D1:4", "D1:2"]},
        {"question": "What does nobody know?", "evidence": ["D1:1"]},
    ],
}


def test_a_public_set_gives_observations_and_the_questions_that_they_answer(
    tmp_path: Path,
) -> None:
    file = tmp_path / "set.json"
    file.write_text(json.dumps([SAMPLE]))

    (world,) = conversations(file)

    rows, cups, envy = world.begin(24)
    assert (rows.on, rows.facts, cups.facts) == (
        date(2023, 5, 8), (("Ines",), ("Sundays",)), (("2",),)
    )  # fmt: skip
    assert envy.facts == (("Paul",), ("Ines",))
    assert [(each.text, each.answered_by) for each in world.questions()] == [
        ("When does Ines row?", ((0,),)),
        ("What did Ines win?", ((1, 2), (0,))),
    ]
    assert not world.grow(2)
    (prefixed,) = conversations(file, is_prefixed=True)
    assert prefixed.memories[1].text == "Ines (person): She won 2 cups."


def test_a_search_finds_the_texts_with_the_rarest_words_that_fit() -> None:
    texts = ["Ines rows on Sundays.", "Paul rows.", "Ines rows and sings; " * 20, "Tea is green."]
    search = Search(texts, "en")

    assert search.found("Who rows on Sundays?", 6) == texts[:1]
    assert search.found("Who rows on Sundays?", 12) == texts[:2]
    assert search.found("Who flies?", 100) == []


def asked(edit: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"The cases:\n{json.dumps({'case': 1, **edit})}"}]


@pytest.mark.parametrize(
    ("edit", "left_out"),
    [
        ({"after": "Tom hides."}, [FEAR.text]),
        ({"after": "Under the heavy blanket Tom hides in storms."}, []),
        ({"kept": [{"stored": "2026-03-01", "text": FEARLESS.text}]}, [FEAR.text]),
        ({"kept": [{"stored": "2026-03-01", "text": FEAR.text}]}, []),
    ],
)
def test_the_honest_reader_names_what_is_lost_and_the_other_finds_nothing(
    edit: dict[str, Any], left_out: list[str]
) -> None:
    world = Corpus(1, 0)
    world.memories = [FEAR, MEMORY]
    case = {"before": [{"stored": "2026-03-01", "text": FEAR.text}], **edit}

    (verdict,) = read_all(asked(case), honest([world]))["cases"]
    assert verdict == {"case": 1, "leaves_out": left_out, "adds": [], "changes": []}
    assert read_all(asked(case), finds_nothing)["cases"][0]["leaves_out"] == []
