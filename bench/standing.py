"""How much of the planted memories is still in the memories that an agent keeps."""

import re
from collections.abc import Callable, Collection
from functools import lru_cache, partial

from bench.corpus import Planted
from bench.language import Fact
from refine.rules.details import Reading, carries, likeness, read

HALF = 0.5

# A letter or digit; those of scripts without spaces bound no word.
_OF_WORD = "[^\\W_\u3040-\u30ff\u3400-\u9fff]"

reading = lru_cache(maxsize=200_000)(read)


class Standing:
    """Whether one thing that was said still stands; asked again week by week.

    ``stands_in`` tells it of one text. Texts that were there before are not asked twice.
    """

    def __init__(self, stands_in: Callable[[str], bool], text: str) -> None:
        self._stands_in = stands_in
        self._carrier: str | None = text

    def look(self, kept: Collection[str], added: Collection[str]) -> bool:
        """Tell whether it stands in one of ``kept``; ``added`` are the new ones among them."""
        if self._carrier in kept:
            return True
        candidates = added if self._carrier is None else kept
        self._carrier = next(filter(self._stands_in, candidates), None)
        return self._carrier is not None


class Remains:
    """The details, facts and words of one planted memory.

    Details are what the rules protect, by their own judgement. Facts are what the corpus knows to
    have put in, so they also measure what the rules overlook: each must stand beside another fact
    of the same memory. A memory is ``whole`` where one text states all of its facts.
    """

    def __init__(self, memory: Planted) -> None:
        text = memory.text.strip()
        original = reading(text)
        self.memory = memory
        self.details = [
            Standing(partial(_carries, original, key), text) for key in original.details
        ]
        self.facts = [Standing(partial(_states, fact, memory.facts), text) for fact in memory.facts]
        self.whole = Standing(partial(_states_all, memory.facts), text)
        self.words = Standing(partial(_resembles, original), text)


def _carries(original: Reading, key: str, text: str) -> bool:
    return carries(reading(text), key, original)


def _resembles(original: Reading, text: str) -> bool:
    return likeness(original, reading(text)) >= HALF


def _states(fact: Fact, facts: tuple[Fact, ...], text: str) -> bool:
    others = [each for each in facts if each != fact]
    return _names(text, fact) and (not others or any(_names(text, each) for each in others))


def _states_all(facts: tuple[Fact, ...], text: str) -> bool:
    return bool(facts) and all(_names(text, fact) for fact in facts)


def _names(text: str, fact: Fact) -> bool:
    return any(_occurs(writing, text) for writing in fact)


def _occurs(writing: str, text: str) -> bool:
    return _whole(writing).search(text) is not None


@lru_cache(maxsize=10_000)
def _whole(writing: str) -> re.Pattern[str]:
    """Return a pattern for a writing that is not part of a longer number or word."""
    start = rf"(?<!{_OF_WORD})" if re.match(_OF_WORD, writing[0]) else ""
    end = rf"(?!{_OF_WORD})" if re.match(_OF_WORD, writing[-1]) else ""
    return re.compile(f"{start}{re.escape(writing)}{end}", re.IGNORECASE)
