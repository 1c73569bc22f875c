"""Whether something that was said still stands, by a measure of its own: Refine's rules judge with
other words, stems and weights.
"""

import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache

from stopwordsiso import stopwords

from bench.corpus import Planted
from bench.language import Fact, languages, plain_speech

# One text has at least this share of the words that say something.
SHARE = 0.8
# Inflected forms have these letters in common.
_LETTERS = 5

# A letter or digit; those of scripts without spaces bound no word.
_OF_WORD = "[^\\W_\u3040-\u30ff\u3400-\u9fff]"
_WORD = re.compile("[\u3040-\u30ff\u3400-\u9fff]|[^\\W_\u3040-\u30ff\u3400-\u9fff]+")
_SENTENCE = re.compile("[^.!?。！？؟]+[.!?。！？؟]*")
_HIRAGANA = re.compile("[\u3041-\u309f]")


class Saying:
    """What a memory says: its facts, and the words that say something."""

    def __init__(self, memory: Planted) -> None:
        self.text = memory.text.strip()
        self._facts, self._language = memory.facts, memory.language
        self._is_denied = _denies(self.text)
        named = (words_of(form, self._language) for fact in self._facts for form in fact)
        self._words = words_of(self.text, self._language).difference(*named)

    def stands_in(self, text: str) -> bool:
        """Tell whether a text has all facts, 80 % of the other words, and a denial if it is one."""
        if text == self.text:
            return True
        if not all(_names(text, fact) for fact in self._facts) or (
            self._is_denied and not _denies(text)
        ):
            return False
        said = text if self._is_denied else _affirmed(text)
        kept = self._words & words_of(said, self._language)
        return len(kept) >= SHARE * len(self._words) and bool(kept or self._facts)


saying_of = lru_cache(maxsize=100_000)(Saying)


class Standing:
    """Whether it still stands, asked again week by week; texts that were there before are not
    asked twice.
    """

    def __init__(self, saying: Saying) -> None:
        self.saying = saying
        self.carrier: str | None = saying.text

    def look(self, kept: Collection[str], added: Collection[str]) -> bool:
        """Tell whether one of ``kept`` says it; ``added``: the new ones among them."""
        if self.carrier in kept:
            return True
        candidates = added if self.carrier is None else kept
        self.carrier = next(filter(self.saying.stands_in, candidates), None)
        return self.carrier is not None


@lru_cache(maxsize=200_000)
def words_of(text: str, language: str) -> frozenset[str]:
    """Return the words that say something, by their first letters; where a script has no spaces,
    the characters.
    """
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    small = _small(language)
    return frozenset(
        word[:_LETTERS] for word in words if word not in small and not _HIRAGANA.match(word)
    )


@lru_cache
def _small(language: str) -> frozenset[str]:
    return frozenset(stopwords(language))


@lru_cache(maxsize=200_000)
def _denies(text: str) -> bool:
    return _denial().search(text) is not None


@lru_cache
def _denial() -> re.Pattern[str]:
    spoken = (*languages(), *plain_speech())
    words = {word for language in spoken for word in language.denials}
    return re.compile("|".join(["n['’]t\\b", *(_whole(word).pattern for word in words)]), re.I)


@lru_cache(maxsize=200_000)
def _affirmed(text: str) -> str:
    """Return the sentences without a denial."""
    return " ".join(part for part in _SENTENCE.findall(text) if not _denies(part))


def _names(text: str, fact: Fact) -> bool:
    return any(_whole(writing).search(text) for writing in fact)


@lru_cache(maxsize=10_000)
def _whole(writing: str) -> re.Pattern[str]:
    """Return a pattern for a writing that is not part of a longer number or word."""
    start = rf"(?<!{_OF_WORD})" if re.match(_OF_WORD, writing[0]) else ""
    end = rf"(?!{_OF_WORD})" if re.match(_OF_WORD, writing[-1]) else ""
    return re.compile(f"{start}{re.escape(writing)}{end}", re.IGNORECASE)
