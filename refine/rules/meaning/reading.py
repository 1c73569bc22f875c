"""What memories say, as far as it can be compared: each of them, and all of a ledger together."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nlargest
from itertools import pairwise
from math import log

from refine.rules.meaning.splitting import Token, tokens_of, without_filler
from refine.rules.meaning.words import (
    clean,
    fold,
    frequency,
    guess_language,
    is_light,
    is_noun,
    is_small,
    is_unspaced,
    language_of,
    listed,
    one_of,
    rarity,
    roles,
    script_of,
    stem,
    units,
    weekdays,
)

# An importer's label, "Mira (person): ": the subject of a memory, no statement.
_PREFIX = re.compile(r"^\s*([^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*){0,2}) \([a-z ]{2,20}\): ")
_SENTENCE_END = re.compile(r"[.!?…:;\n\r*•–—|>\"“”„«»(¿¡\[。！？।؟]|(?:^|\s)-\s")
_BEHIND_NUMBER = re.compile(r"[ -]?(°?[^\W\d_]+|[^\w\s])")
_CLAUSE_END = re.compile("[.;:!?,]")
# Codes keep their case: `make test`, kHb7Qz, init_db, B12.
_CODE = re.compile(r"`[^`\n]+`|\b\w*(?:[a-z][A-Z]|[a-zA-Z]\d|\d[a-zA-Z]|_)\w*\b")
_NUMBER_AND_UNIT = re.compile(r"\d+[a-z]{1,3}(?:\d\d)?", re.IGNORECASE)
_QUOTATION = re.compile(
    r"(?<!\w)\"(?=\S)([^\"]+)\"(?!\w)|“([^“”]+)”|„([^“”„\"]+)[“”\"]|«([^«»]+)»|»([^«»]+)«"
    r"|「([^「」]+)」|『([^『』]+)』|《([^《》]+)》|(?<!\w)['‘](?=\S)([^'‘’\n]+)['’](?!\w)"
)
_JOINS = "|".join(listed("joins", "all"))
_SEPARATOR = re.compile(rf"、|\s*,\s+(?:(?:{_JOINS})\s+)?|\s+(?:{_JOINS})\s+")
# A text of such signs alone says something.
_SIGN = re.compile(r"[^\w\s!-/:-@\[-`{-~\u2010-\u2027]")
_ITEM_WORDS = 5
# The weights of two neighbours in a script without spaces: none, one or both of them light.
_WEIGHTS_OF_PAIRS = 0.5, 0.25, 0.1
_DENIED_WORDS = 4
# At the end of a clause they deny what stands before them.
_CLOSING = frozenset({"nicht", "niet"})

# From this many memories on, the number of memories with a word counts for its weight.
_MANY_MEMORIES = 20
_WORD = re.compile(r"[^\W_]+")
_NEIGHBOURS = re.compile("(?=([\u3005-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0eff]{2}))")
_IN_SENTENCE = re.compile(r"(?<=\w )([^\W_]+)|(?<=\w[,;] )([^\W_]+)")
# Before the key of a word that has a capital inside a sentence, or none.
_CAPITAL, _LOWER = "^", "_"
# A memory that carries a text has most of its rarest words.
_LOOKED_UP = 10
# So that words that weigh nothing decide between memories that share nothing else.
_LEAST_WEIGHT = 0.01


@dataclass
class Reading:
    """What a text says.

    ``words`` gives the weight of each word by its key: its stem, ``#`` and a number or date, ``@``
    and an address, two characters of a script without spaces. ``details`` gives, by its key, what
    a detail is found by and how it is written; ``forms`` is all that may be found in the text,
    ``order`` the keys in order with the number of their sentence, ``row`` the plain text, ``told``
    the words that deny, doubt and the like.
    """

    text: str
    language: str = "en"
    script: str = ""
    row: str = ""
    subject: frozenset[str] = frozenset()
    words: dict[str, float] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    details: dict[str, tuple[str, ...]] = field(default_factory=dict)
    quotations: dict[str, str] = field(default_factory=dict)
    units: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    codes: set[str] = field(default_factory=set)
    beside: dict[str, tuple[str, str]] = field(default_factory=dict)
    unit_end: int = 0
    items: set[str] = field(default_factory=set)
    order: list[tuple[str, int]] = field(default_factory=list)
    forms: set[str] = field(default_factory=set)
    plain: set[str] = field(default_factory=set)
    inner_capitals: set[str] = field(default_factory=set)
    head_capitals: set[str] = field(default_factory=set)
    lower: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    told: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @cached_property
    def flat_row(self) -> str:
        return self.row.replace(" ", "")

    def as_written(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the words of these keys as they stand in the text, neighbours joined."""
        words: list[str] = []
        for key in keys:
            if words and is_unspaced(key) and words[-1][-1] == key[0]:
                words[-1] += key[1:]
            else:
                words.append(self.written.get(key, key))
        return tuple(words)


