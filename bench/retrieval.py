"""Which memories a question finds, as a plain search by words would: BM25, to a limit of tokens."""

from collections import Counter
from collections.abc import Sequence
from math import log

from bench.saying import words_of
from refine.rules.content import token_estimate

_SATURATION, _BY_LENGTH = 1.5, 0.75


class Search:
    """The texts of one agent's memories, ready for questions in one language."""

    def __init__(self, texts: Sequence[str], language: str) -> None:
        self._language = language
        self._texts = [(text, words_of(text, language)) for text in texts]
        self._holders = Counter(word for _, words in self._texts for word in words)
        self._mean = max(1.0, sum(len(words) for _, words in self._texts) / max(1, len(texts)))

    def found(self, question: str, tokens: int) -> list[str]:
        """Return the best texts, as many as fit into so many tokens."""
        asked = words_of(question, self._language)
        scored = [(self._score(asked, words), text) for text, words in self._texts]
        chosen = []
        for score, text in sorted(scored, reverse=True):
            if score and token_estimate(text) <= tokens:
                tokens -= token_estimate(text)
                chosen.append(text)
        return chosen

    def _score(self, asked: frozenset[str], words: frozenset[str]) -> float:
        length = 1 - _BY_LENGTH + _BY_LENGTH * len(words) / self._mean
        weight = (_SATURATION + 1) / (1 + _SATURATION * length)
        return weight * sum(self._rarity(word) for word in asked & words)

    def _rarity(self, word: str) -> float:
        holders = self._holders[word]
        return log(1 + (len(self._texts) - holders + 0.5) / (holders + 0.5))
