"""What a memory says, before it is written in one way or another."""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.language import Language, Template

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
        """Return the statement in one of its wordings, its values in one of their writings."""
        main = self.main(wording, writing)
        return main if self.clause is None else f"{main} {_filled(*self.clause, writing)}"

    def main(self, wording: str | None = None, writing: int = 0) -> str:
        """Return the same statement without its clause."""
        sentence = getattr(self.template, wording or ("denied" if self.is_denied else "said"))
        return _filled(sentence, self.values, writing)

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


def _filled(sentence: str, values: Values, writing: int) -> str:
    return sentence.format(
        **{slot: writings[writing % len(writings)] for slot, writings in values.items()}
    )
