"""LangGraph's stores: items with a namespace, a key and a value, LangMem's among them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from refine.transfer.rows import (
    NOT_ASKED_FOR,
    LeftOut,
    Row,
    Wanted,
    first_of,
    memory_in,
    objects_in,
    rows_in,
    subject_prefix,
)
from refine.transfer.sources import Source

_LISTS = ("items", "results", "data")
_TEXTS = ("content", "memory", "text", "data")
_NAMESPACES = ("namespace", "prefix")


def recognizes(source: Source) -> bool:
    first = first_of(source.sample, *_LISTS)
    return {"key", "value"} <= first.keys() and not first.keys().isdisjoint(_NAMESPACES)


def read(source: Source, wanted: Wanted) -> Iterator[Row]:
    """Yield the items; where namespaces differ, a memory begins with what its own has alone."""
    every = {_namespace(item) for item in objects_in(source, *_LISTS)}
    shared = set.intersection(*map(set, every)) if every else set()

    def make(place: str, item: dict[str, Any]) -> Iterator[Row]:
        namespace = _namespace(item)
        if wanted.user not in (None, *namespace):
            yield LeftOut(NOT_ASKED_FOR)
            return
        own = " / ".join(part for part in namespace if part not in shared)
        id_ = "/".join((*namespace, str(item.get("key"))))
        said = {**item, "text": _text(item.get("value"))}
        yield memory_in(place, said, "text", prefix=subject_prefix(own), source_id=id_)

    yield from rows_in(source, make, *_LISTS)


def _namespace(item: Mapping[str, Any]) -> tuple[str, ...]:
    given = item.get("namespace", item.get("prefix"))
    parts = given if isinstance(given, list) else str(given or "").split(".")
    return tuple(str(part) for part in parts if str(part).strip())


def _text(value: Any) -> str | None:
    """Return the text of a value, wherever LangMem and others put it; or its fields as text."""
    if isinstance(value, dict):
        inner = next((value[name] for name in _TEXTS if value.get(name)), None)
        if isinstance(inner, str | dict):
            return _text(inner)
        parts = (
            f"{name}: {each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)}"
            for name, each in value.items()
            if each not in (None, [], {}, "")
        )
        return "; ".join(parts)
    return value if isinstance(value, str) else None
