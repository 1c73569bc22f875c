"""The token estimate."""

import math

from hypothesis import given
from hypothesis import strategies as st

from refine.rules.tokens import token_estimate


def test_four_characters_not_bytes_cost_a_token() -> None:
    lengths = (0, 1, 4, 5, 8, 9, 10_000)

    assert [token_estimate("🦉" * length) for length in lengths] == [0, 1, 1, 2, 2, 3, 2_500]


@given(st.text())
def test_estimate_is_the_ceiling_of_a_quarter(text: str) -> None:
    assert token_estimate(text) == math.ceil(len(text) / 4)
