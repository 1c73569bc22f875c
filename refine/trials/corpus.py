"""Generated memories of an agent, each with its origin: the same for the same seed and agent."""

import string
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from random import Random
from typing import Literal

from refine.trials.language import Language, Template, languages
from refine.trials.poison import POISON

Kind = Literal["original", "exact", "near", "lookalike", "poison"]

# How many of a hundred memories are of each kind; the rest are originals.
Shares = Mapping[Kind, int]
AT_FIRST: Shares = {"exact": 10, "near": 15, "lookalike": 12, "poison": 4}
# What an agent saves is never an exact duplicate: those come from imports.
EACH_WEEK: Shares = {"near": 25, "lookalike": 12, "poison": 2}

_MAIN_LANGUAGE_SHARE = 0.7
_CLAUSE_SHARE = 0.3
_FIRST_DAY = date(2025, 1, 1)
_DAYS = 420

# A fact is what a memory names: the ways in which it may be written, one of which must stand.
Fact = tuple[str, ...]


@dataclass(frozen=True)
class Planted:
    """A memory and its origin: ``of`` is the position of the memory that it copies or resembles."""

    text: str
    kind: Kind
    facts: tuple[Fact, ...] = ()
    of: int | None = None

    @property
    def is_duplicate(self) -> bool:
        """Whether another memory says the same."""
        return self.kind in ("exact", "near")


@dataclass(frozen=True)
class _Statement:
    """What a memory says: a template, and for each slot the ways in which its value is written."""

    language: Language
    template: Template
    values: Mapping[str, tuple[str, ...]]
    clause: tuple[str, Mapping[str, tuple[str, ...]]] | None = None
    is_denied: bool = False

    def text(self, wording: str | None = None, writing: int = 0) -> str:
        """Return the statement in one of its wordings, its values in one of their writings."""
        sentence = getattr(self.template, wording or ("denied" if self.is_denied else "said"))
        main = _filled(sentence, self.values, writing)
        if self.clause is None:
            return main
        return f"{main} {_filled(*self.clause, writing)}"

    def facts(self) -> tuple[Fact, ...]:
        """Return what it names; things such as tea are no facts but plain words."""
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


class Corpus:
    """The memories of one agent in the order in which it gets them."""

    def __init__(self, seed: int, agent: int, at_first: Shares = AT_FIRST) -> None:
        self.memories: list[Planted] = []
        self._at_first = at_first
        self._chance = Random(f"{seed}/{agent}")  # noqa: S311 - nothing secret
        self._main = languages()[(seed + agent) % len(languages())]
        self._said: dict[int, _Statement] = {}
        self._texts: set[str] = set()

    def begin(self, count: int) -> list[Planted]:
        """Return the memories that the agent has at first."""
        return [self._add(self._at_first) for _ in range(count)]

    def grow(self, count: int) -> list[Planted]:
        """Return the memories that the agent saves in a week."""
        return [self._add(EACH_WEEK) for _ in range(count)]

    def _add(self, shares: Shares) -> Planted:
        while True:
            memory, statement = self._next(shares)
            if memory.kind == "exact" or memory.text.lower() not in self._texts:
                break
        if statement is not None:
            self._said[len(self.memories)] = statement
        self._texts.add(memory.text.lower())
        self.memories.append(memory)
        return memory

    def _next(self, shares: Shares) -> tuple[Planted, _Statement | None]:
        kind = self._kind(shares)
        if kind == "poison":
            return Planted(self._poison(), kind), None
        if kind == "original" or not self._said:
            statement = self._statement()
            return Planted(statement.text(), "original", statement.facts()), statement
        of = self._chance.choice(list(self._said))
        said = self._said[of]
        if kind == "exact":
            text = self.memories[of].text
            return replace(self.memories[of], text=self._exact(text), kind=kind, of=of), None
        changed = self._near(said) if kind == "near" else self._lookalike(said)
        return Planted(*changed[:1], kind, changed[1].facts(), of), None

    def _kind(self, shares: Shares) -> Kind:
        rest = 100 - sum(shares.values())
        return self._chance.choices([*shares, "original"], [*shares.values(), rest])[0]

    def _poison(self) -> str:
        return self._chance.choice(POISON).format(number=self._chance.randint(100, 999))

    # -- statements -------------------------------------------------------------------------------

    def _statement(self) -> _Statement:
        is_main = self._chance.random() < _MAIN_LANGUAGE_SHARE
        language = self._main if is_main else self._chance.choice(languages())
        template = self._chance.choice(language.templates)
        statement = _Statement(language, template, self._values(language, template.said))
        if self._chance.random() < _CLAUSE_SHARE:
            return self._with_clause(statement)
        return statement

    def _with_clause(self, statement: _Statement) -> _Statement:
        language = statement.language
        clause = self._chance.choice(language.clauses)
        return replace(statement, clause=(clause, self._values(language, clause)))

    def _values(self, language: Language, sentence: str) -> dict[str, tuple[str, ...]]:
        slots = [slot for _, slot, _, _ in string.Formatter().parse(sentence) if slot]
        return {slot: self._value(language, slot) for slot in slots}

    def _value(self, language: Language, slot: str) -> tuple[str, ...]:
        pick = self._chance.choice
        match slot:
            case "date":
                return language.date_writings(
                    _FIRST_DAY + timedelta(days=self._chance.randrange(_DAYS))
                )
            case "number":
                return language.number_writings(pick(list(language.numbers)))
            case "saying":
                return language.quote_writings(pick(language.sayings))
            case "code":
                return (str(self._chance.randint(100, 999)),)
            case "address":
                return (self._address(),)
            case "place":
                return (pick(language.places),)
            case "thing":
                return (pick(language.things),)
        # names, of which two in one sentence differ
        half = len(language.names) // 2
        return (pick(language.names[:half] if slot == "name" else language.names[half:]),)

    def _address(self) -> str:
        number = self._chance.randint(10, 999)
        return self._chance.choice(
            (
                f"https://notes.example.org/{number}",
                f"box{number}@example.org",
                f"/home/notes/{number}.txt",
            )
        )

    # -- copies and look-alikes -------------------------------------------------------------------

    def _exact(self, text: str) -> str:
        return self._chance.choice((text.lower(), f"  {text}\n"))

    def _near(self, said: _Statement) -> tuple[str, _Statement]:
        """Return the same in another form: a keeper may unite the two without loss."""
        match self._chance.choice(("punctuation", "order", "writing", "clause")):
            case "punctuation":
                return said.text().rstrip(".。") + self._chance.choice(("", "!", " …")), said
            case "order":
                return said.text("reordered"), said
            case "writing":
                return said.text(writing=1), said
        more = self._with_clause(said)
        return more.text("reordered"), more

    def _lookalike(self, said: _Statement) -> tuple[str, _Statement]:
        """Return what looks the same and is another memory: one value differs, or it is denied."""
        slots = [slot for slot in said.values if slot != "saying"]
        slot = self._chance.choice([*slots, "denial"])
        if slot == "denial":
            denied = replace(said, is_denied=True)
            return denied.text(), denied
        value = self._value(said.language, slot)
        while value == said.values[slot]:
            value = self._value(said.language, slot)
        other = replace(said, values={**said.values, slot: value})
        return other.text(), other


def _filled(sentence: str, values: Mapping[str, tuple[str, ...]], writing: int) -> str:
    return sentence.format(
        **{slot: writings[writing % len(writings)] for slot, writings in values.items()}
    )
