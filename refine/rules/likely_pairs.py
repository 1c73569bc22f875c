"""Finds pairs of texts that are alike in their letters, among those that share rare features."""

import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, pairwise
from operator import itemgetter, xor
from typing import NamedTuple
from zlib import crc32

from rapidfuzz import fuzz

# Names of characters of scripts that put no spaces between words begin with these.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
# One in this many of their characters ends a word, the same ones in every text.
_ENDS_WORD = 3
_END = "\n"
_SPREADING = 2_654_435_761  # Knuth's multiplicative hash: neighbours in Unicode end up apart


class _Folding(dict[int, str]):
    def __missing__(self, code_point: int) -> str:
        self[code_point] = folded = _folded(chr(code_point))
        return folded


def _folded(character: str) -> str:
    if unicodedata.category(character)[0] not in "LMN":
        return " "
    folded = unicodedata.normalize("NFKC", character).casefold()
    is_unspaced = unicodedata.name(character, "").startswith(_UNSPACED)
    is_end = is_unspaced and (ord(character) * _SPREADING >> 7) % _ENDS_WORD == 0
    return folded + _END if is_end else folded


_FOLDING = _Folding()


def rough_words(text: str) -> list[str]:
    """Return the words, regardless of case; text without spaces is cut at certain characters."""
    words = unicodedata.normalize("NFC", text).translate(_FOLDING).split()
    return words or text.split()


MIN_LIKENESS = 75
READ_CHARACTERS = 1_000

# How many of a text's rarest features are followed; of the texts that share one, in
# alphabetical order, how many on either side; and how many of all these are compared with it.
_FOLLOWED = 5
_ON_EITHER_SIDE = 12
_COMPARED = 8

_SHORT_WORDS = 12
_SHORT_CHARACTERS = 30
_EDGE_CHARACTERS = 10


class LikelyPair(NamedTuple):
    id: int
    other_id: int
    likeness: int


class _Text(NamedTuple):
    id: int
    words: str
    sorted_words: str
    features: frozenset[int]


def alike_texts(texts: Mapping[int, str], locked: frozenset[int]) -> Iterator[LikelyPair]:
    """Compare each text with its candidates; yield alike pairs, none of two ``locked`` texts."""
    read = _read(texts)
    followed = _followed_features(read)
    holders = _holders(read, followed)
    compared: set[tuple[int, int]] = set()
    for position, features in enumerate(followed):
        for candidate in _candidates(position, features, holders):
            one, other = read[position], read[candidate]
            ids = min(one.id, other.id), max(one.id, other.id)
            if ids in compared or locked.issuperset(ids):
                continue
            compared.add(ids)
            if (likeness := _likeness(one, other)) >= MIN_LIKENESS:
                yield LikelyPair(*ids, int(likeness))


def _read(texts: Mapping[int, str]) -> list[_Text]:
    read = (_text(id_, rough_words(text[:READ_CHARACTERS])) for id_, text in texts.items())
    return sorted((text for text in read if text.words), key=lambda text: (text.words, text.id))


def _text(id_: int, words: list[str]) -> _Text:
    joined = " ".join(words)
    hashes = [crc32(word.encode()) for word in words]
    features = set(map(xor, hashes, hashes[1:]))
    features.add(crc32(joined[:_EDGE_CHARACTERS].encode()))
    features.add(~crc32(joined[-_EDGE_CHARACTERS:].encode()))
    if len(words) <= _SHORT_WORDS:
        features.update(hashes)
    if len(joined) <= _SHORT_CHARACTERS:
        features.update(crc32("".join(two).encode()) for two in pairwise(joined))
    return _Text(id_, joined, " ".join(sorted(words)), frozenset(features))


def _followed_features(texts: list[_Text]) -> list[list[int]]:
    counts = Counter(chain.from_iterable(text.features for text in texts))
    shared = {feature for feature, count in counts.items() if count > 1}
    return [sorted(text.features & shared, key=counts.__getitem__)[:_FOLLOWED] for text in texts]


def _holders(texts: list[_Text], followed: list[list[int]]) -> dict[int, list[int]]:
    holders: dict[int, list[int]] = {feature: [] for features in followed for feature in features}
    for position, text in enumerate(texts):
        for feature in text.features & holders.keys():
            holders[feature].append(position)
    return holders


def _candidates(position: int, features: list[int], holders: dict[int, list[int]]) -> list[int]:
    shared: Counter[int] = Counter()
    for feature in features:
        at = bisect_left(holders[feature], position)
        shared.update(holders[feature][max(0, at - _ON_EITHER_SIDE) : at + _ON_EITHER_SIDE + 1])
    del shared[position]
    enough = 2 if len(features) == _FOLLOWED else 1
    ranked = sorted(shared, key=shared.__getitem__, reverse=True)[:_COMPARED]
    return [other for other in ranked if shared[other] >= enough]


def _likeness(one: _Text, other: _Text) -> float:
    """Return how alike two texts are, in percent, in this order of words or any other; or 0."""
    return max(
        fuzz.ratio(one.words, other.words, score_cutoff=MIN_LIKENESS),
        fuzz.ratio(one.sorted_words, other.sorted_words, score_cutoff=MIN_LIKENESS),
    )


def likely_pairs(
    texts: Mapping[int, str], limit: int, *, locked: Collection[int] = ()
) -> list[LikelyPair]:
    """Return up to ``limit`` pairs, the most alike first, each group once before any twice."""
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
    paired: set[int] = set()
    for pair in alike:
        if pair.id not in paired or pair.other_id not in paired:
            paired.update((pair.id, pair.other_id))
            yield pair


def _groups(alike: Iterable[LikelyPair]) -> dict[int, int]:
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
    turns: Counter[int] = Counter()
    ranked: list[tuple[int, LikelyPair]] = []
    for pair in pairs:
        group = groups[pair.id]
        ranked.append((turns[group], pair))
        turns[group] += 1
    return [pair for _, pair in sorted(ranked, key=itemgetter(0))]
