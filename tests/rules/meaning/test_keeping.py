"""What an edit leaves out: of each memory, one other must carry all that matters."""

from decimal import Decimal

import pytest

from refine.rules.meaning import (
    Objection,
    details_lost,
    is_said,
    likely_carriers,
    memories_worn,
    objections,
    refusal,
    speak_of_the_same,
)
from tests.rules.meaning.judging import SHARE, deleted, kinds, ledger_of, merged, updated

TOWER = "The tower at Kastell has 17 steps and a green door"

# a text, and another that says the same in another writing
SAME = [
    (TOWER, "Green is the door of the tower at KASTELL, seventeen steps up"),
    ("Mira moved on 3 March 2026.", "Mira moved on 2026-03-03."),
    ("Mira moved on March 3rd, 2026.", "Mira moved on 3.3.2026."),
    ("Mira moved on 3/4/2026.", "Mira moved on 3 April 2026."),
    ("Mira moved on 3.3.26.", "Mira moved on 3 March 2026."),
    ("Mira moved on 3.12.26.", "Mira moved on 3 December 2026."),
    ("Mira moved on 12/3/26.", "Mira moved on 3 December 2026."),
    ("Mira moved on 31-12-69.", "Mira moved on 31 December 2069."),
    ("Mira moved on 31-12-70.", "Mira moved on 31 December 1970."),
    ("Mira comes on Sept. 3.", "Mira comes on the third of September."),
    ("Mira was born in May 1990.", "Mira was born in 1990-05."),
    ("The bus leaves at 5 pm.", "The bus leaves at 17:00."),
    ("The bus leaves at 7 o'clock.", "The bus leaves at 7:00."),
    ("The bus leaves at 7:15 a.m.", "The bus leaves at 7:15."),
    ("The house cost 1,000,000 euros.", "The house cost 1.000.000 €."),
    ("The house cost 20,000 dollars.", "The house cost $20,000."),
    ("Mira feeds twenty-one hens.", "Mira feeds 21 hens."),
    ("The parcel weighs 2.50 kg.", "The parcel weighs 2,50 kilograms."),
    ("The temperature was -5 at dawn.", "The temperature was −5 at dawn."),
    ("Mira waters it twice a week.", "Mira waters it two times a week."),
    ("Call Mira at +49 30 1234567.", "Call Mira at 0049 (30) 1234567."),
    ("See https://www.example.org/map.", "See example.org/map"),
    ('Mira said "bread before books".', "Mira said “Bread before books”."),
    ("We meet on Sundays at the mill.", "We meet on Sunday at the mill."),
    ("The usr prefers tabs over spaecs.", "The user prefers tabs over spaces."),
    ("Mira broke her arm and slept badly.", "Mira breaks her arm and sleeps badly."),
    ("Mira wrote to the repository.", "Mira wrote to the repo."),
    ("Mira (person): likes quiet mornings", "Mira likes quiet mornings"),
    ("Status: Migrated the tests to pytest.", "Migrated the tests to pytest."),
    ("Siebzehn Stufen hat der Turm in der Burg.", "17 Stufen hat der Turm in der Burg."),
    ("Elle a vu le chat le 4 mai 1990 à 15h30.", "Elle a vu le chat le 4.5.1990 à 15:30."),
    ("Ella vive en la casa desde mayo de 1990.", "Ella vive en la casa desde 1990-05."),
    ("У нас двадцать пять книг и семь котов.", "У нас 25 книг и 7 котов."),
    ("Lubi spacery z Tomaszem i jego psem.", "Lubi spacery z Tomasz i jego psem."),
    ("二〇二六年三月三日に会った。", "2026年3月3日に会った。"),
    ("彼は五万円を払った。", "彼は50000円を払った。"),
    ("彼は三万二千人に会った。", "彼は32000人に会った。"),
    ("彼は二百三十一冊の本を持つ。", "彼は231冊の本を持つ。"),
    ("彼は千二百人に会った。", "彼は1200人に会った。"),
    ("2026년 3월에 만났다", "2026-03 에 만났다"),
    ("She lives on the twelfth floor.", "She lives on the 12th floor."),
    ("Marek má psa a bydlí v Brně.", "Marek bydlí v Brně a má psa."),
    ("Ankara'da bir ev var.", "Ankara bir ev var."),
    ("Ben Ankara'dan geldim ve bir ev var.", "Ben Ankara geldim ve bir ev var."),
    ("一人で三人に会った。", "一人で3人に会った。"),
    ("It is Will.", "He saw Will."),
    ('He said "—" and went to the mill.', "He said … and went to the mill."),
    ("ولد في ١٩٩٠ في القاهرة", "ولد في 1990 في القاهرة"),
    ("Γιώργος έχει εφτά γάτες", "Γιώργος έχει 7 γάτες"),
    ("It is worth noting that Mira keeps bees.", "Mira keeps bees."),
    ("The user would like me to use hints in Python.", "Use hints in Python."),
    ("Note to self: as of now Mira keeps bees.", "Mira keeps bees."),
    ("Es ist wichtig zu wissen, dass Ute Bienen hält.", "Ute hält Bienen."),
    ("Résumé : la migration est terminée.", "La migration est terminée."),
    ("メモ：ビルドは夜中に走る。", "要約：ビルドは夜中に走る。"),
    ("Mira is scared of planes.", "Mira is afraid of planes."),
    ("Ute trank den Tee im Garten.", "Ute trinkt den Tee im Garten."),
    ("Mark goes running on the highway.", "Mark runs on the motorway."),
    ("毎朝、浩は犬の散歩をする。", "浩は毎朝犬の散歩をする。"),
    ("Dana never eats nuts.", "Dana never eats nuts in spring."),
    ("娘は海老を食べられない。", "娘は海老を食べられない。医者が言った。"),
    ("Mira (person): likes mornings", "Mira (friend): likes mornings in spring"),
]


