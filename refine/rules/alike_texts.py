"""Finds texts that are alike by their letters, without comparing every text with every other.

The texts that are compared share one of their rarest features: two neighbouring words in either
order, the beginning or the end; in short texts also single words, in very short ones two
neighbouring characters.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from operator import xor
from typing import NamedTuple
from zlib import crc32

from rapidfuzz import fuzz

from refine.rules.rough_words import rough_words

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
    """Two texts that are alike: their ids, the lower one first, and the likeness in percent."""

    id: int
    other_id: int
    likeness: int


class _Text(NamedTuple):
    """One text, as far as it is compared; features are hashes, the same in every process."""

    id: int
    words: str
    sorted_words: str
    features: frozenset[int]


def alike_texts(texts: Mapping[int, str], locked: frozenset[int]) -> Iterator[LikelyPair]:
    """Compare each text with its candidates; yield the pairs that are alike, in no order.

    Two ``locked`` texts are not compared.
    """
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
    """Read all texts that are not blank; return them in alphabetical order."""
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
    """Return each text's rarest features that another text shares, rarest first."""
    counts = Counter(chain.from_iterable(text.features for text in texts))
    shared = {feature for feature, count in counts.items() if count > 1}
    return [sorted(text.features & shared, key=counts.__getitem__)[:_FOLLOWED] for text in texts]


def _holders(texts: list[_Text], followed: list[list[int]]) -> dict[int, list[int]]:
    """Return the positions of the texts that have each of the followed features, in order."""
    holders: dict[int, list[int]] = {feature: [] for features in followed for feature in features}
    for position, text in enumerate(texts):
        for feature in text.features & holders.keys():
            holders[feature].append(position)
    return holders


def _candidates(position: int, features: list[int], holders: dict[int, list[int]]) -> list[int]:
    """Return the positions of the texts that share most of these features, the best first."""
    shared: Counter[int] = Counter()
    for feature in features:
        shared.update(_around(position, holders[feature]))
    del shared[position]
    enough = 2 if len(features) == _FOLLOWED else 1
    ranked = sorted(shared, key=shared.__getitem__, reverse=True)[:_COMPARED]
    return [other for other in ranked if shared[other] >= enough]


def _around(position: int, positions: list[int]) -> list[int]:
    at = bisect_left(positions, position)
    return positions[max(0, at - _ON_EITHER_SIDE) : at + _ON_EITHER_SIDE + 1]


def _likeness(one: _Text, other: _Text) -> float:
    """Return how alike two texts are, in percent, in this order of words or any other; or 0."""
    return max(
        fuzz.ratio(one.words, other.words, score_cutoff=MIN_LIKENESS),
        fuzz.ratio(one.sorted_words, other.sorted_words, score_cutoff=MIN_LIKENESS),
    )