def read(text: str, likely_language: str = "en") -> Reading:
    """Return what a text says. Takes time in proportion to its length, and raises nothing."""
    body, subject = clean(text), ""
    if prefix := _PREFIX.match(body):
        subject, body = prefix[1], body[prefix.end() :]
    language = language_of(body, likely_language)
    script = script_of(body)
    body, tokens = tokens_of(without_filler(body, language, script), language)
    reading = Reading(body, language, script)
    reading.row = _row(tokens)
    reading.subject = frozenset(stem(fold(word), language) for word in subject.split())
    _add_tokens(reading, tokens)
    _add_lists(reading)
    for quoted in map("".join, _QUOTATION.findall(body)):
        if flat := _row(tokens_of(quoted, language)[1]).replace(" ", ""):
            reading.quotations[flat] = quoted
    reading.codes = {
        code.strip("`") for code in _CODE.findall(body) if not _NUMBER_AND_UNIT.fullmatch(code)
    }
    if not reading.words and _SIGN.search(body):
        reading.words[body], reading.written[body] = 1.0, body
    reading.forms |= reading.subject | {body}
    return reading


def _row(tokens: Iterable[Token]) -> str:
    keys = (" ".join(each.keys[0]) if each.kind == "unspaced" else each.keys[0] for each in tokens)
    return " ".join(keys)


def _add_tokens(reading: Reading, tokens: list[Token]) -> None:
    sentence = denied = end = 0
    before = ""
    for token in tokens:
        gap = reading.text[end : token.start]
        is_head = not end or _SENTENCE_END.search(gap) is not None
        sentence += is_head
        denied = 0 if _CLAUSE_END.search(gap) else max(0, denied - 1)
        if token.kind == "unspaced":
            _add_run(reading, token.keys[0], sentence)
        elif token.kind != "word":
            _add_detail(reading, token, sentence)
        elif token.start >= reading.unit_end:
            _add_word(reading, token, before, is_head=is_head, sentence=sentence)
            tables = roles(reading.language)
            word = token.keys[0]
            found = (*tables.get(word, ()), *tables.get(f"{before}_{word}", ()))
            for role in found:
                reading.told[role].append(token.written)
            if "negations" in found:
                denied = _DENIED_WORDS + 1
                if word in _CLOSING and _CLAUSE_END.match(f"{reading.text}.", token.end):
                    reading.told["closing"].append(token.written)
            elif denied:
                reading.denied.add(stem(word, reading.language))
        end, before = token.end, token.keys[0]
    reading.denied &= reading.words.keys()


def _add_word(reading: Reading, token: Token, before: str, *, is_head: bool, sentence: int) -> None:
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
    if before in listed("articles", language) or not (is_capital or has_inner):
        reading.lower.add(key)
    elif is_head and not has_inner:
        reading.head_capitals.add(key)
    else:
        reading.inner_capitals.add(key)
    if not is_small(word, language) or (is_capital and not is_head and len(word) > 1):
        reading.words[key] = 1.0 if day is not None else rarity(word, language)
        reading.order.append((key, sentence))


def _add_detail(reading: Reading, token: Token, sentence: int) -> None:
    key = token.keys[0]
    reading.details[key] = token.keys
    reading.words[key] = 1.0
    reading.written.setdefault(key, token.written)
    reading.order.append((key, sentence))
    reading.forms.update((key, *token.says))
    if token.kind == "number":
        _add_unit(reading, token)