@pytest.mark.parametrize(("text", "other"), SAME, ids=lambda each: each)
def test_a_memory_may_go_where_another_says_it_in_another_writing(text: str, other: str) -> None:
    assert deleted(text, other) == []


# a text, what is kept of it, the objection, and what it is about
LOST = [
    (TOWER, "The tower at Kastell has steps and a green door", "detail", ["17"]),
    (TOWER, "The tower at Kastell has 18 steps and a green door", "detail", ["17"]),
    (TOWER, "The tower in the town has 17 steps and a green door", "name", ["Kastell"]),
    ("Mira moved on 3 March 2026.", "Mira moved in March 2026.", "detail", ["2026-03-03"]),
    ("The bus leaves at 7 pm.", "The bus leaves at 7 am.", "detail", ["7 pm"]),
    ("The bus leaves at 7:15.", "The bus leaves at 7:00.", "detail", ["7:15"]),
    ("Takes 50 micrograms of it.", "Takes 50 milligrams of it.", "unit", ["50"]),
    ("The boat is 12 metres long.", "The boat is 12 long.", "unit", ["12"]),
    ("Mira owes him 300 euros.", "Mira owes him 300 dollars.", "unit", ["300"]),
    ('He said: "I felt so alone"', "He said he felt alone.", "detail", ["I felt so alone"]),
    ("Write to m@example.org about it.", "Write to her about it.", "detail", ["m@example.org"]),
    ("The wifi key is kHb7Qz", "The wifi key is now kHB7qz", "code", ["kHb7Qz"]),
    ("Run `make test` first.", "Run it first, make a test.", "code", ["make test"]),
    ("Use the plug B12 for it.", "Use the plug for it.", "code", ["B12"]),
    ("It needs leeks, barley, thyme and salt.", "It needs leeks, barley, salt.", "list", ["thyme"]),
    ("Mira (person): likes quiet mornings", "Oskar likes quiet mornings", "name", ["mira"]),
    ("Mira waits on Sundays at the mill.", "Mira waits at the mill.", "detail", ["Sundays"]),
    ("Aunt Katja: promised to water.", "Aunt: promised to water.", "name", ["Katja"]),
    ("Katja promised to water them.", "She promised to water them.", "name", ["Katja"]),
    ("Der Turm bei Kastell hat eine Tür.", "Der Turm hat eine Tür.", "name", ["Kastell"]),
]


@pytest.mark.parametrize(("text", "left", "kind", "words"), LOST)
def test_a_detail_that_no_memory_says_is_named(
    text: str, left: str, kind: str, words: list[str]
) -> None:
    found = {each.kind: each for each in updated(text, left)}

    assert found[kind].words == tuple(words)
    assert found[kind].memory_id == 0
    assert deleted(text, left) != []


