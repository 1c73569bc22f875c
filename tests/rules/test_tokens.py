"""What a text is reckoned to cost."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.rules.tokens import token_estimate


@pytest.mark.parametrize(
    ("characters", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (10_000, 2_500)]
)
def test_every_begun_four_characters_cost_a_token(characters: int, tokens: int) -> None:
    assert token_estimate("x" * characters) == tokens


def test_characters_count_not_bytes() -> None:
    assert token_estimate("🦉🦉🦉🦉") == 1


@given(st.text())
def test_the_estimate_is_the_ceiling_of_a_quarter(text: str) -> None:
    assert token_estimate(text) == math.ceil(len(text) / 4)
