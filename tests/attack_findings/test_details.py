"""Details that are read wrongly: lost without a refusal, or refused without a loss."""

from decimal import Decimal

import pytest

from refine.rules.details import read
from refine.rules.survival import Original, losses


def is_refused(text, *others, by):
    originals = [Original(number, read(each)) for number, each in enumerate((text, *others))]
    return bool(
        losses(originals, [each.reading for each in originals], [read(by)], share=Decimal("0.5"))
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Choir practice Sat morning", "We sing in the choir and the hall is warm"),
        ("Gym class Mon evening", "I like the gym and my trainer is kind to me"),
    ],
)
def test_texts_with_an_abbreviated_weekday_may_be_joined_word_for_word(one, other):
    assert not is_refused(one, other, by=f"{one}. {other}")


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("She lives at Baker Street 5a", "She lives at Baker Street 5"),
        ("She wants a dozen eggs every week", "She wants eggs every week"),
        ("She calls me twice a week", "She calls me every week"),
        ("The code of the gate is 3 1 4 1", "The code of the gate is 3 1 4"),
        ("My skype is live:bob.smith these days", "My skype is live these days"),
        ("Her blood type is O+ she said", "Her blood type is O she said"),
    ],
)
def test_a_detail_is_not_lost(text, rewritten):
    assert is_refused(text, by=rewritten)
