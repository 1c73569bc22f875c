"""How one text differs from others, as objections to an edit."""

import calendar
import re
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from refine.rules.meaning.reading import LedgerTexts, Reading
from refine.rules.meaning.words import fold, is_light, is_misspelling, is_unspaced, opposites, stem
from refine.rules.quantities import abbreviated

_SHOWN_CHARACTERS = 200
_KINDS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("objections.toml").read_text(encoding="utf-8")
)
# No stemmer knows all forms of their words.
_MANY_FORMS = frozenset({"tr", "fi", "uk", "he", "hi", "ar", "el", "cs"})
# Who does what is told by more than the order of words: only a reader can tell.
_FREE_ORDER = frozenset({"de"})
# A merge may say what it merges in a word of its own, if that is a common one; in an update such
# a word is doubtful.
_TELLING = 0.35
# A form of a word may have endings that its stemmer does not know.
_STEM_LENGTH = 4


class Objection(NamedTuple):
    """One fault of an edit: its memory, the words, and how many of them are ``needed``.

    ``kind`` is a table of ``objections.toml``, ``earlier`` what the memory said before edits.
    """

    kind: str
    words: tuple[str, ...] = ()
    memory_id: int | None = None
    needed: int = 0
    earlier: str | None = None

    @property
    def is_sure(self) -> bool:
        """Tell whether it is final; a doubtful one may be overruled by a second reading."""
        return bool(_KINDS[self.kind].get("is_sure"))

    @property
    def is_slight(self) -> bool:
        """Tell whether the edit may stand all the same, if few memories lose words."""
        return bool(_KINDS[self.kind].get("is_slight"))

    def __str__(self) -> str:
        return f"{self._told('text')}: {self._told('remedy')}"

    @property
    def of_removal(self) -> str:
        return self._told("removal" if "removal" in _KINDS[self.kind] else "text")

    def _told(self, part: str) -> str:
        words = abbreviated([f'"{_shown(word)}"' for word in self.words], ", ")
        memory, it = f"#{self.memory_id}", "it" if len(self.words) == 1 else "them"
        if self.earlier is not None:
            memory += " as it was before edits of the last 30 days"
        text: str = _KINDS[self.kind][part]
        return text.format(memory=memory, words=words, needed=self.needed, it=it)


def refusal(objections: Sequence[Objection], *, is_deletion: bool = False) -> str:
    """Return all that is wrong with an edit, and what to do about each in a new text."""
    told: dict[tuple[object, ...], Objection] = {}
    for each in objections:
        if each.earlier is not None and each._replace(earlier=None) in objections:
            continue  # the memory would lose the same as it is
        alike = *_KINDS[each.kind].items(), each.memory_id, bool(each.earlier)
        before = told[alike].words if alike in told else ()
        told[alike] = each._replace(words=(*before, *each.words))
    faults = [each.of_removal if is_deletion else str(each) for each in told.values()]
    return abbreviated(faults, "; ")


def details_lost(objections: Iterable[Objection]) -> int:
    """Return how many details, names and list items an edit leaves out."""
    kinds = {"nothing", "detail", "name", "list", "code"}
    return len({word for each in objections if each.kind in kinds for word in each.words})


def memories_worn(objections: Sequence[Objection]) -> int:
    """Return how many memories lose words: of one, each that was merged into it; at least one."""
    earlier = {(each.memory_id, each.earlier) for each in objections if each.earlier is not None}
    present = {each.memory_id for each in objections} - {id_ for id_, _ in earlier} - {None}
    return len(earlier) + len(present) or 1


def _shown(word: str) -> str:
    if day := re.fullmatch(r"--(\d\d)(?:-(\d\d))?", word):  # a date without its year
        return " ".join([*filter(None, [day[2]]), calendar.month_name[int(day[1])]])
    return word if len(word) <= _SHOWN_CHARACTERS else f"{word[:_SHOWN_CHARACTERS]}…"


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
    original: Reading, others: Sequence[Reading], missing: Collection[str], ledger: LedgerTexts
) -> dict[str, tuple[str, ...]]:
    """Return what others must say as it stands in a text, and do not, by the kind of objection.

    ``missing`` are the keys of its words that none of them says in whatever form.
    """
    details = original.as_written(key for key in missing if key in original.details)
    rows, texts = [each.flat_row for each in others], [each.text for each in others]
    quoted = [said for flat, said in original.quotations.items() if not _stands_in(flat, rows)]
    codes = sorted(code for code in original.codes if not _stands_in(code, texts))
    subjects = original.subject - set[str]().union(*(each.forms for each in others))
    named = ledger.names(original).intersection(missing) if missing else ()
    names = original.as_written(sorted(named))
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


