"""The threshold: above 0, at most 1, four decimals; nothing unreadable ever becomes 0."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.errors import InvalidValue
from refine.rules.numbers import parse_threshold


@pytest.mark.parametrize(
    ("given_value", "threshold"),
    [
        (1, "1"),
        (1.0, "1"),
        (0.75, "0.75"),
        (0.1, "0.1"),
        (0.0001, "0.0001"),
        ("0.75", "0.75"),
        (".75", "0.75"),
        ("1.", "1"),
        ("1", "1"),
        (" 0.75\n", "0.75"),
        ("0.75000000", "0.75"),
        (Decimal("0.9999"), "0.9999"),
        (Decimal("1E-4"), "0.0001"),
    ],
)
def test_numbers_and_their_plain_spelling_are_read(given_value: Any, threshold: str) -> None:
    assert parse_threshold(given_value) == Decimal(threshold)


@pytest.mark.parametrize(
    "given_value",
    [
        None,
        True,
        False,
        [],
        [0.75],
        {},
        b"0.75",
        "",
        " ",
        ".",
        "abc",
        "0.75abc",
        "75%",
        "3/4",
        "0,75",
        "0.7.5",
        "7.5e-1",
        "1e0",
        "0x1",
        "0_1",
        "+0.75",
        "-0.75",
        "０.７５",
        "½",
        "0 .75",
        "nan",
        "NaN",
        "inf",
        "Infinity",
        float("nan"),
        float("inf"),
        -float("inf"),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        0,
        0.0,
        -0.0,
        "0",
        "0.0000",
        Decimal(0),
        -1,
        -0.5,
        "1.0001",
        1.0001,
        2,
        "75",
        "0.00001",
        "0.75001",
        0.123456,
        1e-300,
        Decimal("1E-999999"),
        "0." + "9" * 5_000,
        "9" * 5_000,
        10**5_000,
        complex(1),
    ],
    ids=lambda given_value: type(given_value).__name__,  # pytest cannot print the largest
)
def test_everything_else_is_refused(given_value: Any) -> None:
    with pytest.raises(InvalidValue, match="above 0 and at most 1, with at most 4 decimals"):
        parse_threshold(given_value)


@given(st.integers(1, 10_000))
def test_every_threshold_survives_float_text_and_decimal(ten_thousandths: int) -> None:
    threshold = Decimal(ten_thousandths) / 10_000

    read = [parse_threshold(float(threshold)), parse_threshold(f"{threshold:f}")]

    assert read == [threshold, threshold]


@given(st.one_of(st.text(), st.integers(), st.floats(), st.decimals(), st.booleans(), st.none()))
def test_whatever_is_given_it_is_a_threshold_in_range_or_a_refusal(given_value: Any) -> None:
    try:
        threshold = parse_threshold(given_value)
    except InvalidValue:
        return

    assert 0 < threshold <= 1
    assert threshold * 10_000 == int(threshold * 10_000)
