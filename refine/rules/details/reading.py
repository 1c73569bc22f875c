"""What a text says, and whether another text says it too."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from sys import intern

from refine.rules.details import addresses, unspaced
from refine.rules.details.folding import clean, fold
from refine.rules.details.function_words import FUNCTION_WORDS
from refine.rules.details.inflection import is_form_of, is_verb_form_of
from refine.rules.details.items import Item, flat, items_of
from refine.rules.details.languages import guess_language
from refine.rules.details.names import begins_sentence, name_key
from refine.rules.details.phrases import join_phrases
from refine.rules.details.quotations import quotations
from refine.rules.details.uncased_names import uncased_name

_ENOUGH_WORDS = 2
_SHORT_QUOTATION_WORDS = 3
_HEBREW_ABBREVIATION = re.compile('["״]')


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text says, as far as it can be compared with another.

    ``details``: the key of each detail, and the detail as it is written first. ``words``: the
    distinct words, folded; pairs of characters in scripts without spaces; numbers and dates in
    their canonical form.
    """

    details: Mapping[str, str]
    words: frozenset[str]
    _mentioned: frozenset[str]
    _row: str
    _language: str


def read(text: str) -> Reading:
    """Return what a text says. Takes time in proportion to its length, and raises nothing."""
    text = clean(text)
    draft = _Draft()
    found, rest = addresses.take_addresses(text)
    for address in found:
        draft.add_address(address)
    items = items_of(rest)
    row = " ".join(item.folded for item in items)
    language = guess_language(rest, (item.folded for item in items))
    draft.add_items(rest, join_phrases(rest, items, language))
    for written, inner in quotations(rest):
        if quoted := flat(inner):
            draft.details.setdefault(f"quote:{quoted}", written)
    return draft.reading(row, language)


def mentions(reading: Reading, key: str) -> bool:
    """Tell whether a text contains a detail, in whatever writing; ``key``: of another's details."""
    kind, _, value = key.partition(":")
    match kind:
        case "name":
            return value in reading.words or is_form_of(value, reading.words, reading._language)
        case "head":
            return mentions(reading, f"name:{value}") or (
                reading._language == "en" and is_verb_form_of(value, reading.words)
            )
        case "text":
            return unspaced.stands_in(value, reading._row.replace(" ", ""))
        case "quote":
            return _stands_in_row(value, reading._row)
    return any(reading_of_it in reading._mentioned for reading_of_it in key.split("|"))


def carries(carrier: Reading, key: str, original: Reading) -> bool:
    """Tell whether a text mentions a detail of another, and speaks of the same thing.

    It does if it has two more words of the original, or one more detail; or all of the others,
    where the original has fewer. Function words count only where the original has no others.
    """
    if not mentions(carrier, key):
        return False
    others = original.words.difference(_words_of(key))
    content = (others - FUNCTION_WORDS) or others
    if len(content & carrier.words) >= min(_ENOUGH_WORDS, len(content)):
        return True
    return any(mentions(carrier, other) for other in original.details if other != key)


def likeness(original: Reading, other: Reading) -> Fraction:
    """Return the share, 0 to 1, of the original's words that stand in the other; 1 if none."""
    if not original.words:
        return Fraction(1)
    return Fraction(len(original.words & other.words), len(original.words))


