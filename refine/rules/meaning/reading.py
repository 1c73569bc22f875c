"""What a text says, as far as it can be compared with another."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from refine.rules.meaning.calendar import units, weekdays
from refine.rules.meaning.folding import clean, fold
from refine.rules.meaning.tokens import Token, tokens_of
from refine.rules.meaning.words import is_small, listed, rarity, roles, stem

# An importer's label, "Mira (person): ": the subject of a memory, no statement.
_PREFIX = re.compile(r"^\s*([^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*){0,2}) \([a-z ]{2,20}\): ")
_LABEL = re.compile(r"(?:^|(?<=[.!?;]\s))([^\W\d_]+)(?: ([^\W\d_]+))?:(?=\s)")
_SENTENCE_END = re.compile(r"[.!?…:;\n\r*•–—|>\"“”„«»(¿¡\[。！？।؟]|(?:^|\s)-\s")
_CLAUSE_END = re.compile("[.;:!?,]")
# Codes keep their case: `make test`, kHb7Qz, init_db, B12.
_CODE = re.compile(r"`[^`\n]+`|\b\w*(?:[a-z][A-Z]|[a-zA-Z]\d|\d[a-zA-Z]|_)\w*\b")
_NUMBER_AND_UNIT = re.compile(r"\d+[a-z]{1,3}(?:\d\d)?", re.IGNORECASE)
_EASTERN_NEGATION = re.compile("不|没|沒|ない|なかった|ません|않|아니")
_HIRAGANA = re.compile("[\u3040-\u309f]+")
_WHETHER = "whether or "
_QUOTATION = re.compile(
    r"(?<!\w)\"(?=\S)([^\"]+)\"(?!\w)|“([^“”]+)”|„([^“”„\"]+)[“”\"]|«([^«»]+)»|»([^«»]+)«"
    r"|「([^「」]+)」|『([^『』]+)』|《([^《》]+)》|(?<!\w)['‘](?=\S)([^'‘’\n]+)['’](?!\w)"
)
_SEPARATOR = re.compile(
    r"\s*,\s+(?:(?:and|or|und|oder|y|e|et|ou|en|och|i|и)\s+)?"
    r"|\s+(?:and|or|und|oder|et|ou|och|и)\s+"
)
_ITEM_WORDS = 4
# The weight of two neighbouring characters of a script without spaces, and of two kana.
_PAIR_WEIGHT, _KANA_WEIGHT = 0.8, 0.15
_DENIED_WORDS = 4


@dataclass(slots=True)
class Reading:
    """What a text says.

    ``words`` gives the weight of each word by its key: its stem, ``#`` and a number or date, ``@``
    and an address, two characters of a script without spaces. ``details`` gives, by its key, what
    a detail is found by and how it is written; ``forms`` is all that may be found in the text,
    ``order`` the keys in order with the number of their sentence, ``row`` the plain text.
    """

    text: str
    language: str = "en"
    row: str = ""
    subject: frozenset[str] = frozenset()
    words: dict[str, float] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    details: dict[str, tuple[str, ...]] = field(default_factory=dict)
    quotations: dict[str, str] = field(default_factory=dict)
    units: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    codes: set[str] = field(default_factory=set)
    items: set[str] = field(default_factory=set)
    order: list[tuple[str, int]] = field(default_factory=list)
    forms: set[str] = field(default_factory=set)
    plain: set[str] = field(default_factory=set)
    inner_capitals: set[str] = field(default_factory=set)
    head_capitals: set[str] = field(default_factory=set)
    lower: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)

    def as_written(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the words of these keys as they stand in the text."""
        return tuple(self.written[key] for key in keys)


def read(text: str) -> Reading:
    """Return what a text says. Takes time in proportion to its length, and raises nothing."""
    body, subject = clean(text), ""
    if prefix := _PREFIX.match(body):
        subject, body = prefix[1], body[prefix.end() :]
    language, body, tokens = tokens_of(_LABEL.sub(_without_label, body))
    reading = Reading(body, language)
    reading.row = " ".join(token.keys[0] for token in tokens)
    reading.subject = frozenset(stem(fold(word), language) for word in subject.split())
    _add_tokens(reading, tokens)
    _add_lists(reading)
    for found in _QUOTATION.finditer(body):
        quoted = found[found.lastindex or 0]
        if flat := " ".join(token.keys[0] for token in tokens_of(quoted)[2]):
            reading.quotations[flat] = quoted
    reading.codes = {
        code.strip("`") for code in _CODE.findall(body) if not _NUMBER_AND_UNIT.fullmatch(code)
    }
    signs = signs_of(body)
    if not reading.words:
        reading.words = dict.fromkeys(signs, 1.0)
        reading.written |= {each: each for each in signs}
    reading.forms |= reading.subject | signs
    return reading


def signs_of(text: str) -> set[str]:
    return {each for each in set(text) if unicodedata.category(each)[0] == "S"}


