"""Any text is read, and says what it says."""

from hypothesis import example, given, strategies as st

from refine.rules.meaning import is_said, splitting
from refine.rules.meaning.words import clean, fold, stem
from tests.rules.meaning.judging import SHARE, updated

# What texts are made of, in many scripts, and characters that have caused trouble elsewhere.
PIECES = """
Anna Tomasz's ANNA anna Müller Mu\u0308ller McDonald iPhone B12 HTTP Will The likes 17 seventeen
١٧ 十七 २० 1,000.5 -5 0042 3/4/2026 2026-03-03 March may 3rd 24.12. 15:30 3pm +49-30-1234567
x@y.org https://x.org/a #tag @tom /etc/hosts "quoted "and" «цитата» 「引用」 田中さん 王先生
三月五日 김민수는 열두 명 Анна Иванова Γιώργος Ελένη أحمد וחמש צה"ל דנה Status: if never perhaps
राहुल कुछ जी คุณสมชาย İstanbul'da ışık straße ǅ ﬁ ß . , : today kg €20 init_db `make test`
' ’ “ ” — … ½ 10² 🦊 五万 million \u200b \u0301 e\u0301 \x00
"""

pieces = st.sampled_from(PIECES.split())
texts = st.one_of(
    st.text(max_size=60),
    st.lists(pieces, max_size=12).map(" ".join),
    st.lists(pieces, max_size=6).map("".join),
)


@given(texts)
@example("ア コー")
@example("B12 _ 1_000 5.00. d's")
def test_every_text_carries_itself(text):
    assert is_said(text, [text], SHARE)
    assert updated(text, text) == []


@given(texts)
@example("ΐ ᾳ ŉ ﬃ ẞ ǰ İ ı ſ K 𝐘 ㍺")
def test_folding_twice_changes_nothing_more(text):
    assert clean(clean(text)) == clean(text)
    assert fold(fold(text)) == fold(text)


def test_german_verbs_lose_the_ending_of_a_person():
    for verb, infinitive in {"malt": "malen", "klebt": "kleben", "tanzt": "tanzen"}.items():
        assert stem(verb, "de") == stem(infinitive, "de") != verb


def test_a_month_by_its_name_is_read_as_a_date():
    splitting._written_date.cache_clear()  # whichever test of this process asked first

    plain = splitting.with_plain_dates("They met on 3 March 2026.", "en")

    assert "March" not in plain
    assert "2026" in plain
