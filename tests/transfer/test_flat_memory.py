"""Many rows need no more memory than few: an import reads and writes them piece by piece."""

import gc
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
from flask import Flask

from refine.extensions import db
from refine.transfer.importing import BATCH_MEMORIES, import_memories, rows_at
from refine.transfer.rows import Row
from tests import factories

SAID = "the bees moved into the old hive behind the library and stayed over the winter " * 5
LINES = {
    "notes.md": f"- {SAID}{{}}\n",
    "log.txt": f"2025-04-01: {SAID}{{}}\n",
    "rows.jsonl": f'{{{{"text": "{SAID}{{}}"}}}}\n',
    "table.csv": f"{SAID}{{}},\n",
}


def file(folder: Path, name: str, count: int) -> Path:
    path = folder / f"{count}-{name}"
    head = "text,date\n" if name == "table.csv" else ""
    path.write_text(head + "".join(map(LINES[name].format, range(count))))
    return path


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that Python's objects take meanwhile."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def exhaust(rows: Iterable[Row]) -> int:
    return sum(1 for _ in rows)


@pytest.mark.parametrize("name", LINES)
def test_reading_takes_as_much_memory_for_five_times_the_rows(tmp_path, name):
    few, many = file(tmp_path, name, 300), file(tmp_path, name, 1_500)
    assert exhaust(rows_at(many)) == 1_500  # and Python has what it keeps for reuse

    taken = [peak_bytes(lambda each=path: exhaust(rows_at(each))) for path in (few, many)]

    assert taken[1] < taken[0] + 50_000 < 500_000


def collected(path: Path) -> Iterator[Row]:
    """The rows of a file; what Python would free sooner or later is freed with each batch."""
    for number, row in enumerate(rows_at(path)):
        if number % BATCH_MEMORIES == 0:
            gc.collect()
        yield row


@pytest.mark.nightly
def test_importing_takes_as_much_memory_for_four_times_the_rows(app: Flask, tmp_path):
    taken = []
    for count in (1_000, 2_000, 8_000):
        owner = factories.agent()
        db.session.commit()
        read = partial(collected, file(tmp_path, "notes.md", count))
        taken.append(peak_bytes(partial(import_memories, owner, read, source="markdown")))

    assert taken[2] < taken[1] * 1.1
