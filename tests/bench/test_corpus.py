"""Generated memories, the same for the same seed, and what counts as still standing of them."""

import pytest

from bench.corpus import Corpus, Planted
from bench.language import languages
from bench.lives import Remains
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


def facts_left(*kept: str, memory: Planted = MEMORY) -> list[bool]:
    return [fact.look(kept, kept) for fact in Remains(memory).facts]


def test_a_fact_stands_in_another_writing_beside_another_fact() -> None:
    assert facts_left("On 2026-03-03 Anna saw geese.") == [True, True, False]
    assert facts_left("Anna saw geese.", "17 geese") == [False, False, False]


def test_a_memory_is_whole_where_one_text_states_all_facts() -> None:
    whole = Remains(MEMORY).whole
    apart = ["Anna counted 17.", "Anna came on 3 March 2026."]

    assert not whole.look(apart, apart)
    assert whole.look([*apart, "2026-03-03: Anna, seventeen."], ["2026-03-03: Anna, seventeen."])
