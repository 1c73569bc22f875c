"""What counts as a yes: the first word, whatever its case or decoration; nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.rules.consent import consents

decorations = st.text(
    st.sampled_from(" \n\t*_#>`\"'“”‘’«»()[].,:;!¡-–—…✅👍\u200b\ufeff"), max_size=6
)
spelled_yes = st.tuples(*(st.sampled_from([c, c.upper()]) for c in "yes")).map("".join)


@pytest.mark.parametrize(
    "reply",
    [
        "YES",
        "yes",
        "Yes",
        "yEs",
        "YES.",
        "Yes, please.",
        "Yes — go on",
        "yes\nNO",
        "  \n\nYES",
        "**Yes**,",
        "**YES**",
        "__Yes__",
        "*yes*: gladly",
        "# YES",
        "> Yes",
        "- yes",
        "`YES`",
        '"Yes"',
        "“Yes”",
        "‘yes’",
        "'YES'",
        "(yes)",
        "[YES]",
        "«Yes»",
        "✅ YES",
        "¡yes!",
        "...yes",
        "YES/NO",
        "\ufeffYes",
    ],
)
def test_yes_as_the_first_word_consents(reply: str) -> None:
    assert consents(reply)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        "",
        " ",
        "\n",
        "...",
        "✅",
        "👍",
        "NO",
        "No, yes",
        "no\nYES",
        "I say yes",
        "Well, yes",
        "The answer is YES",
        "Answer: YES",
        "1. YES",
        "1 YES",
        "Yesterday",
        "YESTERDAY I would have",
        "yess",
        "eyes",
        "yes2",
        "Yes-no",
        "YES-ish",
        "Yes'nt",
        "yes’nt",
        "Y",
        "Y.E.S.",
        "y e s",
        "Y-E-S",
        "yeah",
        "yep",
        "ok",
        "sure",
        "true",
        "oui",
        "Ja",
        "да",
        "ＹＥＳ",
        "уes",
        "yeſ",
        "<b>yes</b>",
        "<think>YES</think>",
        "not yes",
    ],
)
def test_anything_else_declines(reply: str | None) -> None:
    assert not consents(reply)


@given(decorations, spelled_yes, decorations, st.text())
def test_no_case_and_no_decoration_takes_a_yes_back(
    before: str, yes: str, after: str, rest: str
) -> None:
    assert consents(f"{before}{yes} {after} {rest}")


@given(decorations, st.text(st.characters(categories=["L", "N"]), min_size=1), st.text())
def test_no_other_first_word_consents(before: str, word: str, rest: str) -> None:
    is_yes = word.lower() == "yes"

    assert consents(f"{before}{word} {rest}") == is_yes