def _without_label(found: re.Match[str]) -> str:
    words = [fold(word) for word in found.groups() if word]
    labels = listed("labels", "en") | listed("labels", "de")
    return "·" if labels.issuperset(words) else found[0]


def _add_tokens(reading: Reading, tokens: list[Token]) -> None:
    sentence = denied = end = 0
    before = None
    for token in tokens:
        gap = reading.text[end : token.start]
        is_head = before is None or _SENTENCE_END.search(gap) is not None
        sentence += is_head
        denied = 0 if _CLAUSE_END.search(gap) else max(0, denied - 1)
        if token.kind == "unspaced":
            _add_run(reading, token.keys[0])
        elif token.kind != "word":
            _add_detail(reading, token, sentence)
        elif before is None or gap.strip() not in ("", "-") or not _is_unit(reading, before, token):
            found = _add_word(reading, token, is_head=is_head, sentence=sentence)
            _count_roles(reading, found, before)
            if "negations" in found and not reading.text.endswith(_WHETHER, 0, token.start):
                reading.counts["negations"] += 1
                denied = _DENIED_WORDS + 1
            elif denied:
                reading.denied.add(stem(token.keys[0], reading.language))
        end, before = token.end, token


def _add_word(reading: Reading, token: Token, *, is_head: bool, sentence: int) -> tuple[str, ...]:
    """Add a word; return the word lists that contain it."""
    word, language = token.keys[0], reading.language
    key = stem(word, language)
    day = weekdays(language).get(word)
    if day is not None:
        key = f"#weekday {day}"
        reading.details[key] = (key,)
    reading.forms.add(key)
    reading.plain.add(word)
    reading.written.setdefault(key, token.written)
    is_capital, rest = token.written[0].isupper(), token.written[1:]
    has_inner = not token.written.isupper() and rest != rest.lower()
    if not is_capital and not has_inner:
        reading.lower.add(key)
    elif is_head and not has_inner:
        reading.head_capitals.add(key)
    else:
        reading.inner_capitals.add(key)
    if not is_small(word, language) or (is_capital and not is_head and len(word) > 1):
        reading.words[key] = 1.0 if day is not None else rarity(word, language)
        reading.order.append((key, sentence))
    return (*roles(language).get(word, ()), *(("times",) if day is not None else ()))


def _count_roles(reading: Reading, found: tuple[str, ...], before: Token | None) -> None:
    reading.counts["conditions"] += "conditions" in found
    reading.counts["hedges"] += "hedges" in found
    is_near = before is not None and "nearby" in roles(reading.language).get(before.keys[0], ())
    reading.counts["occasions"] += "occasions" in found or (is_near and "times" in found)


def _is_unit(reading: Reading, number: Token, word: Token) -> bool:
    """Add the unit of a number; tell whether the word behind it is one."""
    unit = units(reading.language).get(word.keys[0])
    if number.kind != "number" or not unit or is_small(word.keys[0], reading.language):
        return False
    reading.units[number.keys[0]].add(unit)
    return True


def _add_detail(reading: Reading, token: Token, sentence: int) -> None:
    key = token.keys[0]
    reading.details[key] = token.keys
    reading.words[key] = 1.0
    reading.written.setdefault(key, token.written)
    reading.order.append((key, sentence))
    reading.forms.update((key, *token.says))
    around = (
        reading.text[max(0, token.start - 1) : token.start],
        reading.text[token.end : token.end + 2].lstrip()[:1],
    )
    for sign in around if token.kind == "number" else ():
        if not sign.isalpha() and (unit := units(reading.language).get(sign)):
            reading.units[key].add(unit)


def _add_run(reading: Reading, run: str) -> None:
    for pair in {one + other for one, other in pairwise(run)} or {run}:
        reading.words[pair] = _KANA_WEIGHT if _HIRAGANA.fullmatch(pair) else _PAIR_WEIGHT
        reading.written[pair] = pair
        reading.forms.add(pair)
        reading.order.append((pair, 0))
    reading.counts["negations"] += len(_EASTERN_NEGATION.findall(run))


def _add_lists(reading: Reading) -> None:
    for part in re.split(r"[.;:!?()\n]", reading.text):
        separators = _SEPARATOR.findall(part)
        if "," not in part or not any(re.search(r"\w", each) for each in separators):
            continue  # without an "and", commas are but pauses
        chunks = _SEPARATOR.split(part)
        inner = [each for each in chunks[1:-1] if len(each.split()) <= _ITEM_WORDS]
        telling = [words for each in inner if (words := _telling(each, reading.language))]
        if telling:
            ends = (
                _telling(chunks[0], reading.language)[-1:],
                _telling(chunks[-1], reading.language)[:1],
            )
            reading.items.update(*ends, *telling)


def _telling(text: str, language: str) -> list[str]:
    words = map(fold, re.findall(r"[^\W\d_][\w'-]*", text))
    return [stem(word, language) for word in words if not is_small(word, language)]
