"""What a text says, as far as it can be compared with another."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from refine.rules.folding import clean, fold
from refine.rules.meaning.calendar import units, weekdays
from refine.rules.meaning.tokens import Token, tokens_of
from refine.rules.meaning.words import guess_language, is_small, listed, one_of, rarity, roles, stem

# An importer's label, "Mira (person): ": the subject of a memory, no statement.
_PREFIX = re.compile(r"^\s*([^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*){0,2}) \([a-z ]{2,20}\): ")
_LABEL = re.compile(r"(?:^|(?<=[.!?;]\s))([^\W\d_]+)(?: ([^\W\d_]+))? ?:")
_SENTENCE_END = re.compile(r"[.!?…:;\n\r*•–—|>\"“”„«»(¿¡\[。！？।؟]|(?:^|\s)-\s")
_BEHIND_NUMBER = re.compile(r"[ -]?(°?[^\W\d_]+|[^\w\s])")
_CLAUSE_END = re.compile("[.;:!?,]")
# Codes keep their case: `make test`, kHb7Qz, init_db, B12.
_CODE = re.compile(r"`[^`\n]+`|\b\w*(?:[a-z][A-Z]|[a-zA-Z]\d|\d[a-zA-Z]|_)\w*\b")
_NUMBER_AND_UNIT = re.compile(r"\d+[a-z]{1,3}(?:\d\d)?", re.IGNORECASE)
_UNSPACED = "\u2e80"
_SCRIPTS = {"ja": "[\u3040-\u30ff]", "ko": "[\uac00-\ud7af]", "zh": "[\u3400-\u9fff]"}
_QUOTATION = re.compile(
    r"(?<!\w)\"(?=\S)([^\"]+)\"(?!\w)|“([^“”]+)”|„([^“”„\"]+)[“”\"]|«([^«»]+)»|»([^«»]+)«"
    r"|「([^「」]+)」|『([^『』]+)』|《([^《》]+)》|(?<!\w)['‘](?=\S)([^'‘’\n]+)['’](?!\w)"
)
_JOINS = "|".join(listed("joins", "all"))
_SEPARATOR = re.compile(rf"、|\s*,\s+(?:(?:{_JOINS})\s+)?|\s+(?:{_JOINS})\s+")
_WORD_OR_MARK = re.compile(r"[^\W\d_]+|[^\w\s'’\-]")
# What such words change is no part of a clause to leave out.
_OPENING = frozenset({"saying", "asking"})
_CHANGING = frozenset({"negations", "contrasts", "conditions"})
# A text of such signs alone says something.
_SIGN = re.compile(r"[^\w\s!-/:-@\[-`{-~\u2010-\u2027]")
_ITEM_WORDS = 5
# The weights of two neighbours in a script without spaces: none, one or both of them light.
_WEIGHTS_OF_PAIRS = 0.5, 0.25, 0.1
_DENIED_WORDS = 4


@dataclass
class Reading:
    """What a text says.

    ``words`` gives the weight of each word by its key: its stem, ``#`` and a number or date, ``@``
    and an address, two characters of a script without spaces. ``details`` gives, by its key, what
    a detail is found by and how it is written; ``forms`` is all that may be found in the text,
    ``order`` the keys in order with the number of their sentence, ``row`` the plain text.
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
    counts: Counter[str] = field(default_factory=Counter)

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
    script = _script(body)
    body = one_of("empty", script or language).sub(" ", _LABEL.sub(_without_label, body))
    body, tokens = tokens_of(_without_opening(body, language), language)
    reading = Reading(body, language, script)
    reading.row = _row(tokens)
    reading.subject = frozenset(stem(fold(word), language) for word in subject.split())
    _add_tokens(reading, tokens)
    _add_lists(reading)
    for found in _QUOTATION.finditer(body):
        quoted = found[found.lastindex or 0]
        if flat := _row(tokens_of(quoted, language)[1]).replace(" ", ""):
            reading.quotations[flat] = quoted
    reading.codes = {
        code.strip("`") for code in _CODE.findall(body) if not _NUMBER_AND_UNIT.fullmatch(code)
    }
    if not reading.words and _SIGN.search(body):
        reading.words[body], reading.written[body] = 1.0, body
    reading.forms |= reading.subject | ({body} & reading.words.keys())
    return reading


