"""A public set of conversations in LoCoMo's layout: its observations are an agent's memories, and
its questions name the turns of the conversation that answer them.
"""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

from bench.corpus import Planted, Question

# As in: 1:56 pm on 8 May, 2023
_DATE = re.compile(r"(\d{1,2} \w+),? (\d{4})")
# A number, or a capital inside a sentence.
_FACT = re.compile(r"\d[\d,.:]*\d|\d|(?<=[\w,;] )[A-Z]\w+")


class Conversation:
    """One conversation of the set: a world that does not grow."""

    def __init__(self, sample: dict[str, Any], *, is_prefixed: bool = False) -> None:
        self._is_prefixed = is_prefixed
        self._sample = sample
        self.memories: list[Planted] = []
        self._told_in: dict[str, list[int]] = {}
        for person, text, turns, day in _observations(sample):
            for turn in turns:
                self._told_in.setdefault(turn, []).append(len(self.memories))
            self.memories.append(self._planted(person, text, day))

    def begin(self, count: int) -> Sequence[Planted]:
        """Return all observations; ``count`` is for worlds that have as many as one likes."""
        return self.memories

    def grow(self, count: int) -> Sequence[Planted]:
        """Return nothing: no more was observed."""
        return ()

    def questions(self) -> list[Question]:
        """Return the questions whose evidence is told in an observation, at least in part."""
        asked = ((each["question"], self._evidence(each)) for each in self._sample["qa"])
        return [Question(text, "en", evidence) for text, evidence in asked if evidence]

    def _evidence(self, question: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
        turns = [turn for turn in question["evidence"] if turn in self._told_in]
        return tuple(tuple(self._told_in[turn]) for turn in dict.fromkeys(turns))

    def _planted(self, person: str, text: str, day: date) -> Planted:
        facts = dict.fromkeys([*([person] if person in text else []), *_FACT.findall(text)])
        stored = f"{person} (person): {text}" if self._is_prefixed else text
        return Planted(stored, "original", tuple((fact,) for fact in facts), on=day)


def conversations(file: Path, *, is_prefixed: bool = False) -> list[Conversation]:
    """Return the conversations of a file; ``is_prefixed``: as an importer stores memories."""
    samples = json.loads(file.read_text(encoding="utf-8"))
    return [Conversation(sample, is_prefixed=is_prefixed) for sample in samples]


def _observations(sample: dict[str, Any]) -> Iterator[tuple[str, str, list[str], date]]:
    for name, by_person in sample["observation"].items():
        day = _day(sample["conversation"][name.replace("observation", "date_time")])
        for person, observations in by_person.items():
            for text, turns in observations:
                yield person, text, [turns] if isinstance(turns, str) else turns, day


def _day(text: str) -> date:
    found = _DATE.search(text)
    if found is None:
        raise ValueError(f"no date in {text!r}")
    return datetime.strptime(f"{found[1]} {found[2]}", "%d %B %Y").date()  # noqa: DTZ007 - a day
