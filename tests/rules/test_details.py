"""What a text says is found, and found again in another text; for any text, in linear time."""

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refine.rules.details import carries, likeness, mentions, read
from refine.rules.details.folding import clean, fold

# What texts are made of, in many scripts, and characters that have caused trouble elsewhere.
PIECES = """
Anna Tomasz's ANNA anna Müller Mu\u0308ller McDonald iPhone B12 HTTP Will The likes 17 seventeen
١٧ 十七 २० 1,000.5 -5 0042 3/4/2026 2026-03-03 March may 3rd 24.12. 15:30 3pm +49-30-1234567
x@y.org https://x.org/a #tag @tom /etc/hosts "quoted "and" «цитата» 「引用」 田中さん 王先生
三月五日 김민수는 열두 명 Анна Иванова Γιώργος Ελένη أحمد וחמש צה"ל דנה
राहुल कुछ जी คุณสมชาย İstanbul'da ışık straße ǅ ﬁ ß . , :
' ’ “ ” — … ½ 10² 🦊 五万 million \u200b \u0301 e\u0301 \ud800 \x00
"""
ENGLISH = "Anna Tomasz likes bread 17 seventeen March 3rd, 2026 Berlin B12 and"
# Uppercase letters that lower-case letters do not come back from, or the reverse.
CASED = "Анна Γιώργος Ελένη Müller Straße Łódź ışık Zoë x@y.org https://x.org/a May 3pm Sunday"

pieces = st.sampled_from(PIECES.split())
texts = st.one_of(
    st.text(max_size=60),
    st.lists(pieces, max_size=12).map(" ".join),
    st.lists(pieces, max_size=6).map("".join),
)
english = st.lists(st.sampled_from(ENGLISH.split()), max_size=12).map(" ".join)
cased = english | st.lists(st.sampled_from(CASED.split())).map(" ".join)


@given(texts)
@example("ア コー")
@example("コー コー")
def test_a_text_carries_all_of_its_own_details(text: str) -> None:
    reading = read(text)

    assert [key for key in reading.details if not carries(reading, key, reading)] == []


@given(texts)
@example("ΐ ᾳ ŉ ﬃ ẞ ǰ İ ı ſ K 𝐘 ㍺")
def test_folding_twice_changes_nothing_more(text: str) -> None:
    assert clean(clean(text)) == clean(text)
    assert fold(fold(text)) == fold(text)


@given(cased)
def test_the_case_of_the_other_text_does_not_matter(text: str) -> None:
    original = read(text)

    for other in (read(text.upper()), read(text.lower())):
        assert [key for key in original.details if not mentions(other, key)] == []


@given(texts, texts)
def test_likeness_is_a_share(text: str, other: str) -> None:
    assert 0 <= likeness(read(text), read(other)) <= 1
    assert likeness(read(text), read(text)) == 1


def test_likeness_is_the_share_of_the_original_s_words() -> None:
    original = read("she likes quiet mornings")

    assert likeness(original, read("quiet mornings and evenings")) == Decimal("0.5")
    assert likeness(read("…"), original) == 1
    assert likeness(read("静かな朝"), read("静かな夜")) == Decimal(2) / 3


