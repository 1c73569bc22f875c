"""Generated memories, the same for the same seed, and what counts as still standing of them."""

import json
from typing import Any

import pytest

from bench.corpus import Corpus, Planted
from bench.language import languages, plain_speech
from bench.saying import saying_of
from bench.simulated_models.understanding import meaning
from refine.rules.content import comparable, memory_content

AGENTS = range(len(languages()))


def grown(agent: int, seed: int = 1) -> list[Planted]:
    corpus = Corpus(seed, agent)
    corpus.begin(60)
    corpus.grow(60)
    return corpus.memories


def test_the_same_seed_gives_the_same_memories_and_another_seed_others():
    assert grown(3) == grown(3)
    assert grown(3) != grown(3, seed=2)


@pytest.mark.parametrize("agent", AGENTS)
def test_only_exact_duplicates_count_as_the_same_memory(agent):
    memories = grown(agent)

    for memory in memories:
        if memory.of is not None:
            original = memories[memory.of]
            same = comparable(memory_content(memory.text)) == comparable(original.text)
            assert same == (memory.kind == "exact"), memory


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
def test_a_memory_stands_where_one_text_has_its_facts_words_and_denial(memory, text, stands):
    assert saying_of(memory).stands_in(text) is stands


@pytest.mark.parametrize("language", plain_speech(), ids=lambda language: language.code)
def test_plain_speech_is_repeated_in_other_words_order_and_denied_plainly(language):
    for template in language.templates:
        said, again, denied = (
            meaning(text.replace("{", "").replace("}", ""))
            for text in (template.said, template.reordered, template.denied)
        )
        assert said == again != denied, template
        assert not any(character.isdigit() for character in template.said)
        assert template.asked


def asked(edit: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"The cases:\n{json.dumps({'case': 1, **edit})}"}]