def test_what_is_said_stands_in_one_memory_and_not_in_two() -> None:
    halves = "the violin and the lantern", "the harbour and the orchard"

    assert deleted("violin, lantern, harbour, orchard", *halves)
    assert deleted("violin, lantern", *halves) == []


def test_a_refusal_names_the_missing_words_and_their_number() -> None:
    text = "the violin, lantern, harbour, orchard, meadow; walnut; chimney"

    (found,) = updated(text, "violin; lantern; walnut; chimney")

    assert (found.kind, found.needed, found.is_sure) == ("words", 2, False)
    assert set(found.words) == {"harbour", "orchard", "meadow"}
    assert "add 2 of " in str(found)


def test_a_deletion_needs_more_of_the_words_than_an_update() -> None:
    text, left = "the violin of the lantern harbour orchard likes", "violin lantern harbour"

    assert kinds(deleted(text, left)) == {"words"}
    assert kinds(updated(text, left)) == {"words"}
    assert updated(text, left, share=Decimal(1))
    assert updated("violin, lantern, harbour, orchard", "violin, lantern, harbour") == []
    assert deleted("violin, lantern, harbour, orchard", "violin, lantern, harbour") != []


def test_a_memory_that_denies_does_not_carry_one_that_does_not() -> None:
    assert "negation" in kinds(
        deleted("Dana eats nuts in spring", "Dana never eats nuts in spring")
    )
    assert "negation" in kinds(deleted("Dana never eats nuts", "Dana eats nuts in spring"))
    assert "negation" in kinds(deleted("仓库是允许的，请继续", "仓库是不允许的，请继续"))
    assert "negation" in kinds(deleted("Emil bereut den Verkauf", "Emil bereut den Verkauf nicht"))
    assert "negation" in kinds(deleted("Emil bereut den Verkauf nicht", "Emil bereut den Verkauf"))
    assert deleted("Dana eats nuts", "Dana eats nuts, and Tom does not sing") == []


def test_without_a_related_memory_everything_is_lost() -> None:
    (found,) = deleted(TOWER, "Mira drinks tea", "the frog is green")

    assert found == Objection("nothing", ("17", "Kastell"), 0)
    assert str(found).startswith("no other memory says what #0 says: leave it")
    assert details_lost([found]) == 2


def test_a_text_that_says_nothing_may_go() -> None:
    assert deleted("…") == []
    assert deleted("...", "Mira drinks tea") == []
    assert deleted("it is what it was") == []
    for told in ("It is Will", "`it is`", "“it is”"):
        assert kinds(deleted(told, "Tom is here")) == {"nothing"}, told


def test_a_text_of_signs_is_carried_by_the_same_signs() -> None:
    assert is_said("🔑🏠", ["Mira", "🔑🏠"], SHARE)
    assert kinds(deleted("🔑🏠", "Mira has the 🏠")) == {"nothing"}


def test_words_of_a_ledger_weigh_less_the_more_memories_have_them() -> None:
    many = [f"the violin lesson number {number}" for number in range(40)]
    text = "violin lantern harbour"

    assert updated(text, "lantern harbour", *many) == []
    assert kinds(updated(text, "violin harbour", *many)) == {"words"}
    assert updated(text, "violin harbour", *many[:3]) == updated(text, "violin harbour")


def test_a_name_is_known_by_its_capital_elsewhere_in_the_ledger() -> None:
    text, left = "mira likes the old mill", "she likes the old mill"
    others = ["we saw Mira there", "the bread is for Mira now"]

    assert "name" in kinds(updated(text, left, *others))
    assert "name" not in kinds(updated(text, left))


def test_earlier_texts_count_if_a_memory_still_carries_them() -> None:
    text = "The tower at Kastell has 17 steps"

    (found,) = updated(text, "The tower at Kastell has steps", own=[0], originals=[TOWER, text])

    assert found == Objection("detail", ("17",), 0, earlier=text)
    assert updated(text, f"{text}!", originals=["Mira drinks green tea", TOWER]) == []


