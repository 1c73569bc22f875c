"""The threshold: above 0, at most 1, four decimals; nothing unreadable ever becomes 0."""

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from refine.errors import InvalidValue
from refine.rules.retention import parse_threshold
from tests.rules.refusing import cases, not_refused


def test_reads_numbers_and_their_plain_spelling() -> None:
    for value, threshold in (
        *((1, "1"), (1.0, "1"), ("1.", "1"), ("1", "1"), (0.75, "0.75"), ("0.75", "0.75")),
        *((".75", "0.75"), (" 0.75\n", "0.75"), ("0.75000000", "0.75"), (0.1, "0.1")),
        *((0.0001, "0.0001"), (Decimal("0.9999"), "0.9999"), (Decimal("1E-4"), "0.0001")),
    ):
        assert parse_threshold(value) == Decimal(threshold), value


def test_refuses_everything_else() -> None:
    no_numbers: list[Any] = [
        *(None, True, False, [], [0.75], {}, b"0.75", complex(1)),
        *cases(
            "| |.|abc|0.75abc|75%|3/4|0,75|0.7.5|7.5e-1|1e0|0x1|0_1|+0.75|-0.75|０.７５|½|0 .75"
        ),
        *cases("nan|NaN|inf|Infinity"),
        *(float("nan"), float("inf"), -float("inf")),
        *(Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity")),
    ]
    out_of_range: list[Any] = [
        *(0, 0.0, -0.0, "0", "0.0000", Decimal(0), -1, -0.5, "1.0001", 1.0001, 2, "75"),
        *("0.00001", "0.75001", 0.123456, 1e-300, Decimal("1E-999999")),
        *("0." + "9" * 5_000, "9" * 5_000, 10**5_000),
    ]

    refusal = "above 0 and at most 1, with at most 4 decimals"
    assert not_refused(parse_threshold, no_numbers + out_of_range, refusal) == []


@given(st.integers(1, 10_000))
def test_every_threshold_survives_float_text_and_decimal(ten_thousandths: int) -> None:
    threshold = Decimal(ten_thousandths) / 10_000

    assert parse_threshold(float(threshold)) == parse_threshold(f"{threshold:f}") == threshold


@given(st.one_of(st.text(), st.integers(), st.floats(), st.decimals(), st.booleans(), st.none()))
def test_accepted_thresholds_are_in_range(value: Any) -> None:
    try:
        threshold = parse_threshold(value)
    except InvalidValue:
        return

    assert 0 < threshold <= 1
    assert threshold * 10_000 == int(threshold * 10_000)
