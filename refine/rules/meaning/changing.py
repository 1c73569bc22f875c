"""What a new text adds to its sources, or turns round."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from refine.rules.meaning.keeping import is_reordered, says, turned, unsaid
from refine.rules.meaning.ledger import Ledger
from refine.rules.meaning.objections import Objection
from refine.rules.meaning.reading import Reading, is_light, is_unspaced

# No stemmer knows all forms of their words.
_MANY_FORMS = frozenset({"tr", "fi", "uk", "he", "hi", "ar", "el", "cs"})
# A merge may say what it merges in a word of its own, if that is a common one; in an update such
# a word is doubtful.
_TELLING = 0.35


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
    new = [key for key in new if not _is_stored(result.details.get(key, ()), said, stored)]
    for kind, words in unsaid(result, said, new, ledger).items():
        # a German noun may look like a name
        is_noun = kind == "name" and result.language == "de"
        yield Objection("words added" if is_noun else f"{kind} added", words)
    others = set(new) - ledger.names(result) - result.details.keys()
    yield from _words_added(sorted(others), said, result, is_update=len(sources) == 1)
    yield from _denied(sources, result)
    for kind in ("condition", "hedge"):
        before, now = [each.counts[f"{kind}s"] for each in sources], result.counts[f"{kind}s"]
        if (now and not any(before)) or (len(sources) == 1 and before[0] and not now):
            yield Objection(kind)
    yield from turned(sources, result, ledger)
    if len(sources) == 1 and is_reordered(sources[0], result):
        yield Objection("order")
    told = [source.counts["occasions"] for source in sources if source.counts["occasions"]]
    if len(told) > 1 and result.counts["occasions"] < sum(told):
        yield Objection("occasion")


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
    counts = [source.counts["negations"] for source in sources]
    fewest = result.counts["negations"] - sum(source.counts["contrasts"] for source in sources)
    most = result.counts["negations"] + result.counts["contrasts"]
    denied = set[str]().union(*(each.denied & each.words.keys() for each in sources))
    affirmed = set[str]().union(*(each.words.keys() - each.denied for each in sources))
    freed = (denied - affirmed - result.denied) & result.words.keys()
    caught = (affirmed - denied) & result.denied
    is_fewer = len(sources) > 1 and most < sum(counts)
    if most < max(counts) or fewest > sum(counts) or (freed and (caught or is_fewer)):
        is_untold = denied and denied.isdisjoint(result.words)
        yield Objection("denial" if is_untold else "negation", result.as_written(sorted(freed)))