def test_a_session_may_restore_the_earlier_text() -> None:
    before, own = "the old violin by the harbour", "the violin by the harbour"

    assert kinds(updated(own, before)) == {"words added"}
    assert updated(own, before, own=[0], originals=[before]) == []


def test_a_ledger_follows_its_memories() -> None:
    ledger = ledger_of(TOWER, "Mira drinks tea")

    ledger.keep_only({1: "Mira drinks coffee", 2: TOWER})
    ledger.keep_only({1: "Mira drinks coffee", 2: TOWER})
    ledger.drop(9)

    assert set(ledger.texts) == {1, 2}
    assert ledger.nearest_ids(ledger.read("green tea"), [], 5) == [2]
    assert ledger.nearest_ids(ledger.read(TOWER), [], 5) == [2]
    assert ledger.read(TOWER) is ledger.read(TOWER)


def test_of_memories_with_all_of_its_words_the_newest_are_nearest() -> None:
    alike = ledger_of(TOWER, f"{TOWER}!", f"{TOWER}?", "The tower", f"{TOWER}…")

    for limit, nearest in ((2, [4, 1]), (3, [4, 1, 0]), (4, [4, 1, 0])):
        assert alike.nearest_ids(alike.read(TOWER), {2}, limit)[:3] == nearest


def test_one_text_or_none_says_what_another_said() -> None:
    assert is_said(TOWER, ["Mira drinks tea", f"{TOWER}!"], SHARE)
    assert not is_said(TOWER, ["Mira drinks tea", "The tower has a green door"], SHARE)
    assert not is_said(TOWER, [], SHARE)


def test_a_refusal_names_all_objections_and_the_remedy() -> None:
    found = merged(
        [TOWER, "Mira never drinks tea in May"], "The tower has 17 steps and a door; tea"
    )

    told = refusal(found)

    assert '#0 would lose "Kastell": add it' in told
    assert '#1 would lose "May": add it' in told
    assert 'too little of #1 would remain in one memory: add 1 of "Mira", "drinks"' in told
    assert 'what is denied would change, at "never": deny what was denied' in told
    assert "add" not in refusal(found, is_deletion=True)
    assert 'too little of #1 would remain in one memory, without "Mira"' in refusal(
        found, is_deletion=True
    )
    assert details_lost(found) == 2


def test_a_refusal_tells_of_each_memory_once_what_it_lacks_now_and_lacked_earlier() -> None:
    lost = [Objection("detail", (word,), 1) for word in ("17", "18", "x" * 200)]
    earlier = [Objection("detail", (word,), 1, earlier="said") for word in ("17", "19")]

    assert refusal([*lost, *earlier]) == (
        f'#1 would lose "17", "18", "{"x" * 200}": add them; '
        '#1 as it was before edits of the last 30 days would lose "19": add it'
    )


def test_a_refusal_shows_of_a_long_quotation_the_beginning() -> None:
    quoted = "bread before books " * 20

    (found, *_) = updated(f'She said "{quoted}" at the old mill', "She said it at the old mill")

    assert "…" in str(found)
    assert len(str(found)) < 260


# a text, another, and whether the other may replace it
REPLACED = [
    ("Ana lives in Porto.", "Ana has moved to Braga and no longer lives in Porto.", True),
    ("The release is planned for 1 October.", "The release was postponed to May.", True),
    ("The user's name is Jon Smyth.", "The user's name is John Smith.", True),
    ("Ben and Clara are dating.", "Ben and Clara got married.", True),
    ("小林的生日聚会定在周五。", "小林的生日聚会改到周日了。", True),
    (
        "Mira wohnt in der Lindenstraße 12 in Bonn, im dritten Stock.",
        "Mira ist umgezogen: sie wohnt jetzt am Rosenweg 4 in Köln, im Erdgeschoss.",
        True,
    ),
    ("Ana lives in Porto.", "Ana likes green tea.", False),
    ("Ana lives by the sea.", "Ana likes green tea.", False),
    ("The mill burns.", "Ana has a tie.", False),
    ("Ana lives in Porto.", "The gate code is 1234.", False),
    ("Ana has two dogs, a parrot, horses, uncles and lemon trees.", "Buy lemon cake.", False),
]


