"""mem0: what ``get_all`` or ``search`` return in each SDK, its platform, and Qdrant's points."""

from collections.abc import Iterator
from typing import Any

from refine.errors import InvalidValue
from refine.transfer.objects import LISTS, object_rows
from refine.transfer.rows import LeftOut, Row, Wanted, first_of, list_in, listed
from refine.transfer.sources import Source

_POINTS = (*LISTS, "result", "points")
# Fields of a row, or of a point's payload, that other programs have no use for.
_ITS_OWN = {"memory", "data", "old_memory", "new_memory"}


def recognizes(source: Source) -> bool:
    first = _unpacked(dict(first_of(source.sample, *_POINTS)))
    is_list = any(list_in(source.sample, name) for name in LISTS)
    return not _ITS_OWN.isdisjoint(first) or (is_list and not {"content", "text"}.isdisjoint(first))


def read(source: Source, wanted: Wanted) -> Iterator[Row]:
    """Yield the memories of lines, of a list, or of one under a name that mem0 has used."""
    document = None if source.has_json_lines else source.document
    memories = listed(document, *_POINTS)
    is_answer = memories != [document] or not _ITS_OWN.isdisjoint(_unpacked(memories[0]))
    if not source.has_json_lines and not (memories and is_answer):
        raise InvalidValue(f"holds no memories (a list, or one under {', '.join(LISTS)})")
    yield from object_rows(source, wanted, *_POINTS, unpack=_unpacked)
    for _ in list_in(document, "relations"):
        yield LeftOut("relations of the graph; only memories are imported")


def _unpacked(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a row, those of a point's payload among them."""
    payload = row.get("payload")
    return {**row, **payload, "payload": None} if isinstance(payload, dict) else row
