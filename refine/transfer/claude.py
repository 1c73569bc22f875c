"""Claude: the memory in its export, Markdown about the person and about each project."""

from collections.abc import Iterator
from typing import Any

from refine.transfer.markdown import Part, rows_of_part
from refine.transfer.rows import Row, Wanted, first_of, rows_in
from refine.transfer.sources import Source

_OF_PERSON, _OF_PROJECTS = "conversations_memory", "project_memories"


def recognizes(source: Source) -> bool:
    return not {_OF_PERSON, _OF_PROJECTS}.isdisjoint(first_of(source.sample))


def read(source: Source, _wanted: Wanted) -> Iterator[Row]:
    yield from rows_in(source, _rows)


def _rows(place: str, row: dict[str, Any]) -> Iterator[Row]:
    texts = {"": row.get(_OF_PERSON)}
    projects = row.get(_OF_PROJECTS)
    texts.update(projects if isinstance(projects, dict) else {})
    for project, text in texts.items():
        if isinstance(text, str):
            part = Part(place, within=project, fields={"project": project} if project else {})
            yield from rows_of_part(part, enumerate(text.splitlines(), 1))
