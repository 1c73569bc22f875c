"""Texts cut into rough words."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.rules.likely_pairs import rough_words


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
