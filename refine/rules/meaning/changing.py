"""What a new text adds to its sources, or turns round."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from refine.rules.meaning.keeping import says
from refine.rules.meaning.ledger import Ledger
from refine.rules.meaning.objections import Objection
from refine.rules.meaning.reading import Reading


def changed(
    sources: Sequence[Reading],
    result: Reading,
    ledger: Ledger,
    stored: Collection[str],
    earlier: Sequence[Reading] = (),
) -> Iterator[Objection]:
    """Yield objections; a text may name ``stored`` months, and repeat what ``earlier`` said."""
    said = [*sources, *earlier]
    new = [key for key in result.words if not any(says(each, key, result) for each in said)]
    yield from _details_added(new, said, result, stored)
    yield from _words_added(new, said, result, ledger, is_update=len(sources) == 1)
    yield from _units_changed(sources, result)
    yield from _turned(sources, result)
    yield from _reordered(sources, result, ledger)
    told = [source.counts["occasions"] for source in sources if source.counts["occasions"]]
    if len(told) > 1 and result.counts["occasions"] < sum(told):
        yield Objection("occasion")


def _details_added(
    new: list[str], sources: Sequence[Reading], result: Reading, stored: Collection[str]
) -> Iterator[Objection]:
    rows = [source.row.replace(" ", "") for source in sources]
    details = [
        result.written[key]
        for key in new
        if key in result.details and not _is_stored(result.details[key], sources, stored)
    ]
    details += [
        quoted
        for flat, quoted in result.quotations.items()
        if not any(flat.replace(" ", "") in row for row in rows)
    ]
    if details:
        yield Objection("detail added", tuple(details))
    if codes := [code for code in result.codes if not any(code in each.text for each in sources)]:
        yield Objection("code added", tuple(sorted(codes)))


def _words_added(
    new: list[str], sources: Sequence[Reading], result: Reading, ledger: Ledger, *, is_update: bool
) -> Iterator[Objection]:
    subjects = frozenset[str]().union(*(source.subject for source in sources))
    names = ledger.names(result).intersection(new) - subjects
    if names:
        # a German noun may look like a name
        kind = "detail added" if result.language == "de" else "name added"
        yield Objection(kind, result.as_written(sorted(names)))
    words = [key for key in new if key not in result.details and key not in names]
    words = [key for key in words if result.words[key] and ord(key[0]) < 0x2E80]
    if words and is_update:
        yield Objection("word added", result.as_written(sorted(words)))


def _is_stored(keys: Iterable[str], sources: Sequence[Reading], stored: Collection[str]) -> bool:
    days = {key for each in sources for key in each.forms if key.startswith("#--")}
    return any(key in stored or (key[:8] in stored and f"#--{key[6:]}" in days) for key in keys)


def _units_changed(sources: Sequence[Reading], result: Reading) -> Iterator[Objection]:
    numbers = []
    for number in result.details:
        before = [source.units.get(number, set()) for source in sources if number in source.forms]
        now = result.units.get(number, set())
        if before and not any(now == units or (now and now <= units) for units in before):
            numbers.append(number)
    if numbers:
        yield Objection("unit changed", result.as_written(sorted(numbers)))


def _turned(sources: Sequence[Reading], result: Reading) -> Iterator[Objection]:
    counts = [source.counts["negations"] for source in sources]
    freed: set[str] = set()
    if len(sources) > 1 and result.counts["negations"] < sum(counts):
        affirmed = set[str]().union(*(each.words.keys() - each.denied for each in sources))
        denied = set[str]().union(*(each.denied for each in sources))
        freed = (denied - affirmed) & (result.words.keys() - result.denied)
    if freed or not max(counts) <= result.counts["negations"] <= sum(counts):
        yield Objection("negation", result.as_written(sorted(freed)))
    for kind in ("condition", "hedge"):
        before = [source.counts[f"{kind}s"] for source in sources]
        now = result.counts[f"{kind}s"]
        if (now and not any(before)) or (len(sources) == 1 and before[0] and not now):
            yield Objection(kind)


def _reordered(sources: Sequence[Reading], result: Reading, ledger: Ledger) -> Iterator[Objection]:
    if len(sources) == 1:
        row, now = sources[0].row.split(), result.row.split()
        if row != now and sorted(row) == sorted(now):
            yield Objection("order")
    names = set[str]().union(*(ledger.names(source) for source in sources)) & result.words.keys()
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
    for (before, after), key in moved.items():
        if before < after and (after, before) in moved:
            yield Objection("exchange", result.as_written((key, moved[after, before])))


def _said_of(reading: Reading, names: Collection[str]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    name, sentence = "", 0
    for key, number in reading.order:
        if number != sentence:
            name, sentence = "", number
        if key in names:
            name = key
        elif name:
            found[key].add(name)
    return found
