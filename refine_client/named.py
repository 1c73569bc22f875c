"""Memories with a name: it stands in brackets before the text, where the agent sees it, too.

What has no name has one of its id. A session may merge named memories: then one name is left.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from refine_client.client import Reason, Refine, RefineError, Row

_NAMED = re.compile(r"\[([^\[\]\n]{1,200})\][ \n]?(.*)", re.DOTALL)
_UNNAMED = "unnamed/"
_RULE = "1 to 200 characters, in one line, without brackets; unnamed/ and a number is no name"


class Named(NamedTuple):
    """A memory, by its name."""

    name: str
    text: str
    row: Row


class NamedMemories:
    """Core memories, each under a name of its own; every method may raise RefineError."""

    def __init__(self, refine: Refine) -> None:
        self._refine = refine

    def all(self, query: str | None = None) -> Iterator[Named]:
        """Yield them, newest first: those that have ``query`` in name or text."""
        seen = set[str]()
        for row in self._refine.memories(query, type="core"):
            each = _named(row)
            if each.name not in seen:
                seen.add(each.name)
                yield each

    def get(self, name: str) -> Named | None:
        """Return the memory of this name, or None."""
        if _is_of_id(name):
            return self._by_id(name)
        return next((each for each in self.all(f"[{name}]") if each.name == name), None)

    def put(self, name: str, text: str) -> None:
        """Save a text under this name, in place of the one that it has."""
        found = self.get(name)
        if found is None:
            self._refine.save(_content(name, text))
        else:
            self.change(found, text)

    def change(self, found: Named, text: str) -> None:
        """Give a memory another text, unless it has it already."""
        content = text.strip() if _is_of_id(found.name) else _content(found.name, text)
        self._correct(found, content, "wrong")

    def rename(self, found: Named, name: str) -> None:
        """Give a memory another name."""
        self._correct(found, _content(name, found.text), "same")

    def forget(self, found: Named) -> None:
        """Forget a memory; it can be restored."""
        self._refine.forget(found.row["id"])

    def _correct(self, found: Named, content: str, reason: Reason) -> None:
        if content != found.row["content"]:
            self._refine.correct(found.row["id"], content, reason)

    def _by_id(self, name: str) -> Named | None:
        try:
            row = self._refine.memory(int(name.removeprefix(_UNNAMED)))
        except RefineError as error:
            if error.status == 404:
                return None
            raise
        found = _named(row)
        is_kept_core = row["discarded_at"] is None and row["memory_type"] == "core"
        return found if is_kept_core and found.name == name else None


def _named(row: Row) -> Named:
    found = _NAMED.fullmatch(row["content"])
    if found is None:
        return Named(f"{_UNNAMED}{row['id']}", row["content"], row)
    return Named(found[1], found[2], row)


def _content(name: str, text: str) -> str:
    if _is_of_id(name) or _NAMED.fullmatch(f"[{name}]") is None:
        raise RefineError(422, f"A name has {_RULE}.")
    return f"[{name}] {text}".rstrip()


def _is_of_id(name: str) -> bool:
    return re.fullmatch(rf"{_UNNAMED}[1-9][0-9]{{0,17}}", name) is not None
