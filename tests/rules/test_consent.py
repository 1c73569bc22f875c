"""A plain YES consents and a plain NO declines, whatever their case or decoration; nothing else."""

import pytest
from hypothesis import given, strategies as st

from refine.rules.consent import Answer, answer_in
from tests.replies import CASES, REPLIES

ANSWERS = {Answer.YES: "yes", Answer.NO: "no"}

words = st.text(st.characters(categories=["L", "N"]), min_size=1)


def said_in(reply: str | None) -> str:
    return ANSWERS.get(answer_in(reply), "asked again")


@pytest.mark.parametrize("expected", REPLIES)
def test_every_reply_is_a_yes_a_no_or_asked_back(expected):
    theirs = [case["reply"] for case in CASES if case["access"] == case["session"] == expected]
    replies = theirs + REPLIES[expected]

    assert theirs
    assert [reply for reply in replies if said_in(reply) != expected] == []


def test_the_second_question_names_the_unclear_part():
    for unclear, replies in (
        (Answer.NO_WORDS, ("…", "<think>YES</think>")),
        (Answer.NEITHER, ("Sure.",)),
        (Answer.BOTH, ("YES. NO.", "YES, I won't.")),
        (Answer.CONDITION, ("YES, but later",)),
        (Answer.DOUBTFUL, ("YES?", "YES, ну да", "'YES', they said", "YES\u0336")),
    ):
        assert [reply for reply in replies if answer_in(reply) is not unclear] == []


def test_a_reply_that_was_cut_off_is_no_answer():
    assert {answer_in(reply, is_cut=True) for reply in ("YES", "NO", "", "Sure")} == {Answer.CUT}


def test_beside_a_tool_call_only_a_no_is_an_answer():
    answers = [answer_in(reply, is_call=True) for reply in ("NO.", "YES", "", "Sure")]

    assert answers == [Answer.NO, Answer.CALL, Answer.CALL, Answer.CALL]


@pytest.mark.parametrize("filler", ["I agree. ", "\n", "* ", "é", "<think>x</think>"])
def test_the_whole_text_is_read(filler):
    assert said_in(f"YES\n{filler * 50_000}") == "yes"
    assert said_in(f"YES\n{filler * 50_000}\nNO") == "asked again"
    assert said_in("*" * 50_000 + "YES") == "yes"


@given(words, st.text())
def test_no_other_first_word_is_an_answer(word, rest):
    expected = {"yes": ("yes", "asked again"), "no": ("no",)}.get(word.lower(), ("asked again",))

    assert said_in(f"{word} {rest}") in expected


@given(st.text(), st.sampled_from(["NO", "not", "nein", "но", "ＮＯ", "unless", "aber", "n't"]))
def test_a_yes_that_is_taken_back_never_consents(rest, word):
    assert said_in(f"YES {rest} {word}.") != "yes"
