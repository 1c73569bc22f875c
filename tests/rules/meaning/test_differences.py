"""What a new text adds or turns round."""

import pytest

from refine.rules.meaning.differences import is_reordered, says
from refine.rules.meaning.reading import read
from tests.rules.meaning.judging import deleted, kinds, merged, updated

# a text, what it became, and the objection
FALSIFIED = [
    ("Never deploy on Fridays to the harbour.", "Deploy on Fridays to the harbour.", "negation"),
    ("Kim is pregnant, nobody may know it.", "Kim is pregnant, they may know it.", "negation"),
    ("Dana eats nuts in spring.", "Dana doesn't eat nuts in spring.", "negation"),
    ("Share it only if the lawyers agree.", "Share it, the lawyers agree.", "condition"),
    ("Share it, the lawyers agree.", "Share it unless the lawyers agree.", "condition"),
    ("Perhaps Mira moves to the coast.", "Mira moves to the coast.", "hedge"),
    ("Mira moves to the coast.", "Perhaps Mira moves to the coast.", "hedge"),
    ("Sam lent Kim the red bicycle.", "Kim lent Sam the red bicycle.", "order"),
    ("Anna is 17 and Tom is 18.", "Anna is 18 and Tom is 17.", "order"),
    ("Dana is allergic to penicillin.", "Dana is immune to penicillin.", "word added"),
    ("Dana met Kim at the mill.", "Dana met Kim and Oskar at the mill.", "name added"),
    ("Dana met Kim at the mill.", "Dana met Kim at the mill at 7:45.", "detail added"),
    ("Dana met Kim at the mill.", "Dana met Kim at “the mill”, “my dear”.", "detail added"),
    ("Run the tests first.", "Run the tests_all first.", "code added"),
    ("The boat is 12 metres long.", "The boat is 12 feet long.", "unit added"),
    ("The boat is 12 metres long.", "The boat is 12 long.", "unit"),
    ("Mira takes 5 mg of it daily.", "Mira takes 5 kg of it daily.", "unit"),
    ("Der Bau dauerte 7 Jahre.", "Der Bau dauerte 7 Tage.", "unit"),
    (
        "Kim wohnt in der Stadt bei Mira.",
        "Kim wohnt in der Stadt bei Mira seit 1990.",
        "detail added",
    ),
    ("门从左边开着。", "门从右边开着。", "opposite"),
    ("The boat is 12 long.", "The boat is 12 metres long.", "unit added"),
    (
        "Kim wohnt in der Stadt bei Mira.",
        "Kim wohnt in der Stadt bei Mira und Peter.",
        "words added",
    ),
    ("Pills before the meals, please.", "Pills after the meals, please.", "opposite"),
    ("The gate stays open at night.", "The gate stays shut at night.", "opposite"),
    ("The gate stays shut at night.", "The gate stays open at night.", "opposite"),
    ("The door opens to the left.", "The door opens to the right.", "opposite"),
    ("Das Tor ist nachts offen.", "Das Tor ist nachts geschlossen.", "opposite"),
    (
        "Ute will keinen Garten, sie will lesen.",
        "Ute will Garten, sie will nicht lesen.",
        "negation",
    ),
    ("Elif kahveyi çok sever.", "Elif kahveyi ve çayı çok sever.", "words added"),
    ("Il se peut que Rémi soit à Lyon.", "Rémi est à Lyon.", "hedge"),
    ("娘は海老を食べられない。", "娘は海老を食べられる。", "negation"),
    ("医生说可能是过敏。", "医生说是过敏。", "hedge"),
    ("雨なら試合は中止する。", "試合は中止する。", "condition"),
    ("每次服用20毫克。", "每次服用20克。", "unit added"),
    ("弟は東京で働いている。", "弟は東京の銀行で働いている。", "word added"),
    ("太郎が花子に本を貸した。", "花子が太郎に本を貸した。", "order"),
    ("持ち物は水筒、雨具、地図、薬です。", "持ち物は水筒、雨具、薬です。", "list"),
    (
        "W apteczce są plastry, bandaż, nożyczki i termometr.",
        "W apteczce są plastry, bandaż i termometr.",
        "list",
    ),
]


@pytest.mark.parametrize(("text", "result", "kind"), FALSIFIED)
def test_an_update_turns_nothing_round_and_adds_nothing(text, result, kind):
    assert kind in kinds(updated(text, result))


