"""Generated memories: of many kinds and languages, the same for the same seed."""

import pytest

from bench.corpus import Corpus, Planted
from bench.language import languages
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


def test_there_are_many_languages_in_several_scripts() -> None:
    assert {"en", "de", "fr", "es", "pl", "ru", "zh", "ja", "ar"} <= {
        each.code for each in languages()
    }


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


def test_agents_save_no_exact_duplicates() -> None:
    corpus = Corpus(1, 0)

    corpus.begin(20)

    assert not [memory for memory in corpus.grow(200) if memory.kind == "exact"]
