"""Numbers, dates, times, addresses and words have one key for all their writings."""

import pytest

from refine.rules.meaning.splitting import tokens_of, without_filler

# texts by their language, and the keys of their tokens, each with what else it mentions
KEYS = [
    ("en", "1,000,000 1.000.000 1'000 1 000", "#1000000 #1000000 #1000 #1000"),
    ("en", "1.5 1,5 .5 -5 −1,5 2.00 3rd 0042", "#1.5 #1.5 #0.5 #-5 #-1.5 #2 #3 #0042"),
    ("en", "1,000.50; 1.000,5", "#1000.50 #1000.5"),
    ("en", "two hens, one hen, twenty-one", "#2 hens one hen #21"),
    ("ru", "два кота, один, двадцать пять", "#2 кота один #25"),
    ("ja", "一人 二人 二十 十一 一二", "一人 #2 人 #20 #11 #12"),
    ("ja", "十二万 万五千 一億二千万 両 二〇二六", "#120000 #15000 #120000000 両 #2026"),
    ("zh", "两百", "#200"),
    ("ja", "2026年3月5日", "#2026-03-05|#--03|#--03-05|#2026|#2026-03|#2026-03-05"),
    ("ja", "3月5日 3月", "#--03-05|#--03|#--03-05 #--03|#--03"),
    ("en", "5 pm, 5:30 pm, 12 am, 12 pm, 17:05", "#17:00 #17:30 #0:00 #12:00 #17:05"),
    ("en", "17:00, 7 o'clock", "#17:00|#17|#17 #7:00|#7|#7"),
    ("en", "+49 30 1234567, 0049 (30) 1234567", "#49301234567 #49301234567"),
    ("en", "http://www.A.org/Map/x.", "@a.org/map/x|@a.org|@x"),
    ("ja", "「https://a.org/x」", "@a.org/x|@a.org|@x"),
    ("en", r"C:\temp\x", "@c:/temp/x|@c:|@x"),
    ("en", "2026-03", "#2026-03|#--03|#2026|#2026-03|#2026-03"),
    ("en", "2026-3-5", "#2026-03-05|#--03|#--03-05|#2026|#2026-03|#2026-03-05"),
    ("en", "--03 --03-05", "#--03|#--03 #--03-05|#--03|#--03-05"),
    ("en", "3/4/2026", "#3/4/2026|#2026-04-03|#2026-03-04"),
    ("en", "13/4/2026", "#2026-04-13|#--04|#--04-13|#2026|#2026-04|#2026-04-13"),
    ("en", "3.4.2026", "#2026-04-03|#--04|#--04-03|#2026|#2026-04|#2026-04-03"),
    ("de", "3/4/2026", "#2026-04-03|#--04|#--04-03|#2026|#2026-04|#2026-04-03"),
    (
        "en",
        "2026-13-30 2026-12-32 2026-00-01 2026-01-00",
        "#2026-13-30 #2026-12-32 #2026-00-01 #2026-01-00",
    ),
    ("de", "3.1.2026", "#2026-01-03|#--01|#--01-03|#2026|#2026-01|#2026-01-03"),
    ("en", "april", "#--04|#--04"),
    ("en", "March 1st, 2026", "#2026-03-01|#--03|#--03-01|#2026|#2026-03|#2026-03-01"),
    ("en", "31 March 2026", "#2026-03-31|#--03|#--03-31|#2026|#2026-03|#2026-03-31"),
    ("en", "the 3rd of May; may 5", "the #--05-03|#--05|#--05-03 #--05-05|#--05|#--05-05"),
    ("en", "March; march; May 2026", "#--03|#--03 march #2026-05|#--05|#2026|#2026-05|#2026-05"),
    ("en", "32 March; March 0", "#32 march march #0"),
    ("de", "im Mai; am 3. Mai", "im mai am #--05-03|#--05|#--05-03"),
    ("fr", "mars; mars 2020", "mars #2020-03|#--03|#2020|#2020-03|#2020-03"),
    ("en", "don't I've Anna's d'Anna O'Neill d's", "dont i anna anna neill d"),
    ("en", "K'iche rock'enrolla Al'Thor Qu'avant", "iche enrolla thor avant"),
    ("tr", "Ankara'da Ece'ninki Al'daki", "ankara ece al"),
]


@pytest.mark.parametrize(("language", "text", "keys"), KEYS)
def test_all_writings_have_one_key_and_mention_their_parts(language, text, keys):
    tokens = tokens_of(text, language)[1]

    assert " ".join("|".join((*each.keys, *each.says)) for each in tokens) == keys


def test_an_address_is_written_without_the_end_of_its_sentence():
    tokens = tokens_of("Anna: see example.org/map.", "en")[1]

    assert [each.written for each in tokens] == ["Anna", "see", "example.org/map"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Note that tea is good.", "tea is good."),
        ("The user said that he likes tea.", "he likes tea."),
        ("The user would like me to use hints.", "use hints."),
        ("I want you to remember: tea is good", "tea is good"),
        ("Status update: tea. Summary: milk", "· tea. · milk"),
        ("She never said that tea is good.", "She never said that tea is good."),
        ("Tea is, as Mira said, good.", "Tea is, as Mira said, good."),
        ("Tea: good", "Tea: good"),
        ("That is, he said that", "That is, he said that"),
    ],
)
def test_an_opening_that_says_nothing_is_passed_over(text, left):
    assert without_filler(text, "en", "").strip() == left


def test_phrases_that_say_nothing_are_passed_over():
    assert without_filler("彼は医者だと言っていました。", "en", "ja") == "彼は医者だ 。"
    assert without_filler("Tea in general", "en", "").split() == ["Tea"]
    assert without_filler("Tea within generals", "en", "") == "Tea within generals"
