"""Which rows of a mem0 answer are left out, and what it says about further pages."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from refine import clock
from refine.transfer.rows import BadRow, LeftOut, Row
from tests.transfer.files import bad, fixture, memories, read

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: NOW)


def kinds(rows: list[Row]) -> list[str]:
    """The first words of why rows are left out."""
    return [row.kind.split()[0] for row in rows if isinstance(row, LeftOut)]


def read_row(**fields: Any) -> list[Row]:
    return read(json.dumps([{"id": "1", "memory": "Likes tea", **fields}]), "mem0")


class TestLeftOut:
    def test_is_a_row_that_the_platform_hides(self):
        rows = read(fixture("mem0-page.json"), "mem0")

        assert [row.content for row in memories(rows)] == [
            "Bakes rye bread on Fridays",
            "Has a railcard for the summer",
            "Works at the lighthouse",
        ]
        assert kinds(rows) == ["expired", "deleted", "replaced", "deleted"]

    @pytest.mark.parametrize(
        ("fields", "kind"),
        [
            ({"state": " Deleted "}, "deleted"),
            ({"status": "archived"}, "archived"),
            ({"state": "inactive"}, "paused"),
            ({"status": "outdated"}, "replaced"),
            ({"state": "expired"}, "expired"),
            ({"deleted_at": "2026-01-01"}, "deleted"),
            ({"archived_at": 1_772_352_000}, "archived"),
            ({"is_archived": 1}, "archived"),
            ({"superseded_by": "2"}, "replaced"),
            ({"event": "delete"}, "deleted"),
            ({"state": "active", "is_deleted": True}, "deleted"),
            ({"expires_at": 1_772_352_000}, "expired"),
        ],
    )
    def test_is_a_row_with_such_a_state(self, fields, kind):
        assert kinds(read_row(**fields)) == [kind]

    @pytest.mark.parametrize(
        "fields",
        [
            {"state": "active", "archived_at": "2026-01-01"},
            {"status": "SUCCEEDED", "event": "ADD"},
            {"is_deleted": False, "deleted_at": None, "superseded_by": ""},
            {"is_deleted": "false"},
            {"metadata": {"state": "deleted"}},
            {"state": ["deleted"]},
        ],
    )
    def test_is_no_row_that_does_not(self, fields):
        assert len(memories(read_row(**fields))) == 1

    @pytest.mark.parametrize(
        ("day", "count"),
        [
            ("2026-05-03", 0),
            ("2026-05-04", 1),
            ("2026-05-04T11:59:59Z", 0),
            ("2026-05-04T12:00:01Z", 1),
            ("9999-12-31T23:59:59Z", 1),
            ("", 1),
        ],
    )
    def test_is_an_expired_row(self, day, count):
        assert len(memories(read_row(expiration_date=day))) == count

    def test_is_no_row_with_a_date_that_cannot_be_read(self):
        reason = "expiration_date is not a time in ISO 8601 or a number of seconds since 1970"

        assert bad(read_row(expiration_date="soon")) == [("row 1", reason)]

    def test_is_a_deletion_in_a_history(self):
        change = {"id": "h", "memory_id": "1", "old_memory": None, "new_memory": "Likes tea"}
        file = [{**change, "event": "ADD"}, {**change, "event": "DELETE"}]

        rows = read(json.dumps(file), "mem0")

        reason = "is a change in a memory's history; export the memories with get_all"
        assert (bad(rows), kinds(rows)) == ([("row 1", reason)], ["deleted"])


class TestFurtherPages:
    @pytest.mark.parametrize(
        ("fields", "are_told"),
        [
            ({"next": "https://mem0.example/?page=2"}, True),
            ({"previous": "https://mem0.example/?page=1", "next": None}, True),
            ({"has_more": True}, True),
            ({"total": 3, "page": 1, "size": 2}, True),
            ({"count": 2, "total_memories": 3}, True),
            ({"total": 2, "page": 2, "pages": 2}, True),
            ({"total_pages": 5}, True),
            ({"count": 2, "next": None, "previous": None}, False),
            ({"total": 2, "page": 1, "pages": 1, "has_more": False}, False),
            ({"total": "many", "next": {}}, False),
        ],
    )
    def test_are_known_from_the_fields_around_the_list(self, fields, are_told):
        rows = read(json.dumps({"results": [{"memory": "a"}, {"memory": "b"}], **fields}), "mem0")

        assert len(memories(rows)) == 2
        assert [row.reason[:37] for row in rows if isinstance(row, BadRow)] == [
            "is one page of several, with 2 rows; "
        ] * are_told

    def test_are_told_of_by_others_too(self):
        for file in (
            {"result": {"points": [{"payload": {"data": "a"}}], "next_page_offset": 7}},
            {"data": [{"path": "/a.md", "content": "a"}], "next_page": "page_7"},
        ):
            rows = read(json.dumps(file))

            assert len(memories(rows)) == 1
            assert [reason[:22] for _, reason in bad(rows)] == ["is one page of several"]
