"""Pairs of memories that are alike by their letters."""

import unicodedata
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.rules.likely_pairs import MIN_LIKENESS, LikelyPair, likely_pairs, rough_words

ALL = 1_000_000
GEESE = "Mira counts the geese above the frozen lake every morning before school"
CLOCK = "Tomasz repaired the clock in the kitchen with nothing but a hairpin"
LOOM = "Delphine sold her bicycle in the spring and bought a loom instead"


def pairs_of(*texts: str, limit: int = ALL, locked: tuple[int, ...] = ()) -> list[LikelyPair]:
    """The pairs among these texts; the first has the id 1."""
    return likely_pairs(dict(enumerate(texts, start=1)), limit, locked=locked)


def ids_of(pairs: list[LikelyPair]) -> list[tuple[int, int]]:
    return [(pair.id, pair.other_id) for pair in pairs]


def long_text(seed: int, words: int = 1_500) -> str:
    """About 10,000 characters, different for each seed."""
    random = Random(seed)
    return " ".join("".join(random.choices("abcdefghijklmn", k=6)) for _ in range(words))


# -- what is found --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "likeness"),
    [
        (GEESE, GEESE.upper() + "!", 100),
        (GEESE, "Every morning before school, Mira counts the geese above the frozen lake", 100),
        ("Likes green tea.", "Likes green teas", 96),
        ("Alice is allergic to nuts", "Bob is allergic to nuts", 83),  # alike, and yet no duplicate
        ("小明每天早上都去湖边数大雁", "小明每天早上都去湖边数一数大雁", 92),
        ("田中さんは緑茶が好きだ。", "田中さんは緑茶がとても好きだ。", 86),
        ("คุณยายชอบดื่มชาเขียวไม่ใส่น้ำตาล", "คุณยายชอบดื่มชาเขียวร้อนไม่ใส่น้ำตาล", 92),
        ("أمينة تحب الشاي الأخضر بدون سكر", "أمينة تحب الشاي الأخضر بلا سكر", 90),
        ("她喜欢猫", "她很喜欢猫", 88),
        ("Strawberrys", "strawberries", 84),
        ("🎉🎉🎉", "🎉🎉", 80),
    ],
)
def test_two_texts_that_are_alike_make_a_pair(one: str, other: str, likeness: int) -> None:
    (pair,) = pairs_of(one, LOOM, other)

    assert ids_of([pair]) == [(1, 3)]
    assert pair.likeness == pytest.approx(likeness, abs=3)


def test_different_texts_make_no_pair() -> None:
    tea = "She drinks tea in the morning", "Every dawn brings her a cup of Darjeeling"
    for texts in ((), (GEESE,), (GEESE, CLOCK, LOOM), ("", " \n"), ("🎉", "🍐"), tea):
        assert pairs_of(*texts) == [], texts


# -- which are listed -----------------------------------------------------------------------------


def test_the_most_similar_come_first_up_to_the_limit() -> None:
    texts = [CLOCK, f"{CLOCK} once", LOOM, LOOM.lower(), GEESE, f"{GEESE}, she told me that"]

    found = pairs_of(*texts)

    assert ids_of(found) == [(3, 4), (1, 2), (5, 6)]
    assert pairs_of(*texts, limit=2) == found[:2]
    assert pairs_of(*texts, limit=0) == []


def test_every_group_is_listed_before_one_is_listed_again() -> None:
    days = [f"Day {day}: {GEESE}" for day in range(30)]

    found = pairs_of(*days, CLOCK, f"Once {CLOCK}", LOOM, f"{LOOM}, she said", limit=4)

    assert {(31, 32), (33, 34)} < set(ids_of(found))
    assert [pair.likeness for pair in found] == sorted(
        (pair.likeness for pair in found), reverse=True
    )


def test_pairs_a_locked_text_with_its_nearest_unlocked_one_but_never_two_locked_texts() -> None:
    texts = [GEESE, f"{GEESE}!", f"{GEESE} again"]

    assert ids_of(pairs_of(*texts, locked=(1, 2))) == [(1, 3), (2, 3)]
    assert pairs_of(*texts, locked=(1, 2, 3)) == []


# -- how far it goes ------------------------------------------------------------------------------


def test_long_texts_with_the_same_beginning_alone_make_no_pair() -> None:
    beginning = long_text(0)[:1_200]

    assert pairs_of(*(beginning + long_text(seed) for seed in (1, 2))) == []


WORDS = st.sampled_from(["Mira", "geese", "lake", "the", "湖", "雁", "17", "🎉", "-"])


@given(
    st.dictionaries(st.integers(1, 99), st.lists(WORDS, max_size=12).map(" ".join) | st.text()),
    st.integers(0, 12),
    st.sets(st.integers(1, 99)),
)
def test_pairs_are_well_formed_whatever_the_texts_say(
    texts: dict[int, str], limit: int, locked: set[int]
) -> None:
    found = likely_pairs(texts, limit, locked=locked)

    assert len(found) <= min(limit, max(0, len(texts) - 1))
    assert len(set(ids_of(found))) == len(found)
    for id_, other_id, likeness in found:
        assert id_ < other_id
        assert {id_, other_id} <= texts.keys()
        assert not {id_, other_id} <= locked
        assert MIN_LIKENESS <= likeness <= 100


# -- rough words ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Mira's tea, at 17:30!", ["mira", "s", "tea", "at", "17", "30"]),
        ("  ＦＵＬＬ　width ２３ ", ["full", "width", "23"]),
        ("Straße — ΟΔΟΣ", ["strasse", "οδοσ"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("مرحبا بالعالم", ["مرحبا", "بالعالم"]),
        ("🎉🎉 :-)", ["🎉🎉", ":-)"]),
        (" \n", []),
        ("", []),
    ],
)
def test_words_are_letters_marks_and_digits_in_lower_case(text: str, words: list[str]) -> None:
    assert rough_words(text) == words


@pytest.mark.parametrize(
    ("passage", "before", "after"),
    [
        ("每天早上都去湖边数大雁，用一根发夹修好了厨房里的旧钟", "我的奶奶", "而且很高兴"),
        ("は毎朝湖のほとりで雁を数えている、台所の古い時計を直した", "田中さん", "と言った"),
        ("ซ่อนแยมไว้ใต้บันไดสามขวดซ่อมนาฬิกาเก่าในครัว", "คุณยาย", "เมื่อวานนี้"),
    ],
)
def test_text_without_spaces_is_cut_alike_wherever_it_stands(
    passage: str, before: str, after: str
) -> None:
    alone = rough_words(passage)

    within = rough_words(before + passage + after)

    assert 4 < len(alone) < len(passage) * 2 / 3
    assert " ".join(alone[1:-1]) in " ".join(within)


@given(st.text())
def test_composed_and_decomposed_letters_are_the_same(text: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))

    assert " ".join(rough_words(composed)) == " ".join(rough_words(decomposed))
