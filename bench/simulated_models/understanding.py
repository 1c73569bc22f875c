"""A careful reader: which sentences say the same in another form.

It knows how the languages of the trials write dates, numbers and quotations, and which of their
words say little. It does not know what was planted.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache

from bench.language import languages, plain_speech

_CJK_DATE = re.compile(r"(\d{4})年(\d{1,2})月(\d{1,2})日")
_END = re.compile(r"[.!?؟…]+\s+|[。！？]\s*")
_TOKEN = re.compile(r"\d{4}-\d\d-\d\d|[\w/:@.-]*\w")
_ADDRESS = re.compile(r"[!-~]*[@/][!-~]*[a-z0-9]")
_CHARACTERS = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_HIRAGANA = re.compile("[\u3041-\u309f]")
_JAPANESE_DENIAL = re.compile("ない|なかった|ません")


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, unchanged but for surrounding spaces."""
    found, start = [], 0
    dates = [match.span() for match in _written_date().finditer(text)]
    for end in _END.finditer(text):
        if not any(begin <= end.start() < stop for begin, stop in dates):
            found.append(text[start : end.end()].strip())
            start = end.end()
    return [each for each in (*found, text[start:].strip()) if each]


@lru_cache(maxsize=50_000)
def meaning(sentence: str) -> frozenset[str]:
    """Return the meaning of a sentence, regardless of word order, punctuation and spelling."""
    text = _in_figures(unicodedata.normalize("NFKC", sentence).casefold())
    denial = ["not"] if _JAPANESE_DENIAL.search(text) else []
    addresses = _ADDRESS.findall(text)
    words = [*addresses, *denial]
    for token in _TOKEN.findall(_ADDRESS.sub(" ", text)):
        words += _parts(token)
    return frozenset(words) - _small_words()


def _in_figures(text: str) -> str:
    text = _CJK_DATE.sub(lambda found: f" {_iso(found[3], found[2], found[1])} ", text)
    text = _written_date().sub(
        lambda found: f" {_iso(found[1], str(_months()[found[2].casefold()]), found[3])} ", text
    )
    return _number_word().sub(lambda found: _numbers()[found[0]], text)


def _parts(token: str) -> Iterator[str]:
    """Yield whole words and, in scripts without spaces, characters other than small ones."""
    yield from (each for each in _CHARACTERS.findall(token) if not _HIRAGANA.match(each))
    yield from (word for word in re.findall(r"\w[\w-]*", _CHARACTERS.sub(" ", token)))


def _iso(day: str, month: str, year: str) -> str:
    return f"{year}-{int(month):02}-{int(day):02}"


@cache
def _months() -> dict[str, int]:
    return {
        name.casefold(): number
        for language in languages()
        for number, name in enumerate(language.months, start=1)
    }


@cache
def _written_date() -> re.Pattern[str]:
    names = "|".join(sorted(map(re.escape, _months()), key=len, reverse=True))
    return re.compile(rf"\b(\d{{1,2}})\.? (?:de )?({names})(?: de)? (\d{{4}})\b", re.IGNORECASE)


@cache
def _numbers() -> dict[str, str]:
    return {
        word.casefold(): figure
        for language in languages()
        for figure, word in language.numbers.items()
    }


@cache
def _number_word() -> re.Pattern[str]:
    longest_first = sorted(_numbers(), key=len, reverse=True)
    dense = [word for word in longest_first if _CHARACTERS.match(word)]
    spaced = [word for word in longest_first if word not in dense]
    return re.compile(rf"{'|'.join(dense)}|\b(?:{'|'.join(spaced)})\b")


@cache
def _small_words() -> frozenset[str]:
    spoken = (*languages(), *plain_speech())
    return frozenset(word.casefold() for language in spoken for word in language.small_words)