# memories, and a text that takes their place
MERGED = [
    (["Karl has a dog.", "Karl's dog is called Bruno."], "Karl has a dog called Bruno."),
    (["Eva learns Spanish.", "Eva goes to lessons."], "Eva learns Spanish and goes to lessons."),
    (["Ben never smokes.", "Ben doesn't smoke at home."], "Ben never smokes, not at home."),
    (["Perhaps Mira moves to the coast."], "Perhaps Mira moves to the coast!"),
    (["Perhaps Mira left the coast.", "Mira left the coast."], "Mira left the coast."),
    (
        ["On Sundays at the mill Ana swims.", "Ana swims at the mill on Sundays."],
        "Ana swims at the mill on Sundays.",
    ),
    (
        ["Has the dentist tomorrow.", "This month the rent was late."],
        "Has the dentist tomorrow; this month the rent was late.",
    ),
    (
        ["Nora sings. Boats are red.", "Petra dances. Bikes are blue."],
        "Petra dances. Boats are red. Nora sings. Bikes are blue.",
    ),
    (["Häuser, Türme"], "Die Häuser und der Turm"),
    (["Ann: buy milk.", "Ann wants oat milk."], "Ann: buy milk; Ann wants oat milk."),
    (
        ["太郎は歌う。船は赤い。", "花子は踊る。車は青い。"],
        "花子は踊る。船は赤い。太郎は歌う。車は青い。",
    ),
    (["陈浩养了一只猫。", "陈浩的猫叫团子。"], "陈浩养了一只猫，叫团子。"),
    (["We use Redis.", "It was decided whether or not we use Redis."], "We use Redis, decided."),
    (["She lives in Lagos.", "In Lagos she has 3 cats."], "She lives in Lagos, has three cats."),
]


@pytest.mark.parametrize(("texts", "result"), MERGED)
def test_a_merge_of_what_memories_say_is_accepted(texts, result):
    assert merged(texts, result) == []


def test_a_merge_keeps_apart_what_is_denied_who_and_when():
    denied = ["Not the accident, please, at dinner.", "Never late; tell of the dentist."]
    people = ["Nora Lind is the captain here.", "Petra Moss is the cook here."]

    told = merged(denied, "Tell of the accident and the dentist, please, at dinner; never late.")
    exchanged = merged(people, "Petra Moss is the captain here, Nora Lind is the cook here.")

    assert "negation" in kinds(told)
    assert "exchange" in kinds(exchanged)
    assert "exchange" in kinds(merged(["Anna is 17.", "Tom is 18."], "Anna is 18, Tom is 17."))
    assert "exchange" in kinds(
        merged(["Nora likes boats.", "Petra likes bikes."], "Petra likes boats, Nora likes bikes.")
    )
    assert "exchange" in kinds(
        merged(["太郎は船長です。", "花子は料理人です。"], "花子は船長、太郎は料理人です。")
    )
    assert "occasion" not in kinds(merged(["The dentist is tomorrow.", "Lea sings."], "Lea sings."))
    for text, again in (
        ("Has the dentist tomorrow at noon.", "The dentist is tomorrow at noon."),
        ("The rent was late this month.", "This month the rent was late."),
        ("We meet this Monday at the mill.", "This Monday we meet at the mill."),
    ):
        assert "occasion" in kinds(merged([text, again], text)), text


def test_a_new_text_may_name_the_month_in_which_a_memory_was_stored():
    text = "Jonas moved to the coast on 6 January"

    def added(date: str) -> set[str]:
        return kinds(updated(text, f"{text} ({date})", months=["2026-01"]))

    for named in ("January 2026", "2026", "6 January 2026"):
        assert added(named) == set()
    for other in ("January 2027", "2027", "7 January 2026", "6 January 2027", "2026-02-06"):
        assert added(other) == {"detail added"}


def test_objections_that_were_never_wrong_are_sure():
    turned = updated("Sam lent Kim the red bicycle.", "Kim lent Sam the red bicycle.")
    (hedge,) = updated("Perhaps Mira moves to the coast.", "Mira moves to the coast.")

    assert [each.kind for each in turned] == ["exchange", "order"]
    assert all(each.is_sure for each in turned)
    assert not hedge.is_sure


def test_a_merge_says_little_of_its_own():
    texts = ["Ruth adopted a greyhound.", "Ruth's greyhound is called Dash."]

    assert merged(texts, "Ruth got a greyhound called Dash, adopted.") == []
    assert merged(texts, "Ruth adopted a greyhound called Dash for her house.") == []
    assert kinds(merged(texts, "Ruth adopted a pregnant greyhound called Dash.")) == {"words added"}


