"""A second reading of edits: the cases that are read, and what the answer says of each."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args

# Why a memory is edited: to say the same in fewer words, or because it does not hold (any more).
Reason = Literal["same", "outdated", "wrong"]
REASONS: tuple[Reason, ...] = get_args(Reason)
RETIRING = REASONS[1:]

# What may stand before an answer in its line, or between two: marks of lists and of code.
_OPENING = re.compile(r"[\s\[,;`*-]*+(?:json|\d+[.)])?[\s\[`]*+")


class Stored(NamedTuple):
    """A memory's text, and the date of what it says."""

    date: str
    text: str


class Case(NamedTuple):
    """An edit: ``after`` (None: nothing) in place of ``before``, which ``kept`` may carry."""

    claim: Reason
    before: tuple[Stored, ...]
    after: str | None
    kept: tuple[Stored, ...] = ()

    def as_entry(self, number: int) -> dict[str, Any]:
        outcome = dict[str, Any](after=self.after)
        if self.after is None:
            outcome = {"kept": [{each.date: each.text} for each in self.kept]}
        before = [{each.date: each.text} for each in self.before]
        return {"case": number, "claim": self.claim, "before": before, **outcome}


class Verdict(NamedTuple):
    """What an edit leaves out, adds and changes, in the words of a second reading."""

    leaves_out: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        return not any(self)

    def __str__(self) -> str:
        said = {"leaves out": self.leaves_out, "adds": self.adds, "changes": self.changes}
        told = [f"{verb}: {'; '.join(words)}" for verb, words in said.items() if words]
        return f"it {', and '.join(told)}"


def verdicts_in(answers: Iterable[Any], cases: int) -> list[Verdict | None]:
    """Return the verdicts on so many cases, in order; None for one without a single readable
    verdict, and for all if an answer names none of them.
    """
    found: dict[int, set[Verdict | None]] = {number: set() for number in range(1, cases + 1)}
    for answer in answers:
        number = answer.get("case") if isinstance(answer, dict) else None
        if type(number) is not int or number not in found:  # True equals 1
            return [None] * cases
        found[number].add(_verdict(answer))
    return [said.pop() if len(said) == 1 else None for said in found.values()]


def answers_in(text: str) -> Iterator[Any]:
    """Yield the JSON objects that begin a line of a text, or stand in a list: what a sentence
    quotes is no answer.
    """
    decoder, start, last_end = json.JSONDecoder(), text.find("{"), 0
    while start >= 0:
        line = text.rfind("\n", 0, start) + 1
        is_answer = _OPENING.fullmatch(text, max(line, last_end), start) is not None
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            if is_answer:
                last_end = end
                cases = value.get("cases") if value.keys() == {"cases"} else None
                yield from cases if isinstance(cases, list) else [value]
        start = text.find("{", end)


def _verdict(answer: dict[str, Any]) -> Verdict | None:
    """Return what an answer says; None if a list in it is none, or it says what nobody asked."""
    said = [words for kind in Verdict._fields if (words := _words(answer.get(kind))) is not None]
    is_readable = len(said) == len(Verdict._fields) and answer.keys() <= {"case", *Verdict._fields}
    return Verdict(*said) if is_readable else None


def _words(value: Any) -> tuple[str, ...] | None:
    """Return what a list of texts says, also if there is a single text or none; else None."""
    words = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) for each in words):
        return None
    return tuple(each.strip() for each in words if each.strip())
