"""An agent's kept memories: how rare each word is among them, and which words are names."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from heapq import nlargest
from math import log
from typing import NamedTuple

from refine.rules.meaning.folding import clean, fold
from refine.rules.meaning.reading import Reading, read, signs_of
from refine.rules.meaning.words import frequency, guess_language, stem

# From this many memories on, the number of memories with a word counts for its weight.
_MANY_MEMORIES = 20
_WORD = re.compile(r"[^\W_]+")
_NEIGHBOURS = re.compile("(?=([\u3005-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0eff]{2}))")
_IN_SENTENCE = re.compile(r"(?<=\w )([^\W_]+)|(?<=\w[,;] )([^\W_]+)")
_UNKNOWN, _UNCOMMON = 2.0, 4.5
_GERMAN_WORD, _ALSO_ENGLISH = 3.2, 2.5
# A memory that carries a text has most of its rarest words.
_LOOKED_UP = 10
# So that words that weigh nothing decide between memories that share nothing else.
_LEAST_WEIGHT = 0.01


class _Memory(NamedTuple):
    """The counted words of a memory, by key: all, those with a capital, those without."""

    text: str
    words: frozenset[str]
    capitals: frozenset[str]
    lower: frozenset[str]


class Ledger:
    """The texts of the kept memories, and figures over all of them."""

    def __init__(self) -> None:
        self._memories: dict[int, _Memory] = {}
        self._holders: defaultdict[str, set[int]] = defaultdict(set)
        self._capitals: Counter[str] = Counter()
        self._lower: Counter[str] = Counter()
        self._readings: dict[str, Reading] = {}

    def put(self, id_: int, text: str) -> None:
        self.drop(id_)
        memory = self._memories[id_] = _counted(text)
        for word in memory.words:
            self._holders[word].add(id_)
        self._capitals.update(memory.capitals)
        self._lower.update(memory.lower)

    def drop(self, id_: int) -> None:
        memory = self._memories.pop(id_, None)
        if memory is not None:
            for word in memory.words:
                self._holders[word].discard(id_)
            self._capitals.subtract(memory.capitals)
            self._lower.subtract(memory.lower)

    def keep_only(self, texts: Mapping[int, str]) -> None:
        for id_ in self._memories.keys() - texts.keys():
            self.drop(id_)
        for id_, text in texts.items():
            if id_ not in self._memories or self._memories[id_].text != text:
                self.put(id_, text)

    def read(self, text: str) -> Reading:
        """Return what a text says; each text is read once."""
        if text not in self._readings:
            self._readings[text] = read(text)
        return self._readings[text]

    def weight(self, reading: Reading, key: str) -> float:
        """Return the weight of a word of a text, by its language and by this ledger."""
        weight, memories = reading.words[key], len(self._memories)
        if memories < _MANY_MEMORIES or key[:1] in "#@":
            return weight
        holders = len(self._holders[key]) if key in self._holders else 0
        return weight * log((memories + 1) / max(1, holders)) / log(memories + 1)

    def nearest(self, reading: Reading, without: Collection[int], limit: int) -> list[Reading]:
        """Return the memories that share most of the rarest words of a text, by weight."""
        weights = {key: self.weight(reading, key) for key in reading.words}
        for key in reading.details:
            weights |= dict.fromkeys(_WORD.findall(key), 1.0)
        known = sorted((len(self._holders[key]), key) for key in weights if key in self._holders)
        shared: defaultdict[int, float] = defaultdict(float)
        for _, key in known[:_LOOKED_UP]:
            for id_ in self._holders[key]:
                shared[id_] += weights[key] + _LEAST_WEIGHT
        found = ((weight, -id_) for id_, weight in shared.items() if id_ not in without)
        return [self.read(self._memories[-id_].text) for _, id_ in nlargest(limit, found)]

    def names(self, reading: Reading) -> set[str]:
        """Return the keys of the names in a text, as far as capitals show them."""
        found = reading.inner_capitals - reading.lower
        for key in reading.head_capitals - reading.lower:
            is_unknown = frequency(fold(reading.written[key]), reading.language) < _UNKNOWN
            if is_unknown or self._is_name(key, 1):
                found.add(key)
        found = {
            key
            for key in found & (reading.words.keys() - reading.details.keys())
            if not _is_german_noun(fold(reading.written[key]), reading.language)
        }
        return found.union(
            key
            for key in reading.lower & reading.words.keys()
            if self._is_name(key, 2)
            and frequency(fold(reading.written[key]), reading.language) < _UNCOMMON
        )

    def _is_name(self, key: str, times: int) -> bool:
        return self._capitals[key] >= max(times, self._lower[key])


def _is_german_noun(word: str, language: str) -> bool:
    is_word = language == "de" and frequency(word, "de") > _GERMAN_WORD
    return is_word and frequency(word, "en") <= _ALSO_ENGLISH


def _counted(text: str) -> _Memory:
    plain = clean(text)
    folded = {word: fold(word) for word in _WORD.findall(plain)}
    language = guess_language(folded.values())
    keys = {word: stem(each, language) for word, each in folded.items()}
    inner = {word or other for word, other in _IN_SENTENCE.findall(plain)}
    capitals = frozenset(
        keys[word]
        for word in inner
        if word[0].isupper() and not _is_german_noun(folded[word], language)
    )
    lower = frozenset(key for word, key in keys.items() if word.islower())
    words = frozenset(keys.values())
    if not plain.isascii():
        words = words.union(_NEIGHBOURS.findall(plain), signs_of(plain))
    return _Memory(text, words, capitals, lower)
