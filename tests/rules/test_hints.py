"""Groups of texts that are alike, and how long those that were left alone rest."""

import json
import unicodedata
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from refine.rules.hints import MIN_LIKENESS, Group, groups_alike, without_resting
from refine.rules.retention import MAX_MERGED

GEESE = "Mira counts the geese above the frozen lake every morning before school"
CLOCK = "Tomasz repaired the clock in the kitchen with nothing but a hairpin"
LOOM = "Delphine sold her bicycle in the spring and bought a loom instead"
MANY = [f"{word} was never mentioned again" for word in ("Alpha", "Beta", "Gamma", "Delta")]

# Sixty memories in English, German, Chinese and Japanese; those with the same number of a group say
# the same, and the others resemble them.
ALIKE = Path(__file__).with_name("alike.jsonl")


def ids_of(*texts: str, locked: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """The groups among these texts; the first has the id 1."""
    return [group.ids for group in groups_alike(dict(enumerate(texts, start=1)), locked)]


# -- what is found --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (GEESE, GEESE.upper() + "!"),
        (GEESE, "The frozen lake: every morning Mira counts its geese"),
        ("Minka frisst nur Futter mit Lachs", "Minka rührt nur Lachsfutter an"),
        ("小明每天早上都去湖边数大雁", "湖边的大雁，小明每天早上都数一数"),
        ("田中さんは緑茶が好きだ。", "緑茶がとても好きな田中さん"),
        ("คุณยายชอบดื่มชาเขียวไม่ใส่น้ำตาล", "ชาเขียวร้อนไม่ใส่น้ำตาล คุณยายชอบดื่ม"),
        ("أمينة تحب الشاي الأخضر بدون سكر", "الشاي الأخضر بلا سكر تحب أمينة"),
        ("茶", "茶"),
        ("ＦＵＬＬ width", "full WIDTH"),
    ],
)
def test_two_texts_that_share_rare_words_make_a_group(one, other):
    assert ids_of(one, LOOM, CLOCK, other) == [(1, 4)]


def test_different_texts_make_no_group():
    tea = "She drinks tea in the morning", "Every dawn brings her a cup of Darjeeling"
    for texts in ((), (GEESE,), (GEESE, CLOCK, LOOM), ("", " \n"), ("🎉", "🎉"), tea):
        assert ids_of(*texts) == [], texts


def test_finds_duplicates_among_similar_memories_in_four_languages():
    lines = [json.loads(line) for line in ALIKE.read_text(encoding="utf-8").splitlines()]
    texts = {id_: line["text"] for id_, line in enumerate(lines, start=1)}
    same = defaultdict[int, set[int]](set)
    for id_, line in enumerate(lines, start=1):
        if line["group"] is not None:
            same[line["group"]].add(id_)

    found = groups_alike(texts)

    assert len(same) == 14
    assert [
        each for each in same.values() if not any(each <= set(group.ids) for group in found)
    ] == []
    assert len(found) <= 16


def test_finds_duplicates_among_thousands():
    others = [f"{GEESE} {number}, and {number * 7} {number % 90} cranes" for number in range(2_000)]

    assert (2_001, 2_002) in ids_of(*others, CLOCK, f"Once more: {CLOCK}")


# -- which groups ---------------------------------------------------------------------------------


def test_the_most_similar_come_first_with_their_average_likeness():
    texts = [
        CLOCK,
        f"{CLOCK} once",
        LOOM,
        LOOM.lower(),
        GEESE,
        f"{GEESE}, she told",
        f"So: {GEESE}",
    ]

    first, *others = groups_alike(dict(enumerate(texts, start=1)))

    assert first == Group((3, 4), 100)
    assert {group.ids for group in others} == {(1, 2), (5, 6, 7)}
    assert all(50 < group.likeness < 100 for group in others)


def test_a_group_fits_into_one_merge():
    others = (f"nothing of that kind, {number}{number} {number}" for number in range(200))

    groups = ids_of(*(f"{CLOCK}, {number}" for number in range(2 * MAX_MERGED + 1)), *others)

    of_clocks = [ids for ids in groups if max(ids) <= 2 * MAX_MERGED + 1]
    assert [len(ids) for ids in of_clocks] == [MAX_MERGED, MAX_MERGED]


def test_the_unrelated_ends_of_a_chain_are_not_joined():
    chain = [GEESE, f"{GEESE} and {CLOCK}", f"{CLOCK} and {LOOM}", LOOM]

    assert set(ids_of(*chain, *MANY)) == {(1, 2), (3, 4), (5, 6, 7, 8)}


def test_a_group_has_at_least_one_unlocked_text():
    texts = [GEESE, f"{GEESE}!", CLOCK, f"{CLOCK}!"]

    assert ids_of(*texts, locked=(1, 2, 3)) == [(3, 4)]


WORDS = st.sampled_from(["Mira", "geese", "lake", "the", "湖", "雁", "湖雁", "17", "🎉", "-"])


@given(
    st.dictionaries(st.integers(1, 99), st.lists(WORDS, max_size=12).map(" ".join) | st.text()),
    st.sets(st.integers(1, 99)),
)
def test_groups_are_well_formed_whatever_the_texts_say(texts, locked):
    found = groups_alike(texts, locked)

    grouped = [id_ for group in found for id_ in group.ids]
    assert len(set(grouped)) == len(grouped)
    assert set(grouped) <= texts.keys()
    for ids, likeness in found:
        assert list(ids) == sorted(ids)
        assert 2 <= len(ids) <= MAX_MERGED
        assert not set(ids) <= locked
        assert round(MIN_LIKENESS * 100) <= likeness <= 100
    composed = {id_: unicodedata.normalize("NFD", text) for id_, text in texts.items()}
    assert groups_alike(composed, locked) == found


# -- which rest -----------------------------------------------------------------------------------

PAIR, TRIO = Group((1, 2), 90), Group((3, 4, 5), 80)


def test_the_pause_of_a_group_doubles_each_time_it_is_left_alone():
    shown: list[list[tuple[int, ...]]] = []
    for _ in range(17):
        groups = without_resting([PAIR], shown)
        shown.insert(0, [group.ids for group in groups])

    at = [number for number, groups in enumerate(reversed(shown)) if groups]

    assert at == [0, 2, 5, 10]


def test_a_group_rests_if_all_of_it_was_shown_together():
    for earlier, awake in (
        ([(1, 2, 9)], [TRIO]),
        ([(3, 4)], [PAIR, TRIO]),
        ([(1,), (2,)], [PAIR, TRIO]),
        ([(5, 4, 3), (2, 1)], []),
    ):
        assert without_resting([PAIR, TRIO], [earlier]) == awake
