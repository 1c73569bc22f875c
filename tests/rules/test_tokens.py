"""The token estimate."""

import math

from hypothesis import given
from hypothesis import strategies as st

from refine.rules.tokens import half_of_room, token_estimate


def test_four_characters_not_bytes_cost_a_token() -> None:
    lengths = (0, 1, 4, 5, 8, 9, 10_000)

    assert [token_estimate("🦉" * length) for length in lengths] == [0, 1, 1, 2, 2, 3, 2_500]


def test_half_of_the_room_is_left_for_the_turns() -> None:
    assert half_of_room(16_000, 4_000, ["x" * 1_500, "y" * 501]) == 5_500
    assert half_of_room(16_000, 16_000, ["x"]) == 0


@given(st.text())
def test_estimate_is_the_ceiling_of_a_quarter(text: str) -> None:
    assert token_estimate(text) == math.ceil(len(text) / 4)
