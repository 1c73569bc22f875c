"""Cells of CSV files, however a spreadsheet splits them."""

import csv
import io
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.web.csv_export import csv_line

SIGNS = "=+-@＝＋－＠"
SEPARATORS = ",;\t|\n\r"


def formulas(line: str) -> list[str]:
    """The cells that begin with a sign, for readers with and without quotes."""
    cells = [
        cell
        for separator in ",;\t|"
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE)
        for row in csv.reader(io.StringIO(line, newline=""), delimiter=separator, quoting=quoting)
        for cell in row
    ]
    return [cell for cell in cells if cell.lstrip(' "\u3000\ufeff').startswith(tuple(SIGNS))]


@given(st.lists(st.text(st.sampled_from(f"ax1 \"'\u3000\ufeff{SIGNS}{SEPARATORS}"), max_size=9)))
def test_no_cell_is_a_formula_whatever_separates_them(texts: list[str]) -> None:
    assert formulas(csv_line(texts)) == []


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("sign", SIGNS)
def test_a_sign_after_a_separator_is_guarded(sign: str, separator: str) -> None:
    for between in ("", " ", '"', "\u3000'"):
        (row,) = csv.reader([csv_line([f"x{separator}{between}{sign}1+1"])], strict=True)

        assert row == [f"x{separator}'{between}{sign}1+1"]


@pytest.mark.parametrize("text", ["x:=1+1", "x^=1", "x/=1", "x；＝1"])
def test_an_equals_sign_is_guarded_after_rarer_separators_too(text: str) -> None:
    assert csv_line([text]) == f'"{text[:2]}\'{text[2:]}"\r\n'


def test_every_field_is_quoted_and_figures_stay_figures() -> None:
    assert csv_line([-5, Decimal("-0.25"), None, 'a "b"']) == '"-5","-0.25","","a ""b"""\r\n'


def test_ordinary_text_is_left_as_it_is() -> None:
    for text in (
        "Mira - Tomasz",
        "a@example.org, b@example.org",
        "line\n\nline",
        "x=1; y",
        "tel:+49",
    ):
        assert next(csv.reader([csv_line([text])])) == [text]
