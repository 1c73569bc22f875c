"""YES as the first word consents, whatever its case or decoration; nothing else does."""

from hypothesis import given
from hypothesis import strategies as st

from refine.rules.consent import consents
from tests.rules.refusing import cases

decorations = st.text(
    st.sampled_from(" \n\t*_#>`\"'“”‘’«»()[].,:;!¡-–—…✅👍\u200b\ufeff"), max_size=6
)
spellings = st.tuples(*(st.sampled_from([c, c.upper()]) for c in "yes")).map("".join)

CONSENTS = cases(
    "YES|yes|Yes|yEs|YES.|Yes, please.|Yes — go on|yes\nNO|  \n\nYES|**Yes**,|**YES**|__Yes__|"
    "*yes*: gladly|# YES|> Yes|- yes|`YES`|\"Yes\"|“Yes”|‘yes’|'YES'|(yes)|[YES]|«Yes»|✅ YES|"
    "¡yes!|...yes|YES/NO|\ufeffYes"
)
DECLINES = cases(
    "| |\n|...|✅|👍|NO|No, yes|no\nYES|I say yes|Well, yes|The answer is YES|Answer: YES|1. YES|"
    "1 YES|Yesterday|YESTERDAY I would have|yess|eyes|yes2|Yes-no|YES-ish|Yes'nt|yes’nt|Y|Y.E.S.|"
    "y e s|Y-E-S|yeah|yep|ok|sure|true|oui|Ja|да|ＹＥＳ|уes|yeſ|<b>yes</b>|"
    "<think>YES</think>|not yes"
)


def test_yes_as_the_first_word_consents() -> None:
    assert [reply for reply in CONSENTS if not consents(reply)] == []


def test_anything_else_declines() -> None:
    assert [reply for reply in [None, *DECLINES] if consents(reply)] == []


@given(decorations, spellings, decorations, st.text())
def test_case_and_decoration_do_not_matter(before: str, yes: str, after: str, rest: str) -> None:
    assert consents(f"{before}{yes} {after} {rest}")


@given(decorations, st.text(st.characters(categories=["L", "N"]), min_size=1), st.text())
def test_no_other_first_word_consents(before: str, word: str, rest: str) -> None:
    assert consents(f"{before}{word} {rest}") == (word.lower() == "yes")
