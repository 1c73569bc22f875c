"""Whether an edit keeps what memories say: a check in code, of words alone."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import cached_property
from heapq import nlargest
from itertools import chain

from rapidfuzz.distance import OSA

from refine.rules.meaning.differences import (
    Objection as Objection,
    changed,
    details_lost as details_lost,
    is_reordered,
    memories_worn as memories_worn,
    refusal as refusal,
    says,
    turned,
    unsaid,
)
from refine.rules.meaning.reading import LedgerTexts as LedgerTexts, Reading
from refine.rules.meaning.words import is_light, is_unspaced, language_of

# One other memory must carry this share of a deleted one.
DELETION_SHARE = Decimal("0.8")
# One word may be missing, or this share of those that weigh anything.
_MISSING_SHARE, _WEIGHS = Decimal("0.15"), 0.2
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
    untouched = [(id_, None, reading) for id_, reading in readings.items() if id_ not in own]
    still_said = said_earlier(ledger, sources, originals, share)
    earlier = [(id_, text, ledger.read(text, language)) for id_, text in still_said]
    found: list[Objection] = []
    for id_, text, original in (*untouched, *earlier):
        lacking = Keeping(original, ledger, share).left_out(result, readings)
        found += [each._replace(memory_id=id_, earlier=text) for each in lacking]
    if result is not None:
        dates = {f"#{key}" for each in months for key in (each, each[:4], f"-{each[4:]}")}
        found += changed([*readings.values()], result, ledger, dates, [r for *_, r in earlier])
    return list(dict.fromkeys(found))


def is_said(original: str, texts: Iterable[str], share: Decimal) -> bool:
    ledger = LedgerTexts()
    keeping = Keeping(ledger.read(original), ledger, share)
    return any(keeping.is_carried_by(ledger.read(text)) for text in texts)


def said_earlier(
    ledger: LedgerTexts, sources: Mapping[int, str], originals: Iterable[str], share: Decimal
) -> Iterator[tuple[int, str]]:
    """Yield the originals that memories still say, each with the id of one that does."""
    readings = {id_: ledger.read(text) for id_, text in sources.items()}
    for text in dict.fromkeys(originals):
        keeping = Keeping(ledger.read(text), ledger, share)
        carriers = (id_ for id_, each in readings.items() if keeping.is_carried_by(each))
        if (id_ := next(carriers, None)) is not None:
            yield id_, text


def likely_carriers(ledger: LedgerTexts, text: str, without: Collection[int]) -> list[int]:
    """Return the ids of the few memories that say most of a text, the likeliest first.

    Where none has its words, the newest: they may say it in another language.
    """
    keeping = Keeping(ledger.read(text), ledger, DELETION_SHARE)
    shares = {id_: keeping.rough_share(each) for id_, each in keeping.nearest(without)}
    likely = [id_ for id_, share in shares.items() if share >= DELETION_SHARE] or [*shares]
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

    def __init__(self, original: Reading, ledger: LedgerTexts, share: Decimal):
        self.original = original
        self.ledger = ledger
        self.share = share

    @cached_property
    def weights(self) -> dict[str, float]:
        return {key: self.ledger.weight(self.original, key) for key in self.original.words}

    def left_out(self, result: Reading | None, without: Iterable[int]) -> list[Objection]:
        """Return what the new text (or nearest memory) lacks; nothing if one text carries it."""
        original = self.original
        if not (original.words or original.codes or original.quotations):
            return []
        carriers: Iterator[Reading] = (each for _, each in self.nearest(without))
        if result is not None:
            carriers = chain([result], carriers)
        found = []
        for carrier in carriers:
            lacking = [*self.lacking(carrier, is_new=carrier is result)] or [*self._worn(carrier)]
            if not lacking:
                return []
            found.append(lacking)
        if found:
            # the first one, unless another lacks but a few words
            return next((each for each in found if each[0].is_slight), found[0])
        told = dict.fromkeys((*original.details, *sorted(self.ledger.names(original))))
        return [Objection("nothing", original.as_written(told))]

    def _worn(self, carrier: Reading) -> Iterator[Objection]:
        """Yield the words (of a script without spaces, the telling characters) that are missing."""
        original = self.original
        signs = {sign for key in original.words if is_unspaced(key) for sign in key}
        missing = {sign for sign in signs - carrier.forms if not is_light(sign)}
        words = (key for key in original.words if not is_unspaced(key))
        missing.update(key for key in words if not says(carrier, key, original))
        if missing:
            yield Objection("worn", original.as_written(sorted(missing)))

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

    def lacking(self, carrier: Reading, *, is_new: bool = True) -> Iterator[Objection]:
        """Yield what a new text, or else a kept memory, would need to carry the original."""
        original = self.original
        missing = [key for key in self.weights if not says(carrier, key, original)]
        found = unsaid(original, [carrier], missing, self.ledger)
        yield from (Objection(kind, words) for kind, words in found.items())
        if not is_new:
            yield from turned([carrier], original, self.ledger)
            yield from self._turned(carrier)
        told = {word for words in found.values() for word in words}
        unnamed = [key for key in missing if original.written.get(key) not in told]
        if items := [key for key in unnamed if key in original.items]:
            yield Objection("list", original.as_written(items))
        rest = [key for key in unnamed if key not in items]
        rest.sort(key=lambda key: -self.weights[key])
        share = self.share if is_new else max(self.share, DELETION_SHARE)
        if needed := self._needed(rest, float(share)):
            words = original.as_written(rest[: max(needed, _SHOWN_WORDS)])
            yield Objection("words", words, needed=min(needed, len(words)))

    def _turned(self, carrier: Reading) -> Iterator[Objection]:
        original = self.original
        is_denied, now = original.told["negations"], carrier.told["negations"]
        newly = (carrier.denied - original.denied) & original.words.keys()
        if is_denied and not now:
            is_untold = original.denied and original.denied.isdisjoint(carrier.words)
            yield Objection("denial" if is_untold else "negation", tuple(is_denied))
        elif now and not is_denied and (newly or original.script or carrier.told["closing"]):
            yield Objection("negation", tuple(now))
        if original.script and is_reordered(original, carrier):
            yield Objection("reordered")

    def _needed(self, missing: list[str], share: float) -> int:
        """Return how many of these words, the first ones first, would be enough."""
        total = sum(self.weights.values())
        heavy = {key for key, weight in self.original.words.items() if weight > _WEIGHS}
        allowed = max(1, int(_MISSING_SHARE * len(heavy)))
        for needed in range(len(missing)):
            left = set(missing[needed:])
            lost = sum(self.weights[key] for key in left)
            if lost <= (1 - share) * total + 1e-9 and len(left & heavy) <= allowed:
                return needed
        return len(missing)
