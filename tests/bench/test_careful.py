"""The careful model: it finds what says the same by reading, and merges nothing else."""

import pytest

from bench.corpus import Corpus
from bench.language import languages
from bench.simulated_models.careful import careful
from bench.simulated_models.conversation import Step
from bench.simulated_models.understanding import meaning, sentences
from tests.bench.conversations import conversation

SAME = [
    ("Anna moved to Ely on 3 March 2026.", "On 2026-03-03, Anna moved to Ely!"),
    ("Hanne zog am 3. März 2026 mit drei Koffern um.", "Am 2026-03-03 zog Hanne mit 3 Koffern um"),
    ("2026年3月3日，田中さんは第三号室に住む。", "田中さんは2026-03-03に第3号室に住む"),
    ("Wer sagte „morgen“?", 'Wer sagte "morgen"'),
]
DIFFERENT = [
    ("Anna moved to Ely.", "Maeve moved to Ely."),
    ("Anna has 3 hens.", "Anna has 4 hens."),
    ("Anna keeps hens.", "Anna never keeps hens."),
    ("田中さんは鶏を飼う。", "田中さんは鶏を飼わない。"),
    ("The address is box12@example.org.", "The address is box13@example.org."),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_other_writings_and_orders_of_words_mean_the_same(one: str, other: str) -> None:
    assert meaning(one) == meaning(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_another_name_number_or_a_denial_means_something_else(one: str, other: str) -> None:
    assert meaning(one) != meaning(other)


def test_a_date_ends_no_sentence() -> None:
    text = "Am 3. März 2026 kam Greta. Lukas weiß davon."

    assert sentences(text) == ["Am 3. März 2026 kam Greta.", "Lukas weiß davon."]


def test_deletes_what_another_memory_says_in_full() -> None:
    shorter, longer = "Ruth has 3 old hens.", "Ruth has three old hens. Tom knows it."

    assert careful(conversation(shorter, longer)) == [{"action": "delete", "id": 1}]


def test_unites_memories_that_each_say_something_the_other_does_not() -> None:
    one, other = "Ruth has 3 old hens. Tom knows it.", "Ruth has three old hens. Anna fed them."

    (step,) = careful(conversation(one, other))

    assert step["action"] == "consolidate"
    assert sorted(step["ids"]) == [1, 2]
    assert step["content"] in (f"{one} Anna fed them.", f"{other} Tom knows it.")


@pytest.mark.parametrize("agent", range(len(languages())))
def test_finds_every_planted_duplicate_and_touches_no_lookalike(agent: int) -> None:
    corpus = Corpus(seed=7, agent=agent)
    planted = [memory for memory in corpus.begin(40) if memory.kind != "exact"]
    origins = {memory.text: position for position, memory in enumerate(corpus.memories)}

    steps = careful(conversation(*(memory.text.strip() for memory in planted)))

    # a family is an original with its near duplicates
    family = [m.of if m.kind == "near" else origins[m.text] for m in planted]
    touched = [[family[id_ - 1] for id_ in _ids(step)] for step in steps]
    assert all(len(set(families)) == 1 for families in touched)
    gone = sum(len(families) - (len(families) > 1) for families in touched)
    assert gone == min(10, sum(memory.kind == "near" for memory in planted))


def _ids(step: Step) -> list[int]:
    return step["ids"] if step["action"] == "consolidate" else [step["id"]]
