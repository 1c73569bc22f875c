"""Reading a text: its details and words."""

import re
import unicodedata
from dataclasses import dataclass, field
from sys import intern

from refine.rules.details import addresses, eastern_numbers
from refine.rules.details.date_phrases import join_dates
from refine.rules.details.eastern_names import eastern_names
from refine.rules.details.folding import clean, fold
from refine.rules.details.items import Item, flat, items_of
from refine.rules.details.languages import guess_language
from refine.rules.details.names import begins_sentence, name_key
from refine.rules.details.number_phrases import join_numbers
from refine.rules.details.quotations import quotations
from refine.rules.details.reading import Reading
from refine.rules.details.tokens import pairs
from refine.rules.details.uncased_names import uncased_name

_LATIN = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")
_HEBREW_ABBREVIATION = re.compile('["״]')


def read(text: str) -> Reading:
    """Return what a text says. Takes time in proportion to its length, and raises nothing."""
    text = clean(text)
    found, rest = addresses.take_addresses(text)
    items = items_of(rest)
    language = guess_language(rest, (item.folded for item in items))
    draft = _Draft(language)
    for address in found:
        draft.add_address(address)
    joined = join_dates(rest, join_numbers(rest, items, language), language)
    draft.add_items(rest, joined)
    for written, inner in quotations(rest):
        if quoted := flat(inner):
            draft.add(f"quote:{quoted}", written)
    symbols = _symbols(rest)
    draft.mentioned |= symbols
    draft.words = draft.words or symbols
    return draft.reading(" ".join(item.folded for item in items))


@dataclass(slots=True)
class _Draft:
    """A reading that is being made."""

    language: str
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
                self.add(item.key, text[item.start : item.end])
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
            self._add_eastern(_without_numbers(text, items))
        latin = scripts.count("latin")
        others = len(scripts) - latin - scripts.count("")
        if not others:
            return
        foreign = ("latin",) if others >= latin else ("other", "unspaced")
        for at, item in enumerate(items):
            key = _uncased_key(words, at, text[item.start : item.end])
            if key is None and scripts[at] in foreign and not _is_unit(items, at):
                key = f"{'text' if scripts[at] == 'unspaced' else 'name'}:{item.folded}"
            if key is not None:
                self.details.setdefault(key, text[item.start : item.end])

    def _add_name(self, written: str, folded: str, following: str, *, at_head: bool) -> None:
        key = name_key(written, folded, following, at_head=at_head, language=self.language)
        if key is not None:
            self.details.setdefault(key, written)

    def _add_run(self, run: str) -> None:
        self.words.update(pairs(run))
        for number in eastern_numbers.numerals_of(run):
            self._add_counted(number)
        for written, found in (*eastern_numbers.dates_of(run), *eastern_numbers.times_of(run)):
            self.add(found.key, written)
            self.mentioned.update(found.hints)
        for written, weekday in eastern_numbers.weekdays_of(run):
            self.add(f"weekday:{weekday}", written)

    def _add_eastern(self, text: str) -> None:
        for name in eastern_names(text):
            self.add(f"text:{fold(name)}", name)
        for number in eastern_numbers.korean_numbers_of(text):
            self._add_counted(number)

    def _add_counted(self, number: eastern_numbers.Counted) -> None:
        self.mentioned.add(f"number:{number.value}")
        if number.is_detail:
            self.words.add(str(number.value))
            self.add(f"number:{number.value}", number.written)

    def add(self, key: str, written: str) -> None:
        self.details.setdefault(key, written)
        self.mentioned.add(key)
        self.mentioned.update(key.split("|")[:1])

    def reading(self, row: str) -> Reading:
        details = {
            intern(key): written
            for key, written in self.details.items()
            if not self._is_ordinary(key)
        }
        words = frozenset(map(intern, self.words))
        return Reading(details, words, frozenset(map(intern, self.mentioned)), row, self.language)

    def _is_ordinary(self, key: str) -> bool:
        """Tell whether a capital was that of a sentence: the word is in lower case elsewhere."""
        kind, _, value = key.partition(":")
        return kind == "head" and (value in self.lower_case or f"name:{value}" in self.details)


def _symbols(text: str) -> set[str]:
    """Return the emoji and other symbols, which are all that a text without words says."""
    return {character for character in set(text) if unicodedata.category(character)[0] == "S"}


def _without_numbers(text: str, items: list[Item]) -> str:
    """Return a text with blanks for numbers and dates: 5月田中さん names no 月田中."""
    kept, end = [], 0
    for item in items:
        if item.kind in ("number", "date"):
            kept.append(text[end : item.start])
            end = item.end
    return " ".join((*kept, text[end:]))


def _script(item: Item, text: str) -> str:
    """Return ``latin``, ``other`` or ``unspaced`` for a word, "" for a number or date."""
    if item.kind == "word":
        return "latin" if _LATIN.match(text, item.start) else "other"
    return item.kind if item.kind == "unspaced" else ""


def _uncased_key(words: list[str], at: int, written: str) -> str | None:
    if not words[at]:
        return None
    name = words[at] if _HEBREW_ABBREVIATION.search(written) else uncased_name(words, at)
    return f"name:{name}" if name is not None else None


def _is_unit(items: list[Item], at: int) -> bool:
    """Tell whether a word of another script may be a unit behind a number, or is but a letter."""
    return len(items[at].folded) == 1 or (at > 0 and items[at - 1].kind == "number")
