"""A model's view: the messages of one request, as its provider would get them."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

from refine.rules.content import token_estimate

Message = dict[str, Any]
# The arguments of one call of the tool ``refinement``.
Step = dict[str, Any]

# How many memories further a ledger begins each week for those who go through it in turn.
ROTATION = 7

_HEADING = re.compile(r'\{"(\d+) (\d{4}-\d\d-\d\d) (\d+)([ a-z]*)":')
_LOCKING = {"constitutional", "audio", "somatic", "voice"}
_ALLOWANCE = re.compile(r"(\d[\d,]*) of (?:\w+ )?(\d[\d,]*) tokens")


@dataclass(frozen=True)
class Entry:
    """One memory of the ledger as the session shows it."""

    id: int
    day: date
    tokens: int
    content: str
    is_locked: bool


def deletion(entry: Entry) -> Step:
    return {"action": "delete", "id": entry.id}


def update(entry: Entry, content: str) -> Step:
    return {"action": "update", "id": entry.id, "content": content}


def consolidation(entries: Iterable[Entry], content: str) -> Step:
    return {"action": "consolidate", "ids": [entry.id for entry in entries], "content": content}


@dataclass(frozen=True)
class Call:
    """One earlier call of this session, with its result."""

    arguments: Step
    result: dict[str, Any]

    @property
    def is_refused(self) -> bool:
        """Whether it changed nothing."""
        return self.result.get("type") == "error"


class Conversation:
    """One request: the ledger, and the calls so far."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    @cached_property
    def asks_for_consent(self) -> bool:
        """Whether nothing was answered yet."""
        return not any(message["role"] == "assistant" for message in self._messages)

    @cached_property
    def ledger(self) -> list[Entry]:
        """The unlocked memories that the session showed at first."""
        shown = map(_entry, self._texts().split("\n"))
        return [entry for entry in shown if entry is not None and not entry.is_locked]

    @cached_property
    def rotated(self) -> list[Entry]:
        """The ledger, beginning with another memory each week, so that each comes first."""
        start = self.week * ROTATION % max(1, len(self.ledger))
        return self.ledger[start:] + self.ledger[:start]

    @cached_property
    def calls(self) -> list[Call]:
        """The calls so far that have a result, in order."""
        results = {
            message["tool_call_id"]: _json(message["content"])
            for message in self._messages
            if message["role"] == "tool"
        }
        return [
            Call(_json(call["function"]["arguments"]), results[call["id"]])
            for message in self._messages
            for call in message.get("tool_calls") or ()
            if call["id"] in results
        ]

    @cached_property
    def kept(self) -> list[Entry]:
        """The shown memories that this session has not taken away, rotated."""
        gone: set[int] = set()
        for call in self.calls:
            if not call.is_refused:
                gone.update(_taken_away(call.arguments))
        return [entry for entry in self.rotated if entry.id not in gone]

    @cached_property
    def untried(self) -> list[Entry]:
        """The kept memories without a call in this session."""
        tried = {call.arguments.get("id") for call in self.calls}
        return [entry for entry in self.kept if entry.id not in tried]

    @cached_property
    def unchanged(self) -> list[Entry]:
        """The kept memories that no call of this session has changed."""
        changed = {call.arguments.get("id") for call in self.calls if not call.is_refused}
        return [entry for entry in self.kept if entry.id not in changed]

    @cached_property
    def rounds(self) -> int:
        """The number of replies with calls."""
        return sum(bool(message.get("tool_calls")) for message in self._messages)

    @cached_property
    def week(self) -> int:
        """A number that grows by one each week, from the date of the newest memory."""
        return max((entry.day for entry in self.ledger), default=date(2026, 1, 1)).toordinal() // 7

    @cached_property
    def operations_left(self) -> int:
        """How many changes are left."""
        told = self._last_told("operations_left")
        made = sum(not call.is_refused for call in self.calls)
        return told if told is not None else 10 - made

    @cached_property
    def tokens_left(self) -> int:
        """The tokens that may still be removed, by the last result or the prompt."""
        if (told := self._last_told("tokens_left")) is not None:
            return told
        found = _ALLOWANCE.search(self._texts())
        return int(found[1].replace(",", "")) if found else 0

    def affordable(self, steps: list[Step]) -> list[Step]:
        """Return the steps that remove no more tokens than are left."""
        left, chosen = self.tokens_left, []
        sizes = {entry.id: entry.tokens for entry in self.ledger}
        for step in steps:
            ids = step.get("ids", [step.get("id")])
            before = sum(sizes.get(id_, 0) for id_ in ids)
            removed = max(0, before - token_estimate(step.get("content", "")))
            if removed <= left:
                left -= removed
                chosen.append(step)
        return chosen

    def _last_told(self, name: str) -> int | None:
        told = [call.result[name] for call in self.calls if name in call.result]
        return int(told[-1]) if told else None

    def _texts(self) -> str:
        return "\n".join(self._user_texts())

    def _user_texts(self) -> Iterator[str]:
        for message in self._messages:
            if message["role"] == "user":
                content = message["content"]
                parts = [content] if isinstance(content, str) else [p["text"] for p in content]
                yield from parts


def _entry(line: str) -> Entry | None:
    if (heading := _HEADING.match(line)) is None:
        return None
    id_, day, tokens, marks = heading.groups()
    (content,) = json.loads(line).values()
    is_locked = not _LOCKING.isdisjoint(marks.split())
    return Entry(int(id_), date.fromisoformat(day), int(tokens), content, is_locked)


def _json(text: str) -> dict[str, Any]:
    value = json.loads(text)
    return value if isinstance(value, dict) else {}


def _taken_away(arguments: Step) -> list[int]:
    if arguments.get("action") == "consolidate":
        return list(arguments["ids"])
    return [arguments["id"]] if arguments.get("action") == "delete" else []
