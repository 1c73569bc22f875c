"""The memory server of the Model Context Protocol: its knowledge graph, as JSON Lines.

Each observation of an entity is a memory; the entity's name and type are kept with it. Relations
between entities are no memories; they are counted and left out.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.transfer.json_text import TOO_LONG, all_parsed, lines
from refine.transfer.rows import (
    BadRow,
    Incoming,
    LeftOut,
    Row,
    extra_of,
    first_text,
    known_and_other_tags,
    time_in,
)

_NAMES = ("name", "entityName", "id")


def read(stream: BinaryIO) -> Iterator[Row]:
    """Yield an entity's observations, line by line; some writers put two objects on one line."""
    for number, raw in lines(stream):
        place = f"line {number}"
        if raw is None:
            yield BadRow(place, TOO_LONG)
            continue
        try:
            values = all_parsed(raw)
        except InvalidValue as error:
            yield BadRow(place, str(error))
            continue
        for value in values:
            yield from _rows(place, value)


def _rows(place: str, value: Any) -> Iterator[Row]:
    if not isinstance(value, dict):
        yield BadRow(place, "is not an object")
    elif value.get("type") == "relation":
        yield LeftOut("relation")
    elif value.get("type") != "entity":
        yield BadRow(place, "is neither an entity nor a relation")
    else:
        yield from _observations(place, value)


def _observations(place: str, entity: dict[str, Any]) -> Iterator[Row]:
    name = first_text(entity, *_NAMES)
    observations = entity.get("observations")
    if not name:
        yield BadRow(place, f"has no {', '.join(_NAMES)}")
    elif not isinstance(observations, list):
        yield BadRow(place, "has no list of observations")
    else:
        for number, observation in enumerate(observations, 1):
            where = f"{place}, observation {number}"
            try:
                yield _memory(where, name, entity, observation)
            except InvalidValue as error:
                yield BadRow(where, str(error))


def _memory(place: str, name: str, entity: dict[str, Any], observation: object) -> Row:
    if not isinstance(observation, str):
        raise InvalidValue("is not a text")
    if not observation.strip():
        return LeftOut("blank")
    tags, others = known_and_other_tags(entity.get("tags"))
    kept = {**entity, "name": name, "tags": others}
    return Incoming(
        place=place,
        content=observation,
        tags=tags,
        created_at=time_in(entity),
        within=name,
        extra=extra_of(kept, but=("type", "observations")),
    )
