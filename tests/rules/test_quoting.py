"""What may quote a memory, and what may not."""

import json

import pytest

from refine.rules.quoting import may_quote

SENT = json.dumps(
    "Mira Solberg, 4711-0815.\nHarbour office opens 2024-08-06.\u0085Blue folder; an error in 1987."
)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "mira-solberg",
            "MIRA_SOLBERG",
            "MiraSolberg",
            "xMira",
            "x/4711-0815",
            "x/4711",
            "a_0815",
        ),
        *("harbour_x", "Harbour", "blue-folder", "x-1987", "gpt-2024-08-06", "gpt-20240806"),
    ],
)
def test_words_and_numbers_of_what_was_sent_may_quote_it(value: str) -> None:
    assert may_quote(value, SENT)


@pytest.mark.parametrize(
    "value",
    ["", "x", "gpt-4o", "gpt-2024-08-07", "gpt-2024", "an_in", "x-47-11", "rate_limit", "solbergs"],
)
def test_other_words_and_short_ones_do_not(value: str) -> None:
    assert not may_quote(value, SENT)


def test_known_words_do_not_count() -> None:
    assert may_quote("invalid_error", SENT)
    assert not may_quote("invalid_error", SENT, known={"error"})
    assert may_quote("mira_error", SENT, known={"error"})
