"""The languages of the generated memories: sentences, names, and how dates and numbers are written.

Each is a file in ``languages/``, whose sentences are about dates, places and numbers, or in
``plain_speech/``, whose sentences have none. A template says one thing in up to three ways:
``said``, ``reordered`` (the same in another order of words) and ``denied`` (its negation).
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Template:
    """One statement with slots such as ``{name}``, its wordings, and a question that it answers."""

    said: str
    reordered: str
    denied: str = ""
    asked: str = ""


@dataclass(frozen=True)
class Language:
    """The words of one language."""

    code: str
    names: list[str]
    denials: list[str]
    small_words: list[str]
    templates: list[Template]
    clauses: list[str]
    titles: Sequence[str] = ()
    places: Sequence[str] = ()
    things: Sequence[str] = ()
    months: Sequence[str] = ()
    date: str = ""
    numbers: Mapping[str, str] = field(default_factory=dict)
    quotes: str = ""
    sayings: Sequence[str] = ()

    @classmethod
    def read(cls, path: Path) -> "Language":
        """Return the language of a file."""
        words: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        templates = [Template(**each) for each in words.pop("templates")]
        return cls(code=path.stem, templates=templates, **words)

    def date_writings(self, day: datetime.date) -> tuple[str, str]:
        """Return a date as it is written out, and in ISO form."""
        month = self.months[day.month - 1] if self.months else str(day.month)
        return self.date.format(day=day.day, month=month, year=day.year), day.isoformat()

    def number_writings(self, number: str) -> tuple[str, str]:
        """Return a small number in digits and as a word."""
        return number, self.numbers[number]

    def name_writings(self, name: str) -> tuple[str, ...]:
        """Return a name with its title, if it has one, and without."""
        bare = name
        for title in self.titles:
            bare = bare.replace(title, "")
        return tuple(dict.fromkeys((name, bare)))

    def quote_writings(self, saying: str) -> tuple[str, str]:
        """Return a saying in the language's quotation marks, and in plain ones."""
        return f"{self.quotes[0]}{saying}{self.quotes[1]}", f'"{saying}"'


@cache
def languages(folder: str = "languages") -> tuple[Language, ...]:
    """Return the languages of a folder, by code."""
    return tuple(Language.read(path) for path in sorted((_FOLDER / folder).glob("*.json")))


def plain_speech() -> tuple[Language, ...]:
    return languages("plain_speech")


# -- statements -----------------------------------------------------------------------------------


# What a memory names: the ways to write it. A memory has to contain one of them.
Fact = tuple[str, ...]

# The ways in which the value of each slot is written.
Values = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Statement:
    """What a memory says: a template, and for each slot the ways in which its value is written."""

    language: Language
    template: Template
    values: Values
    clause: tuple[str, Values] | None = None
    is_denied: bool = False

    def text(self, wording: str | None = None, writing: int = 0) -> str:
        """Return the statement in one wording, with its values in one writing."""
        main = self.main(wording, writing)
        return main if self.clause is None else f"{main} {_filled(*self.clause, writing)}"

    def main(self, wording: str | None = None, writing: int = 0) -> str:
        """Return the same statement without its clause."""
        sentence = getattr(self.template, wording or ("denied" if self.is_denied else "said"))
        return _filled(sentence, self.values, writing)

    def asked(self) -> str:
        """Return a question that the statement answers; its own words where there is none."""
        return _filled(self.template.asked, self.values, 0) or self.main()

    def facts(self) -> tuple[Fact, ...]:
        """Return its named facts; things such as tea are plain words."""
        in_clause = self.clause[1] if self.clause is not None else {}
        return tuple(
            self._fact(slot, writings)
            for values in (self.values, in_clause)
            for slot, writings in values.items()
            if slot != "thing"
        )

    def _fact(self, slot: str, writings: tuple[str, ...]) -> Fact:
        match slot:
            case "saying":
                return (writings[0][1:-1],)
            case "name" | "other":
                return self.language.name_writings(writings[0])
        return writings


def _filled(sentence: str, values: Values, writing: int) -> str:
    return sentence.format(
        **{slot: writings[writing % len(writings)] for slot, writings in values.items()}
    )
