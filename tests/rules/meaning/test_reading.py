"""Any text is read, and says what it says."""

import pytest
from hypothesis import example, given, strategies as st

from refine.rules.meaning import is_said, splitting
from refine.rules.meaning.reading import read
from refine.rules.meaning.words import clean, fold, rarity, stem
from tests.rules.meaning.judging import SHARE, ledger_of, updated

# What texts are made of, in many scripts, and characters that have caused trouble elsewhere.
PIECES = """
Anna Tomasz's ANNA anna Müller Mu\u0308ller McDonald iPhone B12 HTTP Will The likes 17 seventeen
١٧ 十七 २० 1,000.5 -5 0042 3/4/2026 3.12.26 2026-03-03 March may 3rd 24.12. 15:30 3pm +49-30-1234567
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


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("The tower is 5 m tall.", "length-meter"),
        ("Mira takes 5 mg of it daily.", "mass-milligram"),
        ("It took 5 years.", "duration-year-person"),
        ("$5 a month", "USD"),
        ("It cost €5", "EUR"),
        ("每次服用5毫克的药。", "mass-milligram"),
        ("每次服用5克的。", "mass-gram"),
        # neither metres nor inches
        ("We keep 5 mice there.", None),
        ("There are 5 in the box.", None),
    ],
)
def test_the_unit_of_a_number_stands_behind_it_or_as_a_sign_before_it(text, unit):
    assert read(text).units.get("#5") == (unit and {unit})


def test_a_unit_is_no_word_by_itself_and_what_follows_another_is():
    assert list(read("Rye 5 grams").words) == ["rye", "#5"]
    assert list(read("€5 bread and milk").words) == ["#5", "bread", "milk"]


@pytest.mark.parametrize(
    ("text", "others", "names"),
    [
        ("We slept. Bread was baked.", (), set()),
        ("BREAD is baked here.", (), set()),
        ("We saw the Mill there.", (), {"mill"}),
        ("Wir sahen den Zorbig dort.", (), set()),
        ("They wrote it for iPhone users.", (), {"iphon"}),
        ("We go with Bread there.", (), {"bread"}),
        ("McDonald is here.", (), {"mcdonald"}),
        ("Zorbia is here.", (), {"zorbia"}),
        ("We meet on Sunday with plan B.", (), set()),
        ("They work in IT now.", (), {"it"}),
        ("Bread is here.", ("we met Bread there",), {"bread"}),
        ("bread is here", ("we met Bread", "it was Bread"), {"bread"}),
        ("bread is here", ("we met Bread", "it was Bread", "no bread", "old bread"), set()),
    ],
)
def test_a_name_is_known_by_its_capitals(text, others, names):
    ledger = ledger_of(text, *others)

    assert ledger.names(ledger.read(text)) == names


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("He does not eat old green bread rolls.", {"eat", "old", "green", "bread"}),
        ("He eats bread, not tea, milk and rolls.", {"tea"}),
        ("He never sings. Tea is good.", {"sing"}),
    ],
)
def test_what_is_denied_are_four_words_behind_in_the_same_clause(text, denied):
    assert read(text).denied == denied


def test_a_german_negation_at_the_end_of_a_clause_closes_it():
    told = [
        list(read(f"Emil will {text}", "de").told["closing"])
        for text in ("das Haus nicht.", "das Haus nicht", "nicht das Haus.", "das Haus nie.")
    ]

    assert told == [["nicht"], ["nicht"], [], []]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("Buy tea and bread.", set()),
        ("Buy tea, milk, bread there.", set()),
        ("Buy tea, milk and rye bread.", {"tea", "milk", "rye"}),
        ("See old tea, rye milk and sour bread.", {"tea", "rye", "milk", "sour"}),
        ("See tea, cold wet old green brown wall, rye and soup.", {"tea", "rye", "soup"}),
        (
            "See tea, wet old green brown wall, and soup.",
            {"tea", "wet", "old", "green", "brown", "wall", "soup"},
        ),
        ("See tea, cold wet old green brown wall, and soup.", set()),
        ("See tea, it is, and bread.", set()),
    ],
)
def test_a_list_has_three_items_of_few_words_and_an_and(text, items):
    assert read(text).items == items


def test_characters_of_a_script_without_spaces_are_read_and_shown_in_pairs():
    reading = read("the tea, apple 高橋晴子")

    assert reading.as_written(["tea", "appl", "高橋", "橋晴", "子"]) == (
        "tea",
        "apple",
        "高橋晴",
        "子",
    )
    assert list(reading.beside.items()) == [
        *(("高橋", ("", "橋晴")), ("橋晴", ("高橋", "晴子")), ("晴子", ("橋晴", ""))),
    ]
    assert read("母").words == {"母": 0.5}


def test_a_day_of_the_week_weighs_as_much_as_a_date():
    assert read("We meet on Sunday.").words["#weekday 6"] == 1


def test_in_a_large_ledger_rare_words_and_numbers_keep_their_weight():
    few, many = ledger_of(*["violin 17"] * 19), ledger_of(*["violin 17"] * 20)
    reading = many.read("violin lantern 17")
    rare = {key: rarity(key, "en") for key in ("violin", "lantern")}

    assert few.weight(reading, "violin") == rare["violin"]
    assert many.weight(reading, "violin") < 0.05
    assert many.weight(reading, "lantern") == rare["lantern"]
    assert many.weight(reading, "#17") == 1


def test_the_nearest_memories_share_at_least_half_as_much_as_the_first():
    ledger = ledger_of("17 99 42 40", "17 99", "17")

    assert ledger.nearest_ids(ledger.read("17 99 42 40"), [], 5) == [0, 1]
