"""Cases as a second reading sees them, and what its answers say."""

import json

import pytest

from refine.rules.second_reading import Case, Stored, Verdict, answers_in, verdicts_in

NOTED = Stored("2026-03-01", "The shop opens at nine.")
NOTHING = {"leaves_out": [], "adds": [], "changes": []}


def lines(*cases):
    return "\n".join(json.dumps({"case": case, **NOTHING}) for case in cases)


def test_a_rewrite_shows_what_was_and_what_is_to_be():
    case = Case("same", (NOTED,), "Opens at nine.")

    assert case.as_entry(2) == {
        "case": 2,
        "claim": "same",
        "before": [{"2026-03-01": "The shop opens at nine."}],
        "after": "Opens at nine.",
    }


def test_a_removal_shows_what_is_to_carry_it():
    entry = Case("wrong", (NOTED,), None, (Stored("2026-03-02", "It opens at ten."),)).as_entry(1)

    assert entry["kept"] == [{"2026-03-02": "It opens at ten."}]
    assert "after" not in entry


def test_a_verdict_says_all_that_was_found_in_the_words_of_the_reader():
    assert str(Verdict(("the name", "the hour"), (), ("not open",))) == (
        "it leaves out: the name; the hour, and changes: not open"
    )
    assert Verdict().is_clean
    assert not Verdict(adds=("a year",)).is_clean


@pytest.mark.parametrize(
    "text",
    [
        lines(1, 2),
        f"Here they are:\n```json\n{lines(2, 1)}\n```",
        f"[{lines(1, 2).replace(chr(10), ',')}]",
        '{"cases": [' + lines(1, 2).replace("\n", ", ") + "]}",
        '{"case": 1}, {"case": 2, "adds": null, "changes": ""}',
        "{nothing to object: {\n" + lines(1, 2),
        "```json " + lines(1, 2) + "\n```",
        "1. " + lines(1) + "\n2. " + lines(2),
        lines(1, 2, 2),
    ],
)
def test_an_answer_in_words_is_read_in_whatever_form_its_json_stands(text):
    assert verdicts_in(answers_in(text), 2) == [Verdict(), Verdict()]


def test_words_are_taken_as_they_stand_without_blank_ones():
    answer = {"case": 1, "leaves_out": [" the year ", ""], "adds": "a name"}

    assert verdicts_in([answer], 1) == [Verdict(("the year",), ("a name",))]


@pytest.mark.parametrize(
    "answer",
    [
        {"adds": [1]},
        {"adds": {"a": "year"}},
        {"leaves_out": {}},
        {"leaves_out": False},
        {"left_out": ["the name"]},
    ],
)
def test_an_unreadable_verdict_costs_only_its_own_case(answer):
    assert verdicts_in([{"case": 1, **answer}, {"case": 2}], 2) == [None, Verdict()]


@pytest.mark.parametrize("answers", [[], [{"case": 1}, {"case": 1, "adds": "a year"}]])
def test_a_case_without_an_answer_or_with_two_that_differ_has_no_verdict(answers):
    assert verdicts_in(answers, 1) == [None]


@pytest.mark.parametrize("number", [0, 3, "1", True, None])
def test_an_answer_that_names_no_case_makes_all_unusable(number):
    assert verdicts_in([{"case": 1}, {"case": number}, {"case": 2}], 2) == [None, None]


@pytest.mark.parametrize("answer", ["fine", {"leaves_out": []}])
def test_an_answer_without_a_number_makes_all_unusable(answer):
    assert verdicts_in([answer, {"case": 1}], 1) == [None]


def test_json_that_a_sentence_quotes_is_no_answer():
    text = f'Its text says {lines(1)} in my place. It leaves out the "old".'

    assert list(answers_in(text)) == []


def test_json_with_more_than_a_list_of_cases_is_no_list_of_cases():
    text = '{"cases": [{"case": 1}], "leaves_out": ["the name"]}'

    assert verdicts_in(answers_in(text), 1) == [None]


def test_json_that_nests_without_end_is_no_answer():
    assert list(answers_in('{"a":' * 2000)) == []
