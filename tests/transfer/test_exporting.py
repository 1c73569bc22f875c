"""What is written in a format of others can be read again."""

from datetime import UTC, datetime

import pytest

from refine.transfer.exporting import WRITERS, Readable
from refine.transfer.importing import format_of
from tests.transfer.files import bad, memories, read, source

DAY = datetime(2025, 4, 1, tzinfo=UTC)
WRITTEN = [
    Readable(1, "core", "Anna sails", ["voice"], DAY),
    Readable(2, "core", "Bo knits,\nand sews", [], DAY),
    Readable(3, "journal", "The mast was mended", [], DAY),
]


@pytest.mark.parametrize(
    ("name", "format_", "prefix", "has_days"),
    [
        ("json", "jsonl", "", True),
        ("markdown", "markdown", "", True),
        ("mcp", "mcp", "Wren (agent): ", False),
    ],
)
def test_a_file_is_recognized_and_read_row_for_row(name, format_, prefix, has_days):
    text = "\n".join(WRITERS[name]("Wren", WRITTEN))

    rows = read(text)

    assert format_of(source(text)) == format_
    assert bad(rows) == []
    assert [row.prefix + row.content for row in memories(rows)] == [
        f"{prefix}{each.content}" for each in WRITTEN
    ]
    assert {row.created_at for row in memories(rows)} == {DAY if has_days else None}
