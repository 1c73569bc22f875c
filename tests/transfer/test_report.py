"""What a report says in words."""

from refine.transfer.report import LEFT_OUT, Report
from refine.transfer.rows import LeftOut, OnePage
from tests.transfer.files import FIXTURES, read

MORE = "join the rows of all pages in one file, and import that"


def words_of(*rows: LeftOut | OnePage) -> list[str]:
    """What the report of a file with these rows says."""
    report = Report()
    for row in rows:
        report.note(row)
    return [f"{label}: {text}" for label, text in report.rows()]


def test_every_kind_that_a_reader_leaves_out_has_words() -> None:
    kinds = set()
    for file in FIXTURES.iterdir():
        format_ = {".af": "letta", ".jsonl": "mcp"}.get(file.suffix, "mem0")
        format_ = "letta" if file.name == "passages.json" else format_
        kinds |= {row.kind for row in read(file.read_bytes(), format_) if type(row) is LeftOut}

    assert kinds == set(LEFT_OUT)


def test_left_out_rows_are_counted_by_kind() -> None:
    active = "; to import them, make them active there and export them again"

    assert words_of(*map(LeftOut, LEFT_OUT), *map(LeftOut, LEFT_OUT)) == [
        f"left out: 2 archived at the source{active}",
        "left out: 2 blank",
        "left out: 2 deleted at the source",
        "left out: 2 expired at the source",
        "left out: 2 blocks that the agent in the file does not have",
        f"left out: 2 paused at the source{active}",
        "left out: 2 relations between entities; only observations are imported",
        "left out: 2 replaced by newer memories at the source",
    ]


def test_further_pages_are_told_with_or_without_a_total() -> None:
    for page, held in (
        (OnePage(100, 2_140), "the file is one page, with 100 of 2,140 rows"),
        (OnePage(1_000, None), "the file is one page, with 1,000 rows"),
    ):
        assert words_of(page) == [f"more pages: {held}; {MORE}"]
