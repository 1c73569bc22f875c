"""What counts as still standing."""

import pytest

from bench.corpus import Planted
from bench.lives import Remains, Standing

FACTS = (("Anna",), ("3 March 2026", "2026-03-03"), ("17", "seventeen"))
MEMORY = Planted("Anna counted 17 geese on 3 March 2026.", "original", FACTS)


def facts_left(*kept: str, memory: Planted = MEMORY) -> list[bool]:
    return [fact.look(kept, kept) for fact in Remains(memory).facts]


def test_everything_stands_while_the_memory_does() -> None:
    remains, kept = Remains(MEMORY), {MEMORY.text}

    assert remains.details
    everything = [*remains.details, *remains.facts, remains.words, remains.whole]
    assert all(each.look(kept, kept) for each in everything)


def test_a_fact_stands_in_another_writing_beside_another_fact() -> None:
    assert facts_left("On 2026-03-03 Anna saw geese.") == [True, True, False]
    assert facts_left("Anna saw geese.", "17 geese") == [False, False, False]


@pytest.mark.parametrize(
    "text", ["Annabel counted 170 geese on 13 March 2026.", "Joanna, 2017, 3 March 20261"]
)
def test_a_part_of_a_longer_word_or_number_is_no_fact(text: str) -> None:
    assert facts_left(text) == [False, False, False]


def test_scripts_without_spaces_bound_no_word() -> None:
    memory = Planted(
        "続きはbox44@example.orgにある。", "original", (("box44@example.org",), ("続き",))
    )

    assert facts_left("その続きはbox44@example.orgにあった。", memory=memory) == [True, True]


def test_a_memory_is_whole_where_one_text_states_all_facts() -> None:
    whole = Remains(MEMORY).whole
    apart = ["Anna counted 17.", "Anna came on 3 March 2026."]

    assert not whole.look(apart, apart)
    assert whole.look([*apart, "2026-03-03: Anna, seventeen."], ["2026-03-03: Anna, seventeen."])


def test_only_new_texts_are_read_again_while_nothing_stands() -> None:
    read: list[str] = []

    def stands_in(text: str) -> bool:
        read.append(text)
        return text == "new"

    standing = Standing(stands_in, "gone")

    looks = [
        standing.look(["old"], ["old"]),
        standing.look(["old"], []),
        standing.look(["old", "new"], ["new"]),
        standing.look(["old", "new"], []),
    ]
    assert looks == [False, False, True, True]
    assert read == ["old", "new"]
