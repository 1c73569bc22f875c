"""Markdown: each paragraph and each item of a list is a memory, which begins with its headings."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from textwrap import dedent
from typing import Any

from refine.errors import InvalidValue
from refine.transfer.dates import DAY, day_in, without_day
from refine.transfer.rows import (
    BadRow,
    Incoming,
    Row,
    Wanted,
    extra_of,
    has_time,
    known_and_other_tags,
    subject_prefix,
    time_field,
)
from refine.transfer.sources import Source

_SUFFIXES = (".md", ".markdown", ".mdc", ".txt")
_OWN_NAME = re.compile(r"\w+\.md\s*[-–—:]\s*")
# Files that are named for what they are, not for what they speak of.
_UNTOLD = (
    *("", "memory", "memories", "long-term memory", "claude", "agents", "readme", "index"),
    *("notes", "user", "core", "journal"),
)

_HEADING = re.compile(r"(#{1,6})\s+(.+?)[\s#]*")
# A line that is a day, or bold (or italic, and short), stands for a heading below all others.
_BOLD_LINE, _BELOW_ALL = re.compile(r"\*\*([^*]+?):?\*\*:?|\*([^*.!?]{1,40})\*"), 7
_UNDERLINE = re.compile(r"=+|-+")
_BREAK = re.compile(r"([-*_])(\s*\1){2,}")
_ITEM = re.compile(r"(\s*)(?:[-*+•◦▪‣]|\d{1,9}[.)])\s+(?=\S)")
# "[2025-04-01] - ", "(2025-04-01) ", "2025-04-01: ", "[unknown] - ".
_DATED = re.compile(rf"[\[(*_]*{DAY.pattern.removeprefix('(?i)')}|\[[^\]]*\]\s*[-–—:]\s", re.I)
_FENCE = re.compile(r"`{3,}|~{3,}")
_BOLD = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")
_COMPLETE = re.compile(rf"{_DATED.pattern}.*|.*[.!?][\"”)*_]*\s*", re.I)
_FIELD = re.compile(r"(\w[\w -]*):\s*(.*)")
_LISTED = re.compile(r"\s*-\s+(.+)")


@dataclass(frozen=True)
class Part:
    """Where a text stands, and what holds for all of it; ``title`` stands for headings."""

    place: str = ""
    title: str = ""
    within: str = ""
    created_at: datetime | None = None
    tags: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)


def recognizes(source: Source) -> bool:
    if source.path.suffix.lower() not in _SUFFIXES and source.path.suffix:
        return False
    head = source.head(10_000)
    return b"\x00" not in head and not head.lstrip().startswith(b"{")


def read(source: Source, _wanted: Wanted) -> Iterator[Row]:
    """Yield the memories of a text, line by line: it may be longer than what fits in memory."""
    stem = without_day(source.path.stem)
    is_told = not source.is_alone and stem.lower() not in _UNTOLD
    part = Part(
        title=stem if is_told else "",
        within="" if source.is_alone else source.path.as_posix(),
        created_at=day_in(source.path.stem),
    )
    yield from rows_of_part(part, source.text_lines())


def rows_of_part(part: Part, lines: Iterable[tuple[int, str]]) -> Iterator[Row]:
    """Yield what a text says; fields before it (front matter) hold for all of it."""
    rest = iter(lines)
    first = next(rest, None)
    if first is not None and first[1].strip() == "---":
        part = _with_fields(part, rest)
    elif first is not None:
        rest = chain([first], rest)
    headings = _Headings(part)
    for block in _blocks(rest):
        if block.level:
            headings.set(block)
        else:
            yield from map(headings.memory, block.parts())


def _with_fields(part: Part, lines: Iterator[tuple[int, str]]) -> Part:
    """Return the part with the fields up to the line that ends them."""
    fields: dict[str, Any] = {}
    name = ""
    for _, line in lines:
        if line.strip() in ("---", "..."):
            break
        if found := _FIELD.fullmatch(line.rstrip()):
            name, value = found[1], found[2].strip()
            fields[name] = _listed(value) if value.startswith("[") else value.strip("'\"")
        elif (item := _LISTED.fullmatch(line)) and name:
            fields[name] = [*_listed(fields[name]), item[1].strip("'\" ")]
    tags, others = known_and_other_tags(fields.pop("tags", None))
    day = day_in(str(fields[time_field(fields)])) if has_time(fields) else None
    return replace(
        part,
        title=fields.pop("title", None) or fields.pop("name", None) or part.title,
        created_at=day or part.created_at,
        tags=tags,
        fields={**part.fields, **fields, "tags": others},
    )


def _listed(value: Any) -> list[str]:
    if isinstance(value, list):
        return value
    return [each.strip(" '\"") for each in value.strip("[] ").split(",") if each.strip(" '\"")]


@dataclass
class _Block:
    """A paragraph, an item of a list with what is in it, or (with a level) a heading."""

    number: int
    lines: list[str] = field(default_factory=list)
    indent: int | None = None  # of an item
    level: int = 0
    is_after_blank: bool = False
    fence: str = ""

    def holds(self, line: str) -> bool:
        """Tell whether a line is indented as what is in an item, whatever it looks like."""
        return self.indent is not None and _indent(line) > self.indent

    def takes(self, line: str) -> bool:
        """Tell whether a line that is neither blank nor a heading goes on with the block."""
        if not self.lines:
            return True
        if _ITEM.match(line) is not None:
            return self.indent is not None and _indent(line) > self.indent + 1
        if self.indent is None:
            return not self.is_after_blank and _DATED.match(line) is None
        return not self.is_after_blank or self.holds(line)

    def parts(self) -> "list[_Block]":
        """Return a block for each line of a paragraph, or fence, whose lines are complete."""
        is_fenced = _FENCE.match(self.lines[0]) is not None
        lines = self.lines[is_fenced : -1 if is_fenced else None]
        if self.indent is not None or not lines or not all(map(_COMPLETE.fullmatch, lines)):
            return [self]
        return [_Block(each, [line]) for each, line in enumerate(lines, self.number + is_fenced)]

    def add(self, line: str) -> None:
        if not self.lines and (item := _ITEM.match(line)) is not None:
            self.indent, line = _indent(line), line[item.end() :]
        elif self.is_after_blank:
            self.lines.append("")
        if self.fence:
            self.fence = "" if line.strip() == self.fence else self.fence
        elif (fence := _FENCE.match(line.strip())) is not None:
            self.fence = fence[0]
        self.is_after_blank = False
        self.lines.append(line)


def _indent(line: str) -> int:
    return len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())


def _blocks(lines: Iterable[tuple[int, str]]) -> Iterator[_Block]:
    block, is_comment = _Block(0), False
    for number, line in lines:
        stripped = line.strip()
        is_inside = block.holds(line)
        if block.fence and (is_inside or block.indent is None or not stripped):
            block.add(line)
        elif is_comment or stripped.startswith("<!--"):
            is_comment = "-->" not in stripped
            block.is_after_blank = bool(block.lines)
        elif not stripped:
            block.is_after_blank = bool(block.lines)
        elif not is_inside and (heading := _heading(number, stripped, block)) is not None:
            if heading is not block and block.lines:
                yield block
            if heading.lines:
                yield heading
            block = _Block(0)
        else:
            if not block.takes(line):
                yield block
                block = _Block(0)
            block.number = block.number or number
            block.add(line)
    if block.lines:
        yield block


def _heading(number: int, line: str, before: _Block) -> _Block | None:
    """Return the heading that a line is, or makes of the one before; an empty one for a rule."""
    if (found := _HEADING.fullmatch(line)) is not None:
        return _Block(number, [found[2]], level=len(found[1]))
    is_paragraph = len(before.lines) == 1 and before.indent is None and not before.is_after_blank
    if is_paragraph and _UNDERLINE.fullmatch(line):
        before.level = 1 if line.startswith("=") else 2
        return before
    if _BREAK.fullmatch(line):
        return _Block(number)
    if before.lines and before.takes(line):
        return None
    if _DATED.match(line) is not None and not without_day(line):
        return _Block(number, [line], level=_BELOW_ALL)
    if (found := _BOLD_LINE.fullmatch(line)) is not None:
        return _Block(number, [found[1] or found[2]], level=_BELOW_ALL + (found[1] is None))
    return None


class _Headings:
    """The headings above a line, by their level, and the day that the lowest dated one names."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._texts: dict[int, str] = {}
        self._days: dict[int, datetime] = {}

    def set(self, heading: _Block) -> None:
        for kept in (self._texts, self._days):
            for level in [level for level in kept if level >= heading.level]:
                del kept[level]
        text = _OWN_NAME.sub("", _plain(heading.lines[0]))
        if (day := day_in(text)) is not None:
            self._days[heading.level] = day
            text = without_day(text)
        if text.lower().removesuffix(".md") not in (*_UNTOLD, self._part.title.lower()):
            self._texts[heading.level] = text

    def memory(self, block: _Block) -> Row:
        part = self._part
        place = ", ".join(filter(None, (part.place, f"line {block.number}")))
        first, *rest = block.lines  # these without the indentation that all of them have
        content = _plain("\n".join([first.strip(), dedent("\n".join(rest))]))
        above = self._days[max(self._days)] if self._days else part.created_at
        about = " / ".join(filter(None, self._texts.values())) or part.title
        try:
            return Incoming(
                place=place,
                content=content,
                prefix=subject_prefix(about.rstrip(":")),
                tags=part.tags,
                created_at=(day_in(dated[0]) if (dated := _DATED.match(content)) else None)
                or above,
                within=f"{part.within}#{about}",
                extra=extra_of(part.fields),
            )
        except InvalidValue as error:
            return BadRow(place, str(error))


def _plain(text: str) -> str:
    return _BOLD.sub(r"\1", text).strip()