def turned(sources: Sequence[Reading], result: Reading, ledger: LedgerTexts) -> Iterator[Objection]:
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
        if not owners & was[key]
        for before in was[key]
        for after in owners
    }
    for (before, after), key in moved.items():
        if before < after and (after, before) in moved:
            exchange = Objection("exchange", result.as_written((key, moved[after, before])))
            yield _FREELY if _is_freely_reordered(sources, result) else exchange


def _owners(reading: Reading, ledger: LedgerTexts) -> set[str]:
    """Return names, and the first word of each sentence: of these the others are said."""
    firsts = {sentence: key for key, sentence in reversed(reading.order)}
    return ledger.names(reading).union(firsts.values())


def _said_of(reading: Reading, names: Collection[str]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for _, sentence in groupby(reading.order, itemgetter(1)):
        name, *others = (key for key, _ in sentence)
        for key in others:
            found[key].add(name)
            name = key if key in names else name
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


_FREELY = Objection("reordered")


def _is_freely_reordered(sources: Sequence[Reading], result: Reading) -> bool:
    is_free = result.language in _FREE_ORDER
    return is_free and any(is_reordered(source, result) for source in sources)


def changed(
    sources: Sequence[Reading],
    result: Reading,
    ledger: LedgerTexts,
    stored: Collection[str],
    earlier: Sequence[Reading] = (),
) -> Iterator[Objection]:
    """Yield objections; a text may name ``stored`` months, and repeat what ``earlier`` said."""
    said = [*sources, *earlier]
    new = [key for key in result.words if not any(says(each, key, result) for each in said)]
    new = [key for key in new if not _is_stored(result.details.get(key, ()), said, stored)]
    for kind, words in unsaid(result, said, new, ledger).items():
        # a German noun may look like a name
        is_noun = kind == "name" and result.language == "de"
        yield Objection("words added" if is_noun else f"{kind} added", words)
    others = set(new) - ledger.names(result) - result.details.keys()
    yield from _words_added(sorted(others), said, result, is_update=len(sources) == 1)
    yield from _denied(sources, result)
    for kind in ("condition", "hedge"):
        before, now = [each.told[f"{kind}s"] for each in sources], result.told[f"{kind}s"]
        if (now and not any(before)) or (len(sources) == 1 and before[0] and not now):
            yield Objection(kind, _distinct([now, *before]))
    yield from turned(sources, result, ledger)
    if len(sources) == 1 and is_reordered(sources[0], result):
        yield _FREELY if _is_freely_reordered(sources, result) else Objection("order")
    told = [source.told["occasions"] for source in sources if source.told["occasions"]]
    if len(told) > 1 and len(result.told["occasions"]) < sum(map(len, told)):
        yield Objection("occasion", _distinct(told))


def _distinct(words: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(words)))


def _words_added(
    new: Iterable[str], sources: Sequence[Reading], result: Reading, *, is_update: bool
) -> Iterator[Objection]:
    words = [key for key in new if result.words[key] and not _is_known_in_part(key, sources)]
    telling = [key for key in words if result.words[key] > _TELLING]
    if telling and is_update and result.language not in _MANY_FORMS:
        yield Objection("word added", result.as_written(telling))
    elif telling or (words and is_update):
        yield Objection("words added", result.as_written(words))


def _is_known_in_part(key: str, sources: Sequence[Reading]) -> bool:
    """Of a word of a script without spaces, two neighbours may belong to two words."""
    return is_unspaced(key) and any(
        is_light(each) or each in source.forms for each in key for source in sources
    )


def _is_stored(keys: Iterable[str], sources: Sequence[Reading], stored: Collection[str]) -> bool:
    days = {key for each in sources for key in each.forms if key.startswith("#--")}
    return any(key in stored or (key[:8] in stored and f"#--{key[6:]}" in days) for key in keys)


def _denied(sources: Sequence[Reading], result: Reading) -> Iterator[Objection]:
    negations, contrasts = (
        [len(each.told[role]) for each in (result, *sources)] for role in ("negations", "contrasts")
    )
    now, before = negations[0], negations[1:]
    fewest, most = now - sum(contrasts[1:]), now + contrasts[0]
    denied = set[str]().union(*(each.denied for each in sources))
    affirmed = set[str]().union(*(each.words.keys() - each.denied for each in sources))
    freed = (denied - affirmed - result.denied) & result.words.keys()
    caught = (affirmed - denied) & result.denied
    if most < max(before) or fewest > sum(before) or (freed and (caught or most < sum(before))):
        is_untold = denied and denied.isdisjoint(result.words)
        words = _distinct(each.told["negations"] for each in (*sources, result))
        yield Objection("denial" if is_untold else "negation", words)