@pytest.mark.parametrize(
    ("text", "key", "written"),
    [
        ("Call +49 30 1234567", "number:49301234567", "+49 30 1234567"),
        ("Call 0049 (30) 1234567", "number:49301234567", "0049 (30) 1234567"),
        ("appelle le 06 12 34 56 78", "number:0612345678", "06 12 34 56 78"),
        ("on Sept. 3 we met", "date:09-03", "Sept. 3"),
        ("a 1.234.567,89 b", "number:1234567.89", "1.234.567,89"),
        ("a 12 500 b", "number:12500", "12 500"),
        ("a 1'000 b", "number:1000", "1'000"),
        ("it cost 5.00", "number:5", "5.00"),
        ("it was 0.5", "number:0.5", "0.5"),
        ("it was .5", "number:0.5", ".5"),
        ("it was –5", "number:-5", "–5"),
        ("a 1½ b", "number:1/2|date:01-02|date:02-01", "1/2"),
        ("twenty zero", "number:20", "twenty"),
        ("2.12.1 million", "number:2.12.1", "2.12.1 million"),
        ("三月五日", "date:03-05", "三月五日"),
        ("二〇二六年三月", "date:2026-03", "二〇二六年三月"),
        ("一百二十人", "number:120", "一百二十"),
        ("має п’ять книг", "number:5", "п’ять"),
        ("am 24.12. kommt", "number:24.12|date:12-24", "24.12"),
        ("about 20k people", "number:20000", "20k"),
        ("about 1.5 million people", "number:1500000", "1.5 million"),
        ("two hundred and seventeen", "number:217", "two hundred and seventeen"),
        ("two thousand three hundred", "number:2300", "two thousand three hundred"),
        ("soixante-douze", "number:72", "soixante-douze"),
        ("خمسة وعشرون كتابا", "number:25", "خمسة وعشرون"),
        ("minus five degrees", "number:-5", "minus five"),
        ("5万円です", "number:50000", "5万"),
        ("三万二千人", "number:32000", "三万二千"),
        ("二〇二六年", "number:2026", "二〇二六"),
        ("스무 살", "number:20", "스무"),
        ("스물한 살", "number:21", "스물한"),
        ("on 3 May 2026", "date:2026-05-03", "3 May 2026"),
        ("on the third of May", "date:05-03", "third of May"),
        ("in May 2026", "date:2026-05", "May 2026"),
        ("in October", "month:10", "October"),
        ("el 5 de mayo de 1990", "date:1990-05-05", "5 de mayo de 1990"),
        ("am 3.4.26", "date:2026-04-03", "3.4.26"),
        ("am 3.4.85", "date:1985-04-03", "3.4.85"),
        ("on 13/4/2026", "date:2026-04-13", "13/4/2026"),
        ("on 4/13/2026", "date:2026-04-13", "4/13/2026"),
        ("version 2.50.12", "number:2.50.12", "2.50.12"),
        ("on 2026-13-01", "number:2026-13-01", "2026-13-01"),
        ("on 2026-03-03T15:30", "time:15:30", "15:30"),
        ("2026년 3월", "date:2026-03", "2026년 3월"),
        ("99月", "number:99月", "99月"),
        ("at 12:30 am", "time:0:30", "12:30 am"),
        ("at 3:30", "time:3:30|clock:3:30", "3:30"),
        ("at noon", "time:12:00", "noon"),
        ("午前3時", "time:3:00", "3時"),
        ("at 7 o'clock", "time:7:00|clock:7:00|number:7", "7 o'clock"),
        ("이름은 초코입니다", "text:초코", "초코"),
        ("他叫欧阳锋。", "text:欧阳锋", "欧阳锋"),
        ("妹のさくらは", "text:さくら", "さくら"),
        ("朝3時15分", "time:3:15|clock:3:15", "3時15分"),
        ("下午三点", "time:15:00", "三点"),
        ("下午3点半", "time:15:30", "3点半"),
        ("周三见", "weekday:3", "周三"),
        ("see www.example.com/a.", "address:example.com/a", "www.example.com/a"),
        ("see anna.example now.", "address:anna.example", "anna.example"),
        ("see docs/a/b now", "address:docs/a/b", "docs/a/b"),
        ("see C:\\notes\\a.txt", "address:c:/notes/a.txt", "C:\\notes\\a.txt"),
        ("Will's bike", "head:will", "Will's"),
        ("Ted called about the boat", "head:ted", "Ted"),
        ("Nell is my sister", "head:nell", "Nell"),
        ("My brother (Ned) likes tea.", "head:ned", "Ned"),
        ("It was fun! Christian laughed.", "head:christian", "Christian"),
        ("see Dr. May now", "name:may", "May"),
        ("the US flag", "name:us", "US"),
        ("we met J. Smith", "name:j", "J"),
        ("use snake123", "name:snake123", "snake123"),
        ("היא בצה״ל", "name:בצהל", "בצה״ל"),
        ("אני בשם כהן", "name:כהן", "כהן"),
        ("वर्मा जी", "name:वर्मा", "वर्मा"),
        ("張先生也來", "text:張先生", "張先生"),
        ("欧阳先生也来", "text:欧阳", "欧阳"),
        ("昨日長谷川様と森様", "text:長谷川", "長谷川"),
        ("今朝田中様が", "text:田中", "田中"),
        ("小明喜欢茶", "text:小明", "小明"),
        ("I love 寿司 a lot", "text:寿司", "寿司"),
        ("a Greek word, λόγος", "name:λογοσ", "λόγος"),
        ("он пишет на python каждый день", "name:python", "python"),
        ("他用python写", "name:python", "python"),
    ],
)
def test_a_detail_is_found_as_it_is_written(text: str, key: str, written: str) -> None:
    assert read(text).details.get(key) == written


