"""Whether one kept memory carries all that matters of another one."""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cached_property

from refine.rules.meaning.folding import fold
from refine.rules.meaning.ledger import Ledger
from refine.rules.meaning.objections import Objection
from refine.rules.meaning.reading import Reading
from refine.rules.meaning.words import is_misspelling

# One other memory must carry this share of a deleted one.
DELETION_SHARE = Decimal("0.8")
# One word may be missing, or this share of those that weigh anything.
_MISSING_SHARE, _WEIGHS = 0.15, 0.02
# No words that stand side by side may be missing that weigh more than this together.
_PASSAGE, _EACH_WORD = 0.9, 0.15
# A text that shares less is about something else.
_RELATED = 0.15
_LOOKED_AT = 8
_SHOWN_WORDS = 8
_ABBREVIATED = 8


def says(reading: Reading, key: str, original: Reading) -> bool:
    """Tell whether a text says one of the words of another, in whatever form."""
    if key in reading.forms:
        return True
    if key in original.details:
        return not reading.forms.isdisjoint(original.details[key])
    word = fold(original.written[key])
    if not word.isalpha():
        return False
    may_be_misspelt = key not in original.inner_capitals
    return any(
        word == other
        or (len(word) >= _ABBREVIATED and len(other) > 3 and word.startswith(other))
        or (may_be_misspelt and is_misspelling(word, other, original.language))
        for other in reading.plain
    )


class Keeping:
    """How much of one original a ledger keeps."""

    def __init__(self, original: Reading, ledger: Ledger, share: Decimal, *, is_deletion: bool):
        self.original = original
        self.ledger = ledger
        self.share = float(max(share, DELETION_SHARE) if is_deletion else share)
        self.is_deletion = is_deletion

    @cached_property
    def weights(self) -> dict[str, float]:
        return {key: self.ledger.weight(self.original, key) for key in self.original.words}

    @cached_property
    def total(self) -> float:
        return sum(self.weights.values())

    def rough_share(self, carrier: Reading) -> float:
        """Return the share of the weight that stands in a text in the same form."""
        if not self.total:
            return float(self.weights.keys() <= carrier.forms)
        return sum(self.weights[key] for key in self.weights.keys() & carrier.forms) / self.total

    def is_carried_by(self, carrier: Reading) -> bool:
        # most texts have too few words in common to be looked at closely
        common, words = self.original.words.keys() & carrier.forms, len(self.original.words)
        return len(common) >= words // 2 and not any(self.lacking(carrier))

    def lacking(self, carrier: Reading) -> Iterator[Objection]:
        """Yield what a text would need to carry the original."""
        original = self.original
        missing = [key for key in self.weights if not says(carrier, key, original)]
        details = [key for key in missing if key in original.details]
        quotations = [
            quoted
            for flat, quoted in original.quotations.items()
            if flat.replace(" ", "") not in carrier.row.replace(" ", "")
        ]
        if details or quotations:
            yield Objection("detail", (*original.as_written(details), *quotations))
        if codes := [code for code in original.codes if code not in carrier.text]:
            yield Objection("code", tuple(sorted(codes)))
        names = [key for key in self.ledger.names(original) if key in missing]
        if lost := (*original.as_written(names), *sorted(original.subject - carrier.forms)):
            yield Objection("name", lost)
        if units := [
            number
            for number, unit in original.units.items()
            if number in carrier.forms and not unit & carrier.units.get(number, set())
        ]:
            yield Objection("unit", original.as_written(units))
        if self.is_deletion and _is_denied_otherwise(original, carrier):
            yield Objection("negation")
        if items := [key for key in original.items if key in missing]:
            yield Objection("list", original.as_written(items))
        plain = [key for key in missing if key not in original.details]
        plain.sort(key=lambda key: -self.weights[key])
        if needed := self._needed(plain, missing):
            yield Objection("words", original.as_written(plain[:_SHOWN_WORDS]), needed=needed)
        elif not (details or names) and (passage := self._missing_passage(set(missing))):
            yield Objection("run", original.as_written(passage))

    def details_and_names(self) -> tuple[str, ...]:
        """Return the details and names of the original, which no paraphrase can replace."""
        names = self.ledger.names(self.original) - self.original.details.keys()
        return self.original.as_written([*self.original.details, *sorted(names)])

    def _needed(self, plain: list[str], missing: list[str]) -> int:
        weighty = sum(weight > _WEIGHS for weight in self.original.words.values())
        allowed = max(1, int(_MISSING_SHARE * weighty + 1e-9))
        left = sum(self.original.words[key] > _WEIGHS for key in missing)
        kept = self.total - sum(self.weights[key] for key in missing)
        for added, key in enumerate((*plain, "")):
            enough = kept >= self.share * self.total - 1e-9 and (self.total or not missing)
            if enough and left <= allowed:
                return added
            if key:
                kept, left = kept + self.weights[key], left - (self.original.words[key] > _WEIGHS)
        return len(plain)

    def _missing_passage(self, missing: set[str]) -> list[str]:
        passage: list[str] = []
        weight = 0.0
        for key, _ in self.original.order:
            if key not in missing:
                passage, weight = [], 0.0
            else:
                passage.append(key)
                weight += _EACH_WORD + self.original.words[key]
                if weight > _PASSAGE:
                    return passage
        return []


def left_out(keeping: Keeping, result: Reading | None, without: Iterable[int]) -> list[Objection]:
    """Return what the new text (or nearest memory) lacks; nothing if one text carries it."""
    if not keeping.original.words:
        return []
    best = list(keeping.lacking(result)) if result is not None else []
    if result is not None and not best:
        return []
    nearest = keeping.ledger.nearest(keeping.original, set(without), _LOOKED_AT)
    for carrier in sorted(nearest, key=keeping.rough_share, reverse=True):
        if keeping.rough_share(carrier) < _RELATED:
            break
        lacking = list(keeping.lacking(carrier))
        if not lacking:
            return []
        best = best or lacking
    return best or [Objection("nothing", keeping.details_and_names())]


def _is_denied_otherwise(original: Reading, carrier: Reading) -> bool:
    if (original.counts["negations"] > 0) == (carrier.counts["negations"] > 0):
        return False
    is_unspaced = any(len(key) == 2 and ord(key[0]) > 0x2E80 for key in original.words)
    newly = (carrier.denied - original.denied) & original.words.keys()
    return original.counts["negations"] > 0 or is_unspaced or bool(newly)
