"""An agent's kept memories: how rare each word is among them, and which words are names."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from heapq import nlargest
from math import log

from refine.rules.folding import clean, fold
from refine.rules.meaning.reading import Reading, read
from refine.rules.meaning.words import frequency, guess_language, stem

# From this many memories on, the number of memories with a word counts for its weight.
_MANY_MEMORIES = 20
_WORD = re.compile(r"[^\W_]+")
_NEIGHBOURS = re.compile("(?=([\u3005-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0eff]{2}))")
_IN_SENTENCE = re.compile(r"(?<=\w )([^\W_]+)|(?<=\w[,;] )([^\W_]+)")
_UNKNOWN = 2.0
# Before the key of a word that has a capital inside a sentence, or none.
_CAPITAL, _LOWER = "^", "_"
# A memory that carries a text has most of its rarest words.
_LOOKED_UP = 10
# So that words that weigh nothing decide between memories that share nothing else.
_LEAST_WEIGHT = 0.01


class Ledger:
    """The texts of the kept memories, and figures over all of them."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self._words: dict[int, frozenset[str]] = {}
        self._holders: defaultdict[str, set[int]] = defaultdict(set)
        self._readings: dict[tuple[str, str], Reading] = {}

    def put(self, id_: int, text: str) -> None:
        self.drop(id_)
        self.texts[id_], self._words[id_] = text, _words_of(text)
        for word in self._words[id_]:
            self._holders[word].add(id_)

    def drop(self, id_: int) -> None:
        self.texts.pop(id_, None)
        for word in self._words.pop(id_, ()):
            self._holders[word].discard(id_)

    def keep_only(self, texts: Mapping[int, str]) -> None:
        for id_ in self.texts.keys() - texts.keys():
            self.drop(id_)
        for id_, text in texts.items():
            if self.texts.get(id_) != text:
                self.put(id_, text)

    def read(self, text: str, likely_language: str = "en") -> Reading:
        """Return what a text says; each text is read once."""
        key = text, likely_language
        if key not in self._readings:
            self._readings[key] = read(text, likely_language)
        return self._readings[key]

    def weight(self, reading: Reading, key: str) -> float:
        """Return the weight of a word of a text, by its language and by this ledger."""
        weight, memories = reading.words[key], len(self.texts)
        if memories < _MANY_MEMORIES or key[:1] in "#@":
            return weight
        return weight * log((memories + 1) / max(1, self._count(key))) / log(memories + 1)

    def nearest_ids(self, reading: Reading, without: Collection[int], limit: int) -> list[int]:
        """Return the memories that share most of the rarest words of a text, by weight."""
        weights = {key: self.weight(reading, key) for key in reading.words}
        for key in reading.details:
            weights |= dict.fromkeys(_WORD.findall(key), 1.0)
        known = sorted((len(self._holders[key]), key) for key in weights if key in self._holders)
        shared: defaultdict[int, float] = defaultdict(float)
        for _, key in known[:_LOOKED_UP]:
            for id_ in self._holders[key]:
                shared[id_] += weights[key] + _LEAST_WEIGHT
        others = {id_: weight for id_, weight in shared.items() if id_ not in without}
        least = max(others.values(), default=0) / 2
        near = (id_ for id_, weight in others.items() if weight >= least)
        return nlargest(limit, near, key=lambda id_: (others[id_], id_))

    def names(self, reading: Reading) -> set[str]:
        """Return the keys of the names in a text, as far as capitals show them."""
        found = (reading.inner_capitals | reading.head_capitals) - reading.lower
        for key in reading.head_capitals & found:
            frequent = frequency(fold(reading.written[key]), reading.language) >= _UNKNOWN
            if frequent and not self._is_name(key, 1):
                found.remove(key)
        found.update(key for key in reading.lower if self._is_name(key, 2))
        found &= reading.words.keys() - reading.details.keys()
        return {key for key in found if not _is_noun(key, reading)}

    def _is_name(self, key: str, times: int) -> bool:
        """Tell whether it has a capital in so many memories, and a small letter in no more."""
        return self._count(_CAPITAL + key) >= max(times, self._count(_LOWER + key))

    def _count(self, key: str) -> int:
        return len(self._holders[key]) if key in self._holders else 0


def _is_noun(key: str, reading: Reading) -> bool:
    """Tell whether a word has a capital because all nouns have one."""
    word = fold(reading.written[key])
    return reading.language == "de" and frequency(word, "de") > frequency(word, "en") + 1


def _words_of(text: str) -> frozenset[str]:
    """Return the keys of a memory's words; once more those that have a capital, or none."""
    plain = clean(text)
    folded = {word: fold(word) for word in _WORD.findall(plain)}
    language = guess_language(folded.values())
    keys = {word: stem(each, language) for word, each in folded.items()}
    inner = {word or other for word, other in _IN_SENTENCE.findall(plain)}
    words = {*keys.values(), *(_CAPITAL + keys[word] for word in inner if word[0].isupper())}
    words.update(_LOWER + key for word, key in keys.items() if word.islower())
    if not plain.isascii():
        words.update(_NEIGHBOURS.findall(plain))
    return frozenset(words)