@pytest.mark.parametrize(
    "text",
    [
        "5 kg",
        "She will come. It is late. I'm glad.",
        "一起三明治",
        "高兴的是",
        "one of them, once or twice",
        "Don't forget the milk",
        "Una amiga vive en el campo",
        "we may march on",
        "and/or, he/she",
        "at the end.The boat",
        "it was e.g. red",
        "Mr. and Mrs.",
        "YESTERDAY WE WALKED",
        "//",
        "cd /.. now",
        "お母さんもたくさん",
        "#",
        "体重5kg",
        "er ist in der Woche jeden Tag und das ganze Jahr",
    ],
)
def test_ordinary_words_are_no_names(text: str) -> None:
    assert [key for key in read(text).details if not key.startswith("number:5")] == []


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("name:anna", "Tomasz i Annika"),
        ("name:hans", "Hanse"),
        ("head:simon", "the simone and her"),
        ("date:3/4/2026|date:2026-04-03|date:2026-03-04", "on 5/4/2026"),
        ("name:иван", "Это Иванов"),
        ("head:goes", "the man is going there"),
        ("number:17", "on 2026-03-17"),
        ("time:15:00", "at 3 am"),
        ("time:3:00", "at 3 pm"),
        ("date:04-03", "on 3/4"),
        ("name:ян", "Яна Иванова"[5:]),
    ],
)
def test_other_names_and_dates_are_not_the_same(key: str, text: str) -> None:
    assert not mentions(read(text), key)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("name:tomasz", "Lubi spacery z Tomaszem"),
        ("name:marek", "To jest dom Marka"),
        ("name:анна", "книга Анне"),
        ("name:γιωργοσ", "του Γιώργου"),
        ("name:احمد", "كتاب لأحمد"),
        ("name:hund", "die Hunden und"),
        ("name:ankara", "Ankara'da"),
        ("name:שרה", "לשרה"),
        ("head:bakes", "she is baking bread for the children"),
        ("head:hurries", "the man hurried and is tired"),
        ("head:stopped", "she stops and the man"),
        ("date:3/4/2026|date:2026-04-03|date:2026-03-04", "on 3 April 2026"),
        ("number:3/4", "3/4 of it"),
        ("time:6:00|number:6", "um sechs Uhr"),
        ("number:6", "um 6 Uhr"),
        ("weekday:2", "on Tue"),
        ("weekday:1", "from Mon to Fri"),
        ("weekday:7", "on sun and mon"),
        ("address:example.com", "https://example.com/a/b.html"),
        ("quote:see you", "he said: See  you!"),
        ("quote:你 好吗", "他说「你，好吗」"),
        ("text:アン", "アン・シャーリー"),
    ],
)
def test_other_writings_are_the_same(key: str, text: str) -> None:
    assert mentions(read(text), key)


def test_a_number_elsewhere_does_not_carry_this_number() -> None:
    original = read("Anna's cat had 17 kittens in the barn")

    assert not carries(read("the bus number is 17"), "number:17", original)
    assert carries(read("17 kittens, one cat"), "number:17", original)
    assert carries(read("Anna and 17"), "number:17", original)


def test_a_quotation_is_no_second_detail_beside_the_name_in_it() -> None:
    original = read("the book of the summer was “Dune”")

    assert not carries(read("a long walk over the dune"), "head:dune", original)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('She said "—" and left.', []),
        ("他有一二三四五六七八九一二三四五六七八个苹果。", []),
        ("We met on 3 | May 2024.", ["number:3", "date:2024-05"]),
        ("We met on May 3\n2024 people came.", ["date:05-03", "number:2024"]),
    ],
)
def test_what_only_looks_like_a_detail_is_none(text: str, keys: list[str]) -> None:
    assert list(read(text).details) == keys


def test_where_a_text_says_nothing_else_the_detail_alone_will_do() -> None:
    assert carries(read("it was 17"), "number:17", read("17"))
    assert carries(read("it is 17 now"), "number:17", read("it is 17"))
    assert not carries(read("he wrote 17"), "number:17", read("it is 17"))
