"""Chooses pairs of memories that are alike, as a hint where near-duplicates may be.

Only letters are compared, not meaning: "is 17" and "is 18" are alike. Not found are texts less
alike than ``MIN_LIKENESS``; the same said in other words, or in another language; a near-copy of a
text that has a nearer one still. Where thousands of texts are made of the same few phrases, about
one near-copy in twenty is missed. The first ``READ_CHARACTERS`` of a text decide with which others
it is compared; how alike two long texts are is measured on the whole.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter

from rapidfuzz import fuzz

from refine.rules.alike_texts import MIN_LIKENESS, READ_CHARACTERS, LikelyPair, alike_texts


def likely_pairs(
    texts: Mapping[int, str], limit: int, *, locked: Collection[int] = ()
) -> list[LikelyPair]:
    """Return at most ``limit`` pairs of texts that are alike, the most alike first.

    Each text is paired with the nearest one found, so a group of five makes four pairs at most,
    not ten. Two ``locked`` texts make no pair. If there are more pairs than the limit, every group
    of texts that are alike is listed once before one is listed again.
    """
    alike = sorted(alike_texts(texts, frozenset(locked)), key=_best_first)
    pairs: list[LikelyPair] = []
    for pair in _in_turns(_nearest(alike), _groups(alike)):
        if len(pairs) >= limit:
            break
        likeness = _likeness_of_whole(pair, texts)
        if likeness >= MIN_LIKENESS:
            pairs.append(pair._replace(likeness=likeness))
    return sorted(pairs, key=_best_first)


def _best_first(pair: LikelyPair) -> tuple[int, int, int]:
    return -pair.likeness, pair.id, pair.other_id


def _likeness_of_whole(pair: LikelyPair, texts: Mapping[int, str]) -> int:
    """Return the likeness of two entire texts; so far, only their beginnings may be compared."""
    one, other = texts[pair.id], texts[pair.other_id]
    if max(len(one), len(other)) <= READ_CHARACTERS:
        return pair.likeness
    return min(pair.likeness, int(fuzz.ratio(one.casefold(), other.casefold())))


def _nearest(alike: Iterable[LikelyPair]) -> Iterator[LikelyPair]:
    """Yield those of the ordered pairs that are the first for one of their texts."""
    paired: set[int] = set()
    for pair in alike:
        if pair.id not in paired or pair.other_id not in paired:
            paired.update((pair.id, pair.other_id))
            yield pair


def _groups(alike: Iterable[LikelyPair]) -> dict[int, int]:
    """Return the group of each text, by its id: texts that are connected by pairs."""
    groups: dict[int, int] = {}
    for pair in alike:
        one, other = _root(groups, pair.id), _root(groups, pair.other_id)
        groups[one] = other
    return {id_: _root(groups, id_) for id_ in groups}


def _root(groups: dict[int, int], id_: int) -> int:
    while (above := groups.setdefault(id_, id_)) != id_:
        groups[id_] = groups[above]  # shortens the way for the next time
        id_ = above
    return id_


def _in_turns(pairs: Iterable[LikelyPair], groups: dict[int, int]) -> list[LikelyPair]:
    """Return the first pair of each group, then the second of each, and so on."""
    turns: Counter[int] = Counter()
    ranked: list[tuple[int, LikelyPair]] = []
    for pair in pairs:
        group = groups[pair.id]
        ranked.append((turns[group], pair))
        turns[group] += 1
    return [pair for _, pair in sorted(ranked, key=itemgetter(0))]
