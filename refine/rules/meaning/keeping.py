"""Whether one kept memory carries all that matters of another one."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import groupby, pairwise

from rapidfuzz.distance import OSA

from refine.rules.folding import fold
from refine.rules.meaning.ledger import Ledger
from refine.rules.meaning.objections import Objection
from refine.rules.meaning.reading import Reading, is_light, is_unspaced
from refine.rules.meaning.words import is_misspelling, opposites, stem

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
# A form of a word may have endings that its stemmer does not know.
_STEM_LENGTH = 4


def says(reading: Reading, key: str, original: Reading) -> bool:
    """Tell whether a text says one of the words of another, in whatever form."""
    if key in reading.forms:
        return True
    if key in original.details:
        return not reading.forms.isdisjoint(original.details[key])
    if is_unspaced(key):
        return _stands_in_parts(key, reading, original)
    word = fold(original.written[key])
    if not word.isalpha():
        return False
    may_be_misspelt = key not in original.inner_capitals
    return word in reading.plain or any(
        (word.startswith(other) and len(other) > _STEM_LENGTH)
        or (may_be_misspelt and is_misspelling(word, other, original.language))
        for other in reading.plain
    )


def _stands_in_parts(pair: str, reading: Reading, original: Reading) -> bool:
    """Tell whether two neighbours stand in a text apart, each with its other neighbour, or at the
    edge of a word.
    """
    before, after = original.beside.get(pair, ("", ""))
    parts = ((pair[0], f"{pair[0]}|", before), (pair[-1], f"|{pair[-1]}", after))
    found = [
        edge in reading.forms or (beside in reading.forms and not any(map(is_light, beside)))
        for each, edge, beside in parts
        if not is_light(each)
    ]
    return bool(found) and all(found)


def unsaid(
    original: Reading, others: Sequence[Reading], missing: Collection[str], ledger: Ledger
) -> dict[str, tuple[str, ...]]:
    """Return what others must say as it stands in a text, and do not, by the kind of objection.

    ``missing`` are the keys of its words that none of them says in whatever form.
    """
    details = original.as_written(key for key in missing if key in original.details)
    rows, texts = [each.flat_row for each in others], [each.text for each in others]
    quoted = [said for flat, said in original.quotations.items() if not _stands_in(flat, rows)]
    codes = sorted(code for code in original.codes if not _stands_in(code, texts))
    subjects = original.subject - set[str]().union(*(each.forms for each in others))
    names = original.as_written(sorted(ledger.names(original).intersection(missing)))
    found = {
        "detail": (*details, *quoted),
        "code": tuple(codes),
        "name": tuple(name for name in (*names, *sorted(subjects)) if name not in codes),
        "unit": original.as_written(_without_their_unit(original, others)),
    }
    return {kind: words for kind, words in found.items() if words}


def _stands_in(words: str, texts: Iterable[str]) -> bool:
    return any(words in text for text in texts)


def _without_their_unit(original: Reading, others: Iterable[Reading]) -> Iterator[str]:
    for number, unit in original.units.items():
        said = [each.units.get(number, set()) for each in others if number in each.forms]
        if said and not any(unit & each for each in said):
            yield number


def turned(sources: Sequence[Reading], result: Reading, ledger: Ledger) -> Iterator[Objection]:
    """Yield what a text says the opposite of, and which names in it have changed places."""
    known = opposites(result.script or result.language)
    said = set[str]().union(*(source.forms for source in sources))
    new = (result.forms & known.keys()) - said
    if words := sorted(key for key in new if (known[key] & said) - result.forms):
        yield Objection("opposite", result.as_written(words))
    names = set[str]().union(*(_owners(each, ledger) for each in (*sources, result)))
    was: defaultdict[str, set[str]] = defaultdict(set)
    for source in sources:
        for key, owners in _said_of(source, names).items():
            was[key] |= owners
    moved = {
        (before, after): key
        for key, owners in _said_of(result, names).items()
        if key in was and not owners & was[key]
        for before in was[key]
        for after in owners
    }
    neighbours = {(a[0], b[0]) for each in (*sources, result) for a, b in pairwise(each.order)}
    for (before, after), key in moved.items():
        is_exchange = before < after and (after, before) in moved
        if is_exchange and neighbours.isdisjoint({(before, after), (after, before)}):
            yield Objection("exchange", result.as_written((key, moved[after, before])))


def _owners(reading: Reading, ledger: Ledger) -> set[str]:
    """Return names, and the first word of each sentence: of these the others are said."""
    firsts = {sentence: key for key, sentence in reversed(reading.order)}
    return ledger.names(reading).union(firsts.values())


def _said_of(reading: Reading, names: Collection[str]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    name, sentence = "", 0
    for key, number in reading.order:
        if number != sentence:
            name, sentence = "", number
        if name and key != name:
            found[key].add(name)
        if key in names:
            name = key
    return found


def is_reordered(original: Reading, result: Reading) -> bool:
    """Tell whether two texts have the same words in another order, but for two parts that stand
    side by side and have changed places.
    """
    readings = (original, result)
    row, now = ([stem(word, each.language) for word in each.row.split()] for each in readings)
    if row == now or sorted(row) != sorted(now):
        return False
    while row[0] == now[0]:
        row, now = row[1:], now[1:]
    while row[-1] == now[-1]:
        row, now = row[:-1], now[:-1]
    return not any(now == row[cut:] + row[:cut] for cut in range(1, len(row)))


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
        is_denied, now = original.counts["negations"] > 0, carrier.counts["negations"] > 0
        denied = original.denied & original.words.keys()
        newly = (carrier.denied - denied) & original.words.keys()
        if is_denied and not now:
            is_untold = denied and denied.isdisjoint(carrier.words)
            yield Objection("denial" if is_untold else "negation")
        elif now and not is_denied and (newly or original.script):
            yield Objection("negation", original.as_written(sorted(newly)))
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


def nearest(keeping: Keeping, without: Iterable[int]) -> Iterator[tuple[int, Reading]]:
    """Yield the memories that say most of an original, with their ids."""
    ledger, original = keeping.ledger, keeping.original
    for id_ in ledger.nearest_ids(original, set(without), _LOOKED_AT):
        carrier = ledger.read(ledger.texts[id_], original.language)
        if keeping.rough_share(carrier) < _RELATED:
            break
        yield id_, carrier


def have_a_subject(original: Reading, other: Reading, ledger: Ledger) -> bool:
    """Tell whether a text says enough of what another says to speak of the same."""
    telling = original.words.keys() - original.details.keys()
    weights = {key: ledger.weight(original, key) for key in telling}
    names = (ledger.names(original) | original.head_capitals) & telling
    common = {key for key in weights if says(other, key, original)}
    rest = names - common
    respelt = {key for key in rest for each in other.words if OSA.distance(key, each) == 1}
    is_more = respelt or not common <= names or len(common) > 1
    said = sum(weights[key] for key in common | respelt)
    return bool(is_more) and said >= _RELATED * sum(weights.values())


def left_out(keeping: Keeping, result: Reading | None, without: Iterable[int]) -> list[Objection]:
    """Return what the new text (or nearest memory) lacks; nothing if one text carries it."""
    if not (keeping.original.words or keeping.original.codes or keeping.original.quotations):
        return []
    best = list(keeping.lacking(result)) if result is not None else []
    if result is not None and not best:
        return []
    for _, carrier in nearest(keeping, without):
        lacking = list(keeping.lacking(carrier))
        if not lacking:
            return []
        best = best or lacking
    original = keeping.original
    told = dict.fromkeys((*original.details, *sorted(keeping.ledger.names(original))))
    return best or [Objection("nothing", original.as_written(told))]