def _add_unit(reading: Reading, number: Token) -> None:
    """Add the unit of a number: the word behind it, how a run goes on, or a sign."""
    names = units(reading.script or reading.language)
    behind = _BEHIND_NUMBER.match(reading.text, number.end)
    word, end = (fold(behind[1]), behind.end()) if behind else ("", number.end)
    if len(word) == 2 and is_small(word, reading.language):
        return  # 3 in the box
    ends = range(len(word), 0, -1) if word and is_unspaced(word) else [len(word)]
    said = [word[:end] for end in ends] + [reading.text[max(0, number.start - 1) : number.start]]
    if unit := next((names[each] for each in said if names.get(each)), None):
        reading.units[number.keys[0]].add(unit)
        reading.unit_end = end if word in names else number.end


def _add_run(reading: Reading, run: str, sentence: int) -> None:
    reading.forms.update(run)
    for one, other in pairwise(f" {run} "):
        reading.forms.update([f"{one}|"] if is_light(other) else ())
        reading.forms.update([f"|{other}"] if is_light(one) else ())
    pairs = [one + other for one, other in pairwise(run)] or [run]
    for before, pair, after in zip(["", *pairs], pairs, [*pairs[1:], ""], strict=False):
        reading.beside[pair] = before, after
        reading.words[pair] = _WEIGHTS_OF_PAIRS[sum(map(is_light, pair))]
        reading.forms.add(pair)
        reading.order.append((pair, sentence))
    for role in ("hedges", "conditions", "occasions", "negations"):
        found = one_of(role, reading.script)
        reading.told[role] += (each[0] for each in found.finditer(run))
        run = found.sub(" ", run)


def _add_lists(reading: Reading) -> None:
    for part in re.split(r"[.。;:!?()\n]", reading.text):
        separators = _SEPARATOR.findall(part)
        if not any(re.search(r"\w|、", each) for each in separators):
            continue  # without an "and", commas are but pauses
        chunks = [_telling(each, reading.language) for each in _SEPARATOR.split(part)]
        inner = [each for each in chunks[1:-1] if len(each) <= _ITEM_WORDS]
        if inner and all(inner):
            reading.items.update(chunks[0][-1:], chunks[-1][:1], *inner)


def _telling(text: str, language: str) -> list[str]:
    words = map(fold, re.findall(r"[^\W\d_][\w'-]*", text))
    told = [word for word in words if not is_small(word, language)]
    if told and is_unspaced(told[0]):
        return [one + other for word in told for one, other in pairwise(word)]
    return [stem(word, language) for word in told]


class LedgerTexts:
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
        if memories < _MANY_MEMORIES:
            return weight
        return weight * log((memories + 1) / max(1, self._count(key))) / log(memories + 1)

    def nearest_ids(self, reading: Reading, without: Collection[int], limit: int) -> list[int]:
        """Return the memories that share most of the rarest words of a text, by weight."""
        weights = {key: self.weight(reading, key) for key in reading.words}
        for key in reading.details:
            weights |= dict.fromkeys(_WORD.findall(key), 1.0)
        known = sorted((len(self._holders[key]), key) for key in weights if key in self._holders)
        holders = {key: self._holders[key] for _, key in known[:_LOOKED_UP]}
        with_all = set.intersection(*holders.values()).difference(without) if holders else set()
        if len(with_all) >= limit:
            return sorted(with_all, reverse=True)[:limit]
        shared: defaultdict[int, float] = defaultdict(float)
        for key, ids in holders.items():
            for id_ in ids:
                shared[id_] += weights[key] + _LEAST_WEIGHT
        others = ((weight, id_) for id_, weight in shared.items() if id_ not in without)
        nearest = nlargest(limit, others)
        return [id_ for weight, id_ in nearest if weight >= nearest[0][0] / 2]

    def names(self, reading: Reading) -> set[str]:
        """Return the keys of the names in a text, as far as capitals show them."""
        found = (reading.inner_capitals | reading.head_capitals) - reading.lower
        for key in reading.head_capitals & found:
            is_known = frequency(fold(reading.written[key]), reading.language)
            if is_known and not self._is_name(key, 1):
                found.remove(key)
        found.update(key for key in reading.lower if self._is_name(key, 2))
        found &= reading.words.keys() - reading.details.keys()
        return {key for key in found if not is_noun(fold(reading.written[key]), reading.language)}

    def _is_name(self, key: str, times: int) -> bool:
        """Tell whether it has a capital in so many memories, and a small letter in no more."""
        return self._count(_CAPITAL + key) >= max(times, self._count(_LOWER + key))

    def _count(self, key: str) -> int:
        return len(self._holders.get(key, ()))


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