def language_of(text: str, likely: str = "en") -> str:
    return guess_language(map(fold, re.findall(r"[^\W\d_]+", text)), likely)


def is_unspaced(key: str) -> bool:
    """Tell whether a key is a part of a text without spaces: two neighbouring characters."""
    return key[0] > _UNSPACED


def is_light(character: str) -> bool:
    """Tell whether a character of a script without spaces says little by itself."""
    return "\u3040" <= character <= "\u309f" or character in {" ", *listed("fillers", "zh")}


def _script(text: str) -> str:
    """Return the language of a text without spaces, as its script tells; else nothing."""
    return next((language for language, script in _SCRIPTS.items() if re.search(script, text)), "")


def _row(tokens: Iterable[Token]) -> str:
    keys = (" ".join(each.keys[0]) if each.kind == "unspaced" else each.keys[0] for each in tokens)
    return " ".join(keys)


def _without_label(found: re.Match[str]) -> str:
    words = [fold(word) for word in found.groups() if word]
    return "·" if listed("labels", "all").issuperset(words) else found[0]


def _without_opening(text: str, language: str) -> str:
    """Return a text without a clause that only says that something is said: "Note that"."""
    end, before, seen = 0, "", set[str]()
    tables = roles(language)
    for found in _WORD_OR_MARK.finditer(text):
        word = fold(found[0])
        listed_on = {*tables.get(word, ())}
        if word in ":,;" or "that" in listed_on:
            end = found.end() if "saying" in seen else end
        elif "asking" in seen and "that" in tables.get(f"{before}_{word}", ()):
            end = found.end()
        elif not listed_on & _OPENING and (listed_on & _CHANGING or not is_small(word, language)):
            break
        before, seen = word, seen | listed_on
    return text[end:] if re.search(r"\w", text[end:]) else text


def _add_tokens(reading: Reading, tokens: list[Token]) -> None:
    sentence = denied = end = 0
    before = ""
    for token in tokens:
        gap = reading.text[end : token.start]
        is_head = not end or _SENTENCE_END.search(gap) is not None
        sentence += is_head
        denied = 0 if _CLAUSE_END.search(gap) else max(0, denied - 1)
        if token.kind == "unspaced":
            _add_run(reading, token.keys[0])
        elif token.kind != "word":
            _add_detail(reading, token, sentence)
        elif token.start >= reading.unit_end:
            _add_word(reading, token, before, is_head=is_head, sentence=sentence)
            tables = roles(reading.language)
            word = token.keys[0]
            found = (*tables.get(word, ()), *tables.get(f"{before}_{word}", ()))
            reading.counts.update(found)
            if "negations" in found:
                denied = _DENIED_WORDS + 1
            elif denied:
                reading.denied.add(stem(word, reading.language))
        end, before = token.end, token.keys[0]


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
    word = fold(behind[1]) if behind else ""
    if is_small(word, reading.language) and len(word) > 1:
        return
    ends = range(len(word), 0, -1) if word and is_unspaced(word) else [len(word)]
    said = [word[:end] for end in ends] + [reading.text[max(0, number.start - 1) : number.start]]
    if unit := next((names[each] for each in said if names.get(each)), None):
        reading.units[number.keys[0]].add(unit)
        reading.unit_end = behind.end() if behind and word in names else 0


def _add_run(reading: Reading, run: str) -> None:
    reading.forms.update(run)
    for one, other in pairwise(f" {run} "):
        reading.forms.update([f"{one}|"] if is_light(other) else ())
        reading.forms.update([f"|{other}"] if is_light(one) else ())
    pairs = [one + other for one, other in pairwise(run)] or [run]
    for before, pair, after in zip(["", *pairs], pairs, [*pairs[1:], ""], strict=False):
        reading.beside[pair] = before, after
        reading.words[pair] = _WEIGHTS_OF_PAIRS[sum(map(is_light, pair))]
        reading.forms.add(pair)
        reading.order.append((pair, 0))
    for role in ("hedges", "conditions", "occasions", "negations"):
        run, times = one_of(role, reading.script).subn(" ", run)
        reading.counts[role] += times


def _add_lists(reading: Reading) -> None:
    for part in re.split(r"[.。;:!?()\n]", reading.text):
        separators = _SEPARATOR.findall(part)
        if not any(re.search(r"\w|、", each) for each in separators) or len(separators) < 2:
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