@pytest.mark.parametrize(("text", "other", "is_same"), REPLACED)
def test_what_replaces_a_memory_speaks_of_the_same(text: str, other: str, is_same: bool) -> None:
    assert speak_of_the_same(ledger_of(), text, other) == is_same


@pytest.mark.parametrize(
    ("text", "other", "is_sure"),
    [
        (
            "Seit zwei Jahren lernt Olga abends Geige.",
            "Olga lernt seit zwei Jahren abends Geige.",
            0,
        ),
        ("Mira is older than Jonas.", "Jonas is older than Mira.", 1),
    ],
)
def test_another_order_of_words_is_only_doubtful_where_order_is_free(
    text: str, other: str, is_sure: int
) -> None:
    found = objections(ledger_of(text), {0: text}, other, share=SHARE)

    assert found
    assert any(each.is_sure for each in found) == bool(is_sure)


def test_likely_carriers_are_the_memories_that_say_most_of_a_text() -> None:
    part, other = "The tower at Kastell has a green door", "The tower has steps"
    ledger = ledger_of(TOWER, other, "Mira drinks tea", part, f"{TOWER}!")

    assert likely_carriers(ledger, TOWER, [0]) == [4]
    # those that say half as much as the likeliest, where none says enough
    assert likely_carriers(ledger, TOWER, [0, 4]) == [3]
    assert likely_carriers(ledger_of(TOWER, other), TOWER, [0]) == [1]


def test_the_newest_memories_may_say_a_text_in_another_language() -> None:
    ledger = ledger_of("Sie wohnt in München.", "Mira drinks tea", "She lives in Munich.")

    assert likely_carriers(ledger, ledger.texts[0], [0]) == [2, 1]


ROSES = "Felix waters the old roses of his stubborn neighbour Marit at dawn before breakfast"
MOTHER = "高橋さんは物忘れする母を案じて、毎週の日曜に電話をかける。"


def worn(text: str, result: str | None, *kept: str) -> list[Objection]:
    return objections(ledger_of(text, *kept), {0: text}, result, share=SHARE)


@pytest.mark.parametrize(
    ("text", "result", "kept", "words"),
    [
        ("Felix really always trusts his neighbour", "Felix trusts his neighbour", (), ()),
        ("Felix trusts an old neighbour", "Felix trusts a neighbour", (), ("old",)),
        (MOTHER, MOTHER.replace("母", ""), (), ("母",)),
        (ROSES, "Felix sleeps", (ROSES.replace("old ", ""),), ("old",)),
        (ROSES, None, (f"{ROSES} and at dusk",), ()),
    ],
)
def test_an_edit_that_may_pass_wears_what_loses_a_word(
    text: str, result: str | None, kept: tuple[str, ...], words: tuple[str, ...]
) -> None:
    found = worn(text, result, *kept)

    assert [each.words for each in found if each.is_slight] == ([words] if words else [])


def test_of_a_memory_each_that_was_merged_into_it_counts_as_worn() -> None:
    losses = [Objection("worn", ("dawn",), 1, earlier=text) for text in (None, "one", "other")]

    assert [memories_worn(losses[:count]) for count in (1, 2, 3)] == [1, 1, 2]
    assert memories_worn([*losses, Objection("worn", ("roses",), 2), Objection("hedge")]) == 3
    assert memories_worn([Objection("hedge")]) == 1


def test_the_heaviest_words_are_asked_for_and_of_twenty_words_three_may_be_missing() -> None:
    text = (
        "violin; lantern; harbour; orchard; meadow; walnut; chimney; saddle; lilac; otter; pigeon;"
        " falcon; turnip; candle; bramble; thistle; parsley; cobbler; anvil; trellis"
    )

    assert updated(text, text.partition("harbour; ")[2]) == []
    (found,) = updated(text, text.partition("orchard; ")[2])
    assert found.needed == 1
    (found,) = updated("violin; water; house; city; lantern", "violin")
    assert found.words[0] == "lantern"
    # common words are not counted
    assert (
        updated(
            "violin; lantern; harbour; orchard; house; water", "violin; lantern; harbour; orchard"
        )
        == []
    )
    # a fifth of the weight may go with a memory, and no more
    assert (
        deleted("zorbia; quantrix; vellomar; tindle; krowash", "zorbia quantrix vellomar tindle")
        == []
    )
