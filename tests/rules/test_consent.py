"""YES as the first word consents, whatever its case or decoration; nothing else does."""

import re

from hypothesis import assume, example, given
from hypothesis import strategies as st

from refine.rules.consent import consents, has_words, refuses
from tests.rules.refusing import cases

decorations = st.text(
    st.sampled_from(" \n\t*_#>`\"'“”‘’«»()[].,:;!¡-–—…✅👍\u200b\ufeff"), max_size=6
)
spellings = st.tuples(*(st.sampled_from([c, c.upper()]) for c in "yes")).map("".join)

CONSENTS = cases(
    "YES|yes|Yes|yEs|YES.|Yes, please.|Yes — go on|yes\nNO|  \n\nYES|**Yes**,|**YES**|__Yes__|"
    "*yes*: gladly|# YES|> Yes|- yes|`YES`|\"Yes\"|“Yes”|‘yes’|'YES'|(yes)|[YES]|«Yes»|✅ YES|"
    "¡yes!|...yes|\ufeffYes|Yes, no doubt|Yes, or not at all|YES/NO: YES|Yes or no? **Yes**|"
    '[YES]: yes|YES? YES.|"Yes?" Yes.|"YES to let them read?" YES|\'YES\': yes|YES vs. NO: YES|'
    "YES_NO: yes|YES (see below)|Yes [1]|Yes, 100% agreed|Yes: 3 pairs may be merged|"
    "☑ YES|YES ✅|Yes — no objections"
)
DECLINES = cases(
    "| |\n|...|✅|👍|NO|No, yes|no\nYES|I say yes|Well, yes|The answer is YES|Answer: YES|1. YES|"
    "1 YES|Yesterday|YESTERDAY I would have|yess|eyes|yes2|Yes-no|YES-ish|Yes'nt|yes’nt|Y|Y.E.S.|"
    "y e s|Y-E-S|yeah|yep|ok|sure|true|oui|Ja|да|ＹＥＳ|уes|yeſ|<b>yes</b>|"
    "<think>YES</think>|not yes|YES/NO|yes or no|Yes or no? NO.|**YES** or **NO**: NO|_yes_/_no_|"
    "[YES]: I refuse|(yes): no|[YES] : [NO]|Yes and no|**[YES]**: I refuse|# [YES]: I refuse|"
    "> [YES]: I refuse|\"YES\": I refuse|'YES': no|`YES`: no|“YES”: I refuse|«YES»: no|<YES>: no|"
    '# YES or NO?\nNO|> YES or NO?\n\nNO|"YES or NO?" NO|**YES or NO:** **NO**|YES/N: N|'
    "YES & NO|YES\\NO: NO|YES–NO: NO|YES_NO: NO|YES vs. NO: NO|YES versus NO? NO|Yes?|YES? NO.|"
    '**YES**? I refuse|"YES to let them read?" NO|“Yes, may they?” I refuse|'
    "[ ] YES [x] NO|- [ ] YES\n- [x] NO|( ) YES (x) NO|☐ YES ☑ NO|YES [ ] NO [x]|YES: ☐ NO: ☑|"
    "YES, NO: NO.|YES NO\nNO|YES NO\n\nNO|YES, NO. NO|Yes. No? No.|**YES** NO:\n**NO**|YES NO|"
    "YES: 0% NO: 100%|YES: 0\nNO: 10|YES = 0.1|YES 5% NO 95%|YES (0 %)|"
    "\"YES\" would be wrong. NO.|'Yes' is what you hope for; NO.|“Yes” cannot be my answer|"
    "~~YES~~ NO|~~**YES**~~|❌ YES|🚫 YES|YES ❌ NO ✅|YES 👎|≠ YES|¬YES|<!-- YES --> NO|<yes/>|"
    "YES\u20e0|YES\u0336|Y\u0336E\u0336S\u0336|YE\u0301S|Y\u200bES|ΥES|YЕS|YEЅ|𝐘𝐄𝐒|ⓎⒺⓈ|🇾🇪🇸|ʸᵉˢ|SƎY"
)


def test_yes_as_the_first_word_consents() -> None:
    assert [reply for reply in CONSENTS if not consents(reply)] == []


def test_anything_else_declines() -> None:
    assert [reply for reply in [None, *DECLINES] if consents(reply)] == []


def means_something(text: str) -> bool:
    """Whether more than decoration stands there: a box, a figure, or what follows a choice."""
    mark, box, figure = (
        r"[:?/\\|&☐□▢○◯⬜❌✗✘✖🚫⛔👎]",
        r"\[\s*\]|\(\s*\)",
        r"=[\W_]*\d|\d[\d.,]*\s*%",
    )
    return bool(re.search(rf"^[\W_]*(?:{mark}|{figure})|{box}", text))


plain = decorations.filter(lambda text: not means_something(text))
# without a question, which could quote the yes
rest = st.text(st.characters(exclude_characters="?")).filter(lambda text: not means_something(text))


def test_long_decoration_holds_no_answer_and_takes_no_time() -> None:
    assert consents(" " * 100_000 + "*" * 1_000 + "YES")
    for decoration in ("*", "(", "( ", '"', "[ ]", "yes or no "):
        assert not consents(decoration * 100_000 + "YES")
    assert not consents("*" * 1_997 + "YESTERDAY")
    assert not consents("*" * 1_998 + "YESTERDAY")
    assert consents("*" * 1_997 + "YES")
    assert not consents("*" * 1_998 + "YES")


@given(plain, spellings, plain, rest)
@example("", "yes", "=", "zero")
def test_case_and_decoration_do_not_matter(before: str, yes: str, after: str, rest: str) -> None:
    assume(not means_something(f"{after} {rest}"))
    assert consents(f"{before}{yes} {after} {rest}")


@given(decorations, st.text(st.characters(categories=["L", "N"]), min_size=1), st.text())
def test_no_other_first_word_consents(before: str, word: str, rest: str) -> None:
    assert consents(f"{before}{word} {rest}") == (word.lower() == "yes")


def test_a_reply_has_words_if_it_has_letters_outside_of_markup() -> None:
    with_words = cases("NO|non|Нет|不|はい|لا|ᴏᴋ|<NO>|</yes>|<b>no</b>|<think></think>x|&nbsp;y|é")
    without = cases(
        "| |\n|...|✅|👍🏽|**|# |42|1️⃣|___|<br/>|<think></think>|&nbsp;|&#8203;|\u200b|[ ]"
    )

    assert [reply for reply in with_words if not has_words(reply)] == []
    assert [reply for reply in [None, *without] if has_words(reply)] == []


def test_no_as_the_first_word_refuses() -> None:
    refusals = cases("NO|no.|**No**, thank you|<NO>|- no\nYES|NO!")
    others = cases("| |YES|Yes, no|Not yet|None|Nope|I say no|n o")

    assert [reply for reply in refusals if not refuses(reply)] == []
    assert [reply for reply in [None, *others] if refuses(reply)] == []
