"""Memories with a name: it stands in brackets before the text, where the agent sees it, too.

What has no name has one of its id. A session may merge named memories: then one name is left.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from refine_client.client import Reason, Refine, RefineError, Row

_NAMED = re.compile(r"\[([^\[\]\n]{1,200})\][ \n]?(.*)", re.DOTALL)
_UNNAMED = "unnamed/"


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
        if name.startswith(_UNNAMED) and (id_ := name.removeprefix(_UNNAMED)).isdigit():
            return self._by_id(int(id_), name)
        return next((each for each in self.all(f"[{name}]") if each.name == name), None)

    def put(self, name: str, text: str, reason: Reason = "wrong") -> None:
        """Save under this name, or correct what it names; RefineError if a rule refuses."""
        if _NAMED.fullmatch(f"[{name}]") is None or name.startswith(_UNNAMED):
            raise RefineError(422, "A name has 1 to 200 characters, without brackets.")
        found = self.get(name)
        content = f"[{name}] {text}".rstrip()
        if found is None:
            self._refine.save(content)
        elif found.row["content"] != content:
            self._refine.correct(found.row["id"], content, reason)

    def change(self, found: Named, text: str, name: str | None = None) -> None:
        """Give a memory another text, or another name."""
        is_unnamed = found.name.startswith(_UNNAMED)
        if name is not None or not is_unnamed:
            text = f"[{name or found.name}] {text}"
        reason: Reason = "wrong" if name is None else "same"
        self._refine.correct(found.row["id"], text.rstrip(), reason)

    def forget(self, found: Named) -> None:
        """Forget a memory; it can be restored."""
        self._refine.forget(found.row["id"])

    def _by_id(self, id_: int, name: str) -> Named | None:
        try:
            row = self._refine.memory(id_)
        except RefineError as error:
            if error.status == 404:
                return None
            raise
        is_it = row["discarded_at"] is None and _named(row).name == name
        return _named(row) if is_it else None


def _named(row: Row) -> Named:
    found = _NAMED.fullmatch(row["content"])
    if found is None:
        return Named(f"{_UNNAMED}{row['id']}", row["content"], row)
    return Named(found[1], found[2], row)
