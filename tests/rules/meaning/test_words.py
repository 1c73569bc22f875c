"""Words: in which writing, language and form, how rare, and what they name."""

import pytest

from refine.rules.meaning.words import (
    clean,
    fold,
    guess_language,
    is_misspelling,
    is_noun,
    language_of,
    months,
    rarity,
    script_of,
    stem,
    units,
    weekdays,
)


def test_signs_that_look_alike_or_are_not_seen_are_the_same():
    written = {"1½": "1 1/2", "10²": "10^2", "a\u200bb": "ab", "ﬁ": "fi", "שָׁלוֹם": "שלום"}
    folded = {"Γιώργος": "γιωργοσ", "ΣΟΦΊΑ": "σοφια", "İ": "i", "Ёж": "еж", "أحمد": "احمد"}

    assert {text: clean(text) for text in written} == written
    assert {word: fold(word) for word in folded} == folded


def test_the_language_of_a_text_is_that_of_most_of_its_words():
    assert language_of("Die Häuser sind rot") == "de"
    assert language_of("Mira", "fr") == "fr"
    # words of English and German
    assert guess_language(["in", "so"], "de") == "de"
    assert guess_language(["in", "so", "was"], "de") == "en"
    assert [script_of(text) for text in ("ひ漢", "한국", "汉字", "a")] == ["ja", "ko", "zh", ""]


@pytest.mark.parametrize(
    ("word", "other", "expected"),
    [
        ("teh", "the", True),
        ("usr", "user", True),
        ("spaecs", "spaces", True),
        ("spoecs", "spaces", False),
        ("repozitorry", "repository", True),
        ("piqtyre", "picture", True),
        ("repozitorryx", "repository", False),
        ("form", "from", False),
        ("kat", "cat", False),
        ("hte", "the", False),
        ("o", "of", False),
        ("house", "horse", False),
        ("zzzzbia", "zzzzbio", False),
        ("neighbor", "neighbour", False),
        ("spa1ces", "spaces", False),
    ],
)
def test_a_misspelling_is_rare_and_much_like_a_word_that_is_not(word, other, expected):
    assert is_misspelling(word, other, "en") == expected
    assert is_misspelling(other, word, "en") == expected


def test_a_word_weighs_as_much_as_it_is_rare():
    words = "the", "é", "don't", "time", "house", "lantern", "zorbia"
    weights = [rarity(word, "en") for word in words]

    assert weights == sorted(weights)
    assert weights[:4] == [0] * 4
    assert 0 < weights[4] < 0.1
    assert 0.5 < weights[5] < 0.7
    assert weights[6] == 1
    assert rarity("lantern's", "en") == weights[5]
    # an English word weighs a little more in another language
    assert rarity("deployment", "de") == pytest.approx(rarity("deployment", "en") + 0.25)


def test_forms_and_synonyms_have_one_stem():
    alike = {"anna's": "anna", "broke": "breaking", "repo": "repositories", "motorway": "highways"}

    assert {word: stem(word, "en") for word in alike} == {
        word: stem(other, "en") for word, other in alike.items()
    }
    assert [stem(word, "de") for word in ("stadt", "warm", "init_db")] == [
        "stadt",
        "warm",
        "init_db",
    ]
    assert stem("malt", "en") == "malt"
    nouns = ("haus", "de"), ("firma", "de"), ("peter", "de"), ("haus", "en")
    assert [is_noun(*each) for each in nouns] == [True, True, False, False]


def test_months_days_and_units_are_known_by_their_names_and_signs():
    known = {"kilograms": "mass-kilogram", "kg": "mass-kilogram", "€": "EUR", "euros": "EUR"}
    known |= {
        "eur": "EUR",
        "euro": "EUR",
        "dollars": "USD",
        "m": "length-meter",
        "minute": "duration-minute",
    }

    assert {name: units("en")[name] for name in known} == known
    assert {"sept": 9, "may": 5, "december": 12}.items() <= months("en").items()
    assert len(months("en")) == 24
    assert months("hi")["मई"] == 5
    assert "b" not in units("en")
    assert {"monday": 0, "sundays": 6}.items() <= weekdays("en").items()
    assert months("ja").keys() == months("en").keys()
