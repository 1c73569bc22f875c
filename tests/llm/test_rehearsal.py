"""The rehearsal model: what it answers, and its server."""

import json
import threading
from typing import Any

import pytest
import requests

from refine.llm.rehearsal import MAX_MERGES, answer, serving
from refine.refinement.prompting import READING
from refine.rules.second_reading import Case, Stored, Verdict, verdicts_in

CONSENT_QUESTION = "Do you consent to this session? Answer YES or NO as the first word."
BRIEF = "The rules come first.\n<style>\n{style}\n</style>\nCall complete when you are done."


def entry(number: int, content: str, *, tags: tuple[str, ...] = (), locked: bool = False) -> str:
    marks = (["constitutional"] if locked else []) + list(tags)
    return json.dumps({" ".join([f"{number} 2026-03-01 12", *marks]): content}, ensure_ascii=False)


def asked(*ledger: str, system: str = "You are Wren.") -> list[dict[str, Any]]:
    question = "\n".join(["Your ledger:", *ledger, CONSENT_QUESTION])
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


def briefed(*ledger: str, style: str = "De-duplicate only.") -> list[dict[str, Any]]:
    return [
        *asked(*ledger),
        {"role": "assistant", "content": "YES."},
        {"role": "user", "content": BRIEF.format(style=style)},
    ]


def request(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": "rehearsal/wren", "messages": messages}


def reply(messages: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = answer(request(messages))["choices"][0]["message"]
    return message


def session(messages: list[dict[str, Any]], result: str = '{"type": "ok"}') -> list[dict[str, Any]]:
    """Return the arguments of all calls of a session in which each call gets ``result``."""
    calls: list[dict[str, Any]] = []
    while "tool_calls" in (message := reply(messages)):
        (call,) = message["tool_calls"]
        assert call["id"] == f"call_{len(calls) + 1}"
        calls.append(json.loads(call["function"]["arguments"]))
        tool = {"role": "tool", "tool_call_id": call["id"], "content": result}
        messages = [*messages, message, tool]
    return calls


def actions(calls: list[dict[str, Any]]) -> list[str]:
    return [call["action"] for call in calls]


def merged_ids(calls: list[dict[str, Any]]) -> list[list[int]]:
    return [call["ids"] for call in calls if call["action"] == "consolidate"]


class TestConsent:
    def test_is_given_to_a_session_and_to_a_human(self):
        human = [{"role": "user", "content": "May Ada read your memories? YES or NO."}]
        for messages in (asked(entry(1, "Tea at four.")), human):
            message = reply(messages)
            assert message["content"].startswith("YES. ")
            assert "tool_calls" not in message

    def test_is_refused_if_the_system_prompt_says_so(self):
        for system, first in (
            *(("You decline refinement sessions.", "NO"), ("This agent declines.", "NO")),
            ("Asked to change your memories, answer NO.", "NO"),
            *(("You do not consent to sessions.", "NO"), ("You never consent.", "NO")),
            *(("You never decline.", "YES"), ("You do not decline sessions.", "YES")),
            *(("Don't ever decline a session.", "YES"), ("You say no more than needed.", "YES")),
            ("", "YES"),
        ):
            message = reply(asked(entry(1, "You decline everything."), system=system))
            assert message["content"].startswith(f"{first}. "), system


class TestPlainRepeats:
    def test_are_merged_whatever_their_case_punctuation_and_spacing(self):
        for repeat in (
            *("tea at four", "TEA, at four!", "Tea  at\n four.", "“Tea” – at four…"),
            "Tea\u2028at four",
        ):
            calls = session(briefed(entry(7, "Tea at four."), entry(8, "Milk."), entry(9, repeat)))
            assert merged_ids(calls) == [[7, 9]], repeat
            assert actions(calls) == ["consolidate", "complete"]

    def test_are_merged_into_the_longest_text_in_one_call_and_at_most_ten_times(self):
        longest = "  Tea – at “four” –\nnot before…"
        repeats = ["tea at four not before", longest, "TEA at four not before"]

        calls = session(briefed(*(entry(n, text) for n, text in enumerate(repeats, 1))))

        assert calls[0] == {"action": "consolidate", "ids": [1, 2, 3], "content": longest}
        assert not any(character.isdigit() for character in calls[-1]["summary"])
        ledger = [entry(n, f"Berth {'abcdefghijklmno'[n // 2]}{'.' * (n % 2)}") for n in range(30)]
        assert actions(session(briefed(*ledger))) == ["consolidate"] * MAX_MERGES + ["complete"]

    def test_are_merged_if_relational_but_not_if_locked(self):
        for fields, expected in (
            ({"tags": ("relational",)}, ["consolidate", "complete"]),
            ({"tags": ("audio",)}, ["complete"]),
            ({"tags": ("somatic",)}, ["complete"]),
            ({"tags": ("voice",)}, ["complete"]),
            ({"locked": True}, ["complete"]),
        ):
            calls = session(briefed(entry(1, "I stay.", **fields), entry(2, "I stay!")))
            assert actions(calls) == expected, fields


class TestSession:
    def test_deletes_unlocked_memories_if_the_style_asks_for_it(self):
        mine, hum = entry(2, "Mine.", locked=True), entry(3, "Hum.", tags=("voice",))
        ledger = [entry(1, "Tea."), mine, hum, entry(4, "Milk.")]
        for style in (
            *("Delete everything.", "Please\nerase it all", "Wipe the ledger each spring."),
            *("I want a clean slate.", "Remove everything, and do not hesitate."),
        ):
            calls = session(briefed(*ledger, style=style))
            expected = [("delete", 1), ("delete", 4), ("complete", None)]
            assert [(call["action"], call.get("id")) for call in calls] == expected, style


def with_tools(tools: Any, *messages: dict[str, Any]) -> dict[str, Any]:
    body = {"model": "rehearsal/wren", "messages": list(messages), "tools": tools}
    message: dict[str, Any] = answer(body)["choices"][0]["message"]
    return message


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_second_reading_of_its_finds_nothing():
    case = Case("same", (Stored("2026-03-01", "tea"),), "Tea.")
    lines = [json.dumps(case.as_entry(n), separators=(",", ":")) for n in (1, 2)]

    (call,) = with_tools([READING], user("\n".join(lines)))["tool_calls"]

    assert call["function"]["name"] == "second_reading"
    answers = json.loads(call["function"]["arguments"])["cases"]
    assert verdicts_in(answers, 2) == [Verdict(), Verdict()]


def ask(url: str) -> requests.Response:
    body = {"model": "rehearsal/wren", "messages": [user(CONSENT_QUESTION)]}
    return requests.post(f"{url}/chat/completions", json=body, timeout=10)


def test_is_served_on_loopback_until_the_block_ends_or_fails(capfd):
    with serving() as url, serving() as other:
        response = ask(url)
    with pytest.raises(RuntimeError), serving():
        raise RuntimeError

    assert url.startswith("http://127.0.0.1:")
    assert url != other
    assert response.json()["choices"][0]["message"]["content"].startswith("YES")
    assert capfd.readouterr() == ("", "")
    assert not [thread for thread in threading.enumerate() if thread.name == "rehearsal"]
    with pytest.raises(requests.ConnectionError):
        ask(url)
