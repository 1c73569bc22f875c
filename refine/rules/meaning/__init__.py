"""Whether an edit keeps what memories say: a check in code, of words alone."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import cached_property
from heapq import nlargest
from itertools import groupby

from rapidfuzz.distance import OSA

from refine.rules.meaning.differences import (
    Objection as Objection,
    changed,
    details_lost as details_lost,
    is_reordered,
    refusal as refusal,
    says,
    turned,
    unsaid,
)
from refine.rules.meaning.reading import LedgerTexts as LedgerTexts, Reading
from refine.rules.meaning.words import is_unspaced, language_of

# One other memory must carry this share of a deleted one.
DELETION_SHARE = Decimal("0.8")
# One word may be missing, or this share of those that weigh anything.
_MISSING_SHARE, _WEIGHS = 0.15, 0.2
# No words that stand side by side may be missing that weigh more than this together.
_PASSAGE, _EACH_WORD = 0.9, 0.15
# A text that shares less is about something else, and does not replace another.
_RELATED = 0.15
_LOOKED_AT = 4
_SHOWN_WORDS = 8
_NEWEST = 3


def objections(
    ledger: LedgerTexts,
    sources: Mapping[int, str],
    content: str | None,
    originals: Iterable[str] = (),
    *,
    share: Decimal,
    own: Collection[int] = (),
    months: Collection[str] = (),
) -> list[Objection]:
    """Return what is wrong with an edit that puts ``content`` (None: nothing) in place of memories.

    ``sources`` are the texts of these memories, which still stand in the ``ledger``; those of
    ``own`` are words of the session itself, which it may take back. ``originals``, what memories
    said earlier, count as far as a source still says it. ``months`` are those in which the sources
    were stored, as 2026-03.
    """
    language = language_of("\n".join((*sources.values(), content or "")))
    readings = {id_: ledger.read(text, language) for id_, text in sources.items()}
    result = ledger.read(content, language) if content is not None else None
    untouched = [(id_, reading) for id_, reading in readings.items() if id_ not in own]
    still_said = said_earlier(ledger, sources, originals, share)
    earlier = [(id_, ledger.read(text, language)) for id_, text in still_said]

    def left_out_of(texts: Iterable[tuple[int, Reading]]) -> Iterator[Objection]:
        for id_, original in texts:
            keeping = Keeping(original, ledger, share, is_deletion=result is None)
            for each in keeping.left_out(result, readings):
                yield each._replace(memory_id=id_)

    found = list(left_out_of(untouched))
    owed = (each for each in left_out_of(earlier) if each not in found)
    found += [each._replace(is_owed=True) for each in owed]
    if result is not None:
        dates = {f"#{key}" for each in months for key in (each, each[:4], f"-{each[4:]}")}
        found += changed([*readings.values()], result, ledger, dates, [each for _, each in earlier])
    return list(dict.fromkeys(found))


def is_said(original: str, texts: Iterable[str], share: Decimal) -> bool:
    ledger = LedgerTexts()
    keeping = Keeping(ledger.read(original), ledger, share, is_deletion=False)
    return any(keeping.is_carried_by(ledger.read(text)) for text in texts)


def said_earlier(
    ledger: LedgerTexts, sources: Mapping[int, str], originals: Iterable[str], share: Decimal
) -> Iterator[tuple[int, str]]:
    """Yield the originals that memories still say, each with the id of one that does."""
    readings = {id_: ledger.read(text) for id_, text in sources.items()}
    for text in dict.fromkeys(originals):
        keeping = Keeping(ledger.read(text), ledger, share, is_deletion=False)
        carriers = (id_ for id_, each in readings.items() if keeping.is_carried_by(each))
        if (id_ := next(carriers, None)) is not None:
            yield id_, text


def likely_carriers(ledger: LedgerTexts, text: str, without: Collection[int]) -> list[int]:
    """Return the ids of the few memories that say most of a text, the likeliest first.

    Where none has its words, the newest: they may say it in another language.
    """
    keeping = Keeping(ledger.read(text), ledger, Decimal(1), is_deletion=True)
    shares = {id_: keeping.rough_share(each) for id_, each in keeping.nearest(without)}
    likely = [id_ for id_, share in shares.items() if share >= max(shares.values()) / 2]
    return likely or nlargest(_NEWEST, ledger.texts.keys() - set(without))


def speak_of_the_same(ledger: LedgerTexts, one: str, other: str) -> bool:
    """Tell whether two texts have enough in common for the ``other`` to replace the ``one``.

    Names in common are not enough, unless one of them is spelt in another way.
    """
    language = language_of(f"{one}\n{other}")
    original, successor = ledger.read(one, language), ledger.read(other, language)
    telling = original.words.keys() - original.details.keys()
    weights = {key: ledger.weight(original, key) for key in telling}
    names = (ledger.names(original) | original.head_capitals) & telling
    common = {key for key in weights if says(successor, key, original)}
    rest = names - common
    respelt = {key for key in rest for each in successor.words if OSA.distance(key, each) == 1}
    is_more = respelt or not common <= names or len(common) > 1
    said = sum(weights[key] for key in common | respelt)
    return bool(is_more) and said >= _RELATED * sum(weights.values())


class Keeping:
    """How much of one original a ledger keeps."""

    def __init__(
        self, original: Reading, ledger: LedgerTexts, share: Decimal, *, is_deletion: bool
    ):
        self.original = original
        self.ledger = ledger
        self.share = float(max(share, DELETION_SHARE) if is_deletion else share)
        self.is_deletion = is_deletion

    @cached_property
    def weights(self) -> dict[str, float]:
        return {key: self.ledger.weight(self.original, key) for key in self.original.words}

    def left_out(self, result: Reading | None, without: Iterable[int]) -> list[Objection]:
        """Return what the new text (or nearest memory) lacks; nothing if one text carries it."""
        original = self.original
        if not (original.words or original.codes or original.quotations):
            return []
        best = list(self.lacking(result)) if result is not None else []
        if result is not None and not best:
            return []
        for _, carrier in self.nearest(without):
            lacking = list(self.lacking(carrier))
            if not lacking:
                return []
            best = best or lacking
        told = dict.fromkeys((*original.details, *sorted(self.ledger.names(original))))
        return best or [Objection("nothing", original.as_written(told))]

    def nearest(self, without: Iterable[int]) -> Iterator[tuple[int, Reading]]:
        """Yield the memories that say most of the original, with their ids."""
        for id_ in self.ledger.nearest_ids(self.original, set(without), _LOOKED_AT):
            carrier = self.ledger.read(self.ledger.texts[id_], self.original.language)
            if self.rough_share(carrier) < _RELATED:
                break
            yield id_, carrier

    def rough_share(self, carrier: Reading) -> float:
        """Return the share of the weight that stands in a text in the same form."""
        total = sum(self.weights.values())
        if not total:
            return float(self.weights.keys() <= carrier.forms)
        return sum(self.weights[key] for key in self.weights.keys() & carrier.forms) / total

    def is_carried_by(self, carrier: Reading) -> bool:
        # most texts have too few words in common to be looked at closely
        common, words = self.original.words.keys() & carrier.forms, len(self.original.words)
        return len(common) >= words // 2 and not any(self.lacking(carrier))

    def lacking(self, carrier: Reading) -> Iterator[Objection]:
        """Yield what a text would need to carry the original."""
        original = self.original
        missing = [key for key in self.weights if not says(carrier, key, original)]
        found = unsaid(original, [carrier], missing, self.ledger)
        yield from (Objection(kind, words) for kind, words in found.items())
        if self.is_deletion:
            yield from turned([carrier], original, self.ledger)
            yield from self._turned(carrier)
        told = {word for words in found.values() for word in words}
        unnamed = [key for key in missing if original.written.get(key) not in told]
        if items := [key for key in unnamed if key in original.items]:
            yield Objection("list", original.as_written(items))
        rest = [key for key in unnamed if key not in items]
        rest.sort(key=lambda key: -self.weights[key])
        if needed := self._needed(rest):
            words = original.as_written(rest[: max(needed, _SHOWN_WORDS)])
            yield Objection("words", words, needed=min(needed, len(words)))
        elif len(rest) == len(missing):
            yield from self._missing_passages(missing)

    def _turned(self, carrier: Reading) -> Iterator[Objection]:
        original = self.original
        is_denied, now = original.told["negations"], carrier.told["negations"]
        denied = original.denied & original.words.keys()
        newly = (carrier.denied - denied) & original.words.keys()
        if is_denied and not now:
            is_untold = denied and denied.isdisjoint(carrier.words)
            yield Objection("denial" if is_untold else "negation", tuple(is_denied))
        elif now and not is_denied and (newly or original.script):
            yield Objection("negation", tuple(now))
        if original.script and is_reordered(original, carrier):
            yield Objection("reordered")

    def _needed(self, missing: list[str]) -> int:
        """Return how many of these words, the first ones first, would be enough."""
        total = sum(self.weights.values())
        heavy = {key for key, weight in self.original.words.items() if weight > _WEIGHS}
        allowed = max(1, int(_MISSING_SHARE * len(heavy) + 1e-9))
        for needed in range(len(missing)):
            left = set(missing[needed:])
            lost = sum(self.weights[key] for key in left)
            is_enough = lost <= (1 - self.share) * total + 1e-9 and (total or not left)
            if is_enough and len(left & heavy) <= allowed:
                return needed
        return len(missing)

    def _missing_passages(self, missing: list[str]) -> Iterator[Objection]:
        words, keys = self.original.words, (key for key, _ in self.original.order)
        for is_missing, run in groupby(keys, missing.__contains__):
            passage = list(run)
            each_word = 0 if is_unspaced(passage[0]) else _EACH_WORD
            if is_missing and sum(each_word + words[key] for key in passage) > _PASSAGE:
                yield Objection("run", self.original.as_written(passage))
