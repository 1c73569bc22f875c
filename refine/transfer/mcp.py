"""The MCP memory server's graph: observations of entities become memories, relations do not."""

from collections.abc import Iterator, Mapping
from typing import Any

from refine.errors import InvalidValue
from refine.transfer.rows import (
    BLANK,
    BadRow,
    LeftOut,
    Row,
    Wanted,
    first_of,
    first_text,
    has_time,
    memory_in,
    rows_in,
    subject_prefix,
    without_times,
)
from refine.transfer.sources import Source

_LISTS = ("entities", "relations", "graph", "result", "structuredContent")
_NAMES = ("name", "entityName", "id")
_TYPES = ("entityType", "entity_type")
_NO_TYPES = ("", "default", "unknown", "entity")
_TEXTS = ("text", "content", "contents", "observation")
_KINDS = ("type", "_type")
# The two ends of a relation.
_ENDS = ({"from", "to"}, {"from_id", "to_id"}, {"source", "target"})


def recognizes(source: Source) -> bool:
    first = first_of(source.sample, *_LISTS)
    return "observations" in first or any(first.get(name) == "relation" for name in _KINDS)


def read(source: Source, _wanted: Wanted) -> Iterator[Row]:
    """Yield the observations of entities: on a line each, in a list, or as ``read_graph`` answers.

    Some writers put two objects on one line.
    """
    yield from rows_in(source, _rows, *_LISTS)


def _rows(place: str, entity: dict[str, Any]) -> Iterator[Row]:
    if "observations" not in entity:
        if "relation" in map(entity.get, _KINDS) or any(ends <= entity.keys() for ends in _ENDS):
            yield LeftOut("relations between entities; only observations are imported")
            return
        if first_text(entity, *_KINDS) not in (None, "", "entity"):
            raise InvalidValue("is neither an entity nor a relation")
    name, observations = first_text(entity, *_NAMES), entity.get("observations")
    if not name:
        raise InvalidValue(f"has no {', '.join(_NAMES)}")
    if not isinstance(observations, list):
        raise InvalidValue("has no list of observations")
    if not observations:
        yield LeftOut("entities without observations")
    kinds = [each for each in _KINDS if entity.get(each) == "entity"]
    about = {key: each for key, each in entity.items() if key not in (*kinds, "observations")}
    for number, observation in enumerate(observations, 1):
        where = f"{place}, observation {number}"
        try:
            yield _memory(where, {**about, "name": name}, observation)
        except InvalidValue as error:
            yield BadRow(where, str(error))


def _memory(place: str, about: Mapping[str, Any], observation: object) -> Row:
    said = {"text": observation} if isinstance(observation, str) else observation
    if not isinstance(said, dict) or (text := first_text(said, *_TEXTS)) is None:
        raise InvalidValue("is not text")
    if not text:
        return LeftOut(BLANK)
    name, type_ = about["name"], (first_text(about, *_TYPES, *_KINDS) or "").strip()
    is_typed = type_.lower() not in _NO_TYPES
    return memory_in(
        place,
        {**(without_times(about) if has_time(said) else about), **said},
        *_TEXTS,
        prefix=subject_prefix(f"{name} ({type_})" if is_typed else name),
        within=name,
    )