@dataclass(slots=True)
class _Draft:
    """A reading that is being made."""

    details: dict[str, str] = field(default_factory=dict)
    words: set[str] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)
    lower_case: set[str] = field(default_factory=set)

    def add_address(self, written: str) -> None:
        canonical = addresses.canonical(written)
        key = f"address:{canonical}"
        self.details.setdefault(key, written)
        self.words.add(canonical)
        self.mentioned.add(key)
        self.mentioned.update(f"address:{part}" for part in addresses.parts(canonical))

    def add_items(self, text: str, items: list[Item]) -> None:
        shouted = text.isupper()
        end, before = 0, ""
        for at, item in enumerate(items):
            if item.kind == "word":
                self.words.add(item.folded)
                written = text[item.start : item.end]
                if written.islower() and written.isalpha():
                    self.lower_case.add(item.folded)
                else:
                    at_head = begins_sentence(text[end : item.start], before) or shouted
                    following = items[at + 1].folded if at + 1 < len(items) else ""
                    self._add_name(written, item.folded, following, at_head=at_head)
            elif item.kind == "unspaced":
                self._add_run(item.folded)
            else:
                self.words.add(item.folded)
                self._add(item.key, text[item.start : item.end])
            if item.hints:
                self.mentioned.update(item.hints)
            end, before = item.end, item.folded
        if not text.isascii():
            self._add_uncased(text, items)

    def _add_uncased(self, text: str, items: list[Item]) -> None:
        """Add the names of scripts without capitals, and the words of a text's other script."""
        words = [item.folded if item.kind == "word" else "" for item in items]
        scripts = [_script(item, text) for item in items]
        if "unspaced" in scripts:
            self._add_marked(text)
        uncased = len(items) - scripts.count("cased") - scripts.count("")
        if not uncased:
            return
        foreign = "cased" if uncased >= scripts.count("cased") else "uncased"
        for at, item in enumerate(items):
            written = text[item.start : item.end]
            if scripts[at] == "uncased" and _HEBREW_ABBREVIATION.search(written):
                self.details.setdefault(f"name:{item.folded}", written)
            elif scripts[at] == "uncased" and (name := uncased_name(words, at)) is not None:
                self.details.setdefault(f"name:{name}", written)
            elif scripts[at] == foreign and len(item.folded) > 1:
                if not at or items[at - 1].kind != "number":
                    self.details.setdefault(f"name:{item.folded}", written)
            elif scripts[at] == "unspaced" and foreign == "uncased":
                self.details.setdefault(f"text:{item.folded}", written)

    def _add_name(self, written: str, folded: str, following: str, *, at_head: bool) -> None:
        key = name_key(written, folded, following, at_head=at_head)
        if key is not None:
            self.details.setdefault(key, written)

    def _add_run(self, run: str) -> None:
        self.words.update(unspaced.pairs(run))
        for written, value, is_detail in unspaced.numerals(run):
            self.mentioned.add(f"number:{value}")
            if is_detail:
                self.words.add(str(value))
                self._add(f"number:{value}", written)
        for written, number in unspaced.weekdays(run):
            self._add(f"weekday:{number}", written)

    def _add_marked(self, text: str) -> None:
        for written in unspaced.marked(text):
            self.details.setdefault(f"text:{fold(written)}", written)
        for written, value in unspaced.korean_numbers(text):
            self.mentioned.add(f"number:{value}")
            if value > 1:
                self._add(f"number:{value}", written)

    def _add(self, key: str, written: str) -> None:
        self.details.setdefault(key, written)
        self.mentioned.add(key)
        self.mentioned.update(key.split("|")[:1])

    def reading(self, row: str, language: str) -> Reading:
        details = {
            intern(key): written
            for key, written in self.details.items()
            if not self._is_ordinary(key)
        }
        words = frozenset(map(intern, self.words))
        return Reading(details, words, frozenset(map(intern, self.mentioned)), row, language)

    def _is_ordinary(self, key: str) -> bool:
        """Tell whether a capital was that of a sentence: the word is in lower case elsewhere."""
        kind, _, value = key.partition(":")
        return kind == "head" and (value in self.lower_case or f"name:{value}" in self.details)


def _script(item: Item, text: str) -> str:
    """Return ``cased``, ``uncased`` or ``unspaced`` for a word, "" for a number or date."""
    if item.kind == "word":
        first = text[item.start]
        return "cased" if first.lower() != first.upper() else "uncased"
    return item.kind if item.kind == "unspaced" else ""


def _stands_in_row(words: str, row: str) -> bool:
    if any(map(unspaced.is_unspaced, words)):
        return words.replace(" ", "") in row.replace(" ", "")
    return f" {words} " in f" {row} "


def _words_of(key: str) -> Iterable[str]:
    """Return the words that a detail consists of."""
    kind, _, value = key.partition(":")
    if kind == "quote":
        words = value.split()
        # A long quotation speaks for itself.
        return {*words, *unspaced.pairs(value)} if len(words) <= _SHORT_QUOTATION_WORDS else ()
    return unspaced.pairs(value) if kind == "text" else (value,)