def test_what_is_denied_and_left_out_is_not_turned():
    text = "Sara is a vegetarian from Utrecht, she does not eat prawns."

    assert "denial" in kinds(updated(text, "Sara is a vegetarian from Utrecht."))
    assert "negation" in kinds(updated(text, "Sara is a vegetarian from Utrecht, eats prawns."))
    assert "denial" in kinds(deleted(text, "Sara is a vegetarian from Utrecht."))


# memories, a text in their place, and whether it turns round what they deny
DENIED = [
    (["Mira drinks tea instead of milk."], "Mira drinks tea, not milk.", False),
    (["Mira drinks tea, not milk."], "Mira drinks tea instead of milk.", False),
    (["She doesn't eat prawns, Lea sings."], "She doesn't, in town, eat prawns, Lea sings.", False),
    (["Lea sings.", "She doesn't eat prawns."], "She doesn't, ever, eat prawns; Lea sings.", False),
    (["Dana wants peace.", "No phones."], "No phones as Dana wants peace.", False),
    (["Mira drinks no tea.", "Mira never sings."], "Mira drinks no tea, sings.", True),
]


@pytest.mark.parametrize(("texts", "result", "is_turned"), DENIED)
def test_a_new_text_denies_what_memories_deny_in_whatever_words(texts, result, is_turned):
    assert ("negation" in kinds(merged(texts, result))) == is_turned


def test_two_parts_that_stand_side_by_side_may_change_places():
    assert updated("On Sundays Ana swims.", "Ana swims on Sundays.") == []
    assert deleted("爷爷每天早上去公园打太极。", "每天早上爷爷去公园打太极。") == []
    assert "reordered" in kinds(deleted("太郎が花子に会った。", "花子が太郎に会った。"))


def test_of_a_number_that_is_gone_its_unit_is_not_missed_as_well():
    assert kinds(updated("Takes 50 micrograms of it.", "Takes it.")) == {"detail"}


def test_a_word_that_is_new_is_no_opposite_of_what_was_never_said():
    assert "opposite" not in kinds(updated("The gate is green.", "The gate is green and open."))


def test_an_exchange_in_german_is_sure_unless_only_the_order_of_words_has_changed():
    people = ["Nora Lind ist Kapitän hier.", "Petra Moss ist Koch hier."]

    found = merged(people, "Petra Moss ist Kapitän hier, Nora Lind ist Koch hier.")

    assert "exchange" in kinds(found)


# the end of a text, another, and whether they have their words in another order
ORDERS = [
    ("milk", "milk", False),
    ("milk bread", "milk bread soup", False),
    ("milk bread", "bread milk", False),
    ("milk bread soup", "bread soup milk", False),
    ("milk bread soup", "soup milk bread", False),
    ("milk bread soup wine", "soup wine milk bread", False),
    ("milk bread soup", "soup bread milk", True),
    ("milk bread soup wine", "bread milk wine soup", True),
]


@pytest.mark.parametrize(("text", "other", "expected"), ORDERS)
@pytest.mark.parametrize("around", ["{}", "rye {}", "{} oats", "rye tea {} oats salt"])
def test_words_are_in_another_order_unless_two_parts_changed_places(text, other, expected, around):
    texts = around.format(text), around.format(other)

    assert is_reordered(*map(read, texts)) == expected


@pytest.mark.parametrize(
    ("key", "text", "other", "is_said"),
    [
        ("anchorag", "an anchorage", "the anchor", True),
        ("anchorag", "an anchorage", "an anch", False),
        ("tests_all", "the tests_all", "the tests", False),
        ("spaec", "he likes spaecs", "spaces", True),
        ("jonathon", "we met Jonathon there", "jonathan", False),
        ("った", "雨だった", "雨だ", False),
        ("北京", "住北京", "北和京", False),
        ("北京", "私の北京", "私の北海、京", False),
        ("北京", "住北京", "北、東京", False),
        ("北京", "住北京", "住北、京", True),
        ("弟は", "弟は東京で", "東京の弟", True),
        ("弟は", "弟は東京で", "東京の弟子", False),
    ],
)
def test_a_word_is_said_in_another_form_and_by_parts_that_stand_apart(key, text, other, is_said):
    assert says(read(other), key, read(text)) == is_said


def test_a_word_is_said_by_the_same_word_in_another_language():
    german = read("die Kinder und die cats sind da")

    assert (german.language, says(german, "cat", read("the cats"))) == ("de", True)
