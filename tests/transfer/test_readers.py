"""What each format's reader makes of a file."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from refine.transfer import objects, sources
from refine.transfer.importing import FORMATS
from refine.transfer.rows import (
    BLANK,
    DELETED,
    MAX_EXTRA_CHARACTERS,
    BadRow,
    Incoming,
    LeftOut,
    Wanted,
    extra_of,
)
from refine.transfer.sources import MAX_LINE_BYTES
from tests.transfer.files import bad, fixture, memories, own_file, own_row, read
from tests.transfer.test_fuzz import FILES

HUMAN = "Ada keeps bees, and calls the oldest hive the library."
PERSONA = "I am Wren, and I answer plainly."
TOO_LONG = "must not be longer than 2,000,000 bytes"


def fields(extra: str | None) -> Any:
    return json.loads(extra or "")


class TestLetta:
    def test_blocks_become_core_memories_and_none_constitutional(self):
        rows = read(fixture("agent-v2.af"), "letta")

        human, persona = memories(rows)
        assert (human.content, human.memory_type) == (HUMAN, "core")
        assert (persona.content, persona.memory_type) == (PERSONA, "core")
        assert (human.constitutional, persona.constitutional) == (False, False)
        assert human.tags == ("relational",)
        assert rows[2] == LeftOut(BLANK)

    def test_imports_no_secret_of_an_agent_file(self):
        for name in ("agent-v2.af", "agent-v1.af"):
            assert b"sk-" in fixture(name), name
            assert "sk-" not in repr(read(fixture(name), "letta")), name

    def test_drops_fields_whose_name_suggests_a_secret(self):
        for name in (
            *("secret_key", "aws_secret_access_key", "clientSecret", "session_token", "token"),
            *("auth", "cookie", "pwd", "apiKey", "x-api-key", "Authorization", "db_password"),
        ):
            kept = extra_of({"metadata": {name: "opens something", "prompt_tokens": 7}})
            assert fields(kept) == {"metadata": {"prompt_tokens": 7}}, name

    def test_reads_version_1_with_its_dates(self):
        human, persona = memories(read(fixture("agent-v1.af"), "letta"))

        assert (human.content, persona.content) == (HUMAN, PERSONA)
        assert human.created_at == datetime(2025, 3, 2, 8, 30, 0, 250_000, tzinfo=UTC)
        assert persona.created_at == datetime(2025, 3, 2, 6, 31, tzinfo=UTC)

    def test_reads_passages_without_vectors_and_leaves_deleted_ones_out(self):
        rows = read(fixture("passages.json"), "letta")

        (passage,) = memories(rows)
        assert passage.content == "The first frost came on the ninth of October."
        assert passage.memory_type is None
        assert passage.source_id == "passage-6f0a3c1e-58bd-4ad9-9b8e-0b6a6f2f7d11"
        assert "embedding" not in (passage.extra or "")
        assert fields(passage.extra)["metadata"] == {"page": 12}
        assert rows[1] == LeftOut(DELETED)

    def test_names_a_bad_block_and_reads_the_next(self):
        for block, reason in (
            ("a text", "is not an object"),
            ({"label": "x"}, "has no text in value"),
            ({"value": "x", "created_at": "tomorrow"}, "created_at is not a time"),
        ):
            rows = read(json.dumps({"blocks": [block, {"value": "good"}]}), "letta")

            assert [row.content for row in memories(rows)] == ["good"], reason
            ((place, said),) = bad(rows)
            assert (place, said.startswith(reason)) == ("block 1", True), said

    def test_names_the_problem_of_a_file(self):
        lacks = "holds no blocks, core_memory, or archival passages"
        for file, place, reason in (
            *((each, "file", lacks) for each in ('{"messages": []}', '{"blocks": {}}', "7")),
            ('[{"id": "passage-1"}]', "passage 1", "has no text in text"),
            ('"{\\"agents\\": "', "file", "must be valid JSON"),
            ('"{}" "{}"', "file", "must be valid JSON"),
            ('"not JSON"', "file", "must be valid JSON"),
        ):
            assert bad(read(file, "letta")) == [(place, reason)], file

    def test_imports_only_the_blocks_of_its_agent(self):
        rows = read(fixture("agent-with-other-blocks.af"), "letta")

        other = LeftOut("blocks that the agent in the file does not have")
        assert [row for row in rows if not isinstance(row, Incoming)] == [other, other]
        assert len(memories(rows)) == 2

    @pytest.mark.parametrize(
        ("agents", "count"),
        [([], 2), ([{"name": "Rook"}], 2), ([{"block_ids": ["0"]}], 1), ([{"block_ids": []}], 0)],
    )
    def test_imports_all_blocks_only_where_the_file_does_not_tell_whose_they_are(
        self, agents, count
    ):
        blocks = [{"id": str(number), "value": f"block {number}"} for number in range(2)]

        rows = read(json.dumps({"agents": agents, "blocks": blocks}), "letta")

        assert len(memories(rows)) == count

    @pytest.mark.parametrize("blocks_come_first", [False, True])
    def test_reads_one_agent_of_several_and_none_without_a_choice(self, blocks_come_first):
        agents = [{"id": "a", "block_ids": ["0"]}, {"id": "b", "block_ids": ["1"]}]
        file = {"agents": agents, "blocks": [{"id": "0", "value": "a block"}]}
        ordered = dict(sorted(file.items(), reverse=blocks_come_first))

        reason = "holds 2 agents: choose one with --agent ID or NAME"
        assert read(json.dumps(ordered), "letta") == [BadRow("file", reason)]
        (block,) = memories(read(json.dumps(ordered), "letta", Wanted(agent="a")))
        assert block.content == "a block"

    def test_reads_a_file_inside_a_json_string_like_the_file_itself(self):
        wrapped, plain = fixture("agent-in-a-string.af"), fixture("agent-with-other-blocks.af")

        assert read(b"\xef\xbb\xbf \n" + wrapped, "letta") == read(plain, "letta")


class TestMem0:
    def test_reads_each_result_with_its_time_and_other_fields(self):
        seat, coffee = memories(read(fixture("mem0.json"), "mem0"))

        assert seat.content == "Prefers the window seat on trains"
        assert seat.source_id == "0b9b3a52-8c1c-4d55-9a8e-6f1d0b6c2a01"
        west = timezone(timedelta(hours=-8))
        assert seat.created_at == datetime(2025, 11, 2, 7, 15, 30, 123_456, tzinfo=west)
        assert fields(seat.extra)["metadata"] == {"topic": "travel"}
        assert fields(seat.extra)["user_id"] == "ada"
        assert coffee.created_at == datetime(2025, 11, 2, 15, 15, 30, 123_000, tzinfo=UTC)

    def test_names_bad_rows_and_leaves_blank_ones_out(self):
        rows = read(fixture("mem0.json"), "mem0")

        assert bad(rows) == [
            ("row 4", objects.NO_TEXT),
            ("row 5", "created_at lies in the future"),
        ]
        assert rows[2] == LeftOut(BLANK)

    def test_finds_the_list_alone_or_under_any_known_name(self):
        rows = [{"id": 7, "content": "a memory"}]
        files = [rows, *({"count": 1, n: rows} for n in ("results", "memories", "items", "data"))]

        for file in [*files, {"results": [], "memories": rows}]:
            (memory,) = memories(read(json.dumps(file), "mem0"))

            assert (memory.content, memory.source_id) == ("a memory", "7"), file

    def test_names_the_missing_list_of_a_file_and_bounds_other_fields(self):
        for file, place, reason in (
            ({"answer": {"memory": "x"}}, "file", "holds no memories (a list, or one under"),
            ([{"memory": "a", "metadata": "x" * MAX_EXTRA_CHARACTERS}], "row 1", "has 50,0"),
        ):
            ((where, said),) = bad(read(json.dumps(file), "mem0"))
            assert (where, said.startswith(reason)) == (place, True), said

    def test_keeps_tags_that_are_not_a_list_as_another_field(self):
        (row,) = memories(read('[{"memory": "a", "tags": "audio"}]', "mem0"))

        assert row.tags == ()
        assert fields(row.extra) == {"tags": "audio"}


class TestMcp:
    def test_each_observation_is_a_memory_with_its_entity(self):
        rows = memories(read(fixture("mcp.jsonl"), "mcp"))

        assert [row.content for row in rows] == [
            "Speaks Welsh",
            "Keeps bees behind the library",
            "Opens at nine",
            "Was named after a bird",
            "no text",
            "Has no newline behind it",
        ]
        assert fields(rows[0].extra) == {"name": "Ada_Byrne", "entityType": "person"}
        assert fields(rows[3].extra)["name"] == "Wren"

    def test_names_bad_lines_and_leaves_relations_out(self):
        rows = read(fixture("mcp.jsonl"), "mcp")

        assert bad(rows) == [("line 5", "must be valid JSON")]
        left_out = [row.kind.split()[0] for row in rows if isinstance(row, LeftOut)]
        assert left_out == ["blank", "relations", "relations"]

    def test_says_why_a_line_is_not_an_entity_and_reads_the_next(self):
        good = '{"type": "entity", "name": "x", "observations": ["good"]}'
        for line, reason in (
            ("[]", "is not an object"),
            ('{"type": "tool"}', "is neither an entity nor a relation"),
            ('{"type": "entity", "observations": []}', "has no name, entityName, id"),
            ('{"type": "entity", "name": "x"}', "has no list of observations"),
            ('{"type": "entity", "name": "' + "x" * 2 * MAX_LINE_BYTES + '"}', TOO_LONG),
        ):
            rows = read(f"{good}\n{line}\n{good}", "mcp")

            assert bad(rows) == [("line 2", reason)]
            assert [row.place[:6] for row in memories(rows)] == ["line 1", "line 3"]


class TestOwn:
    def test_reads_a_row_as_it_was_written(self):
        row = own_row(constitutional=True, tags=["voice"], extra='{"a": 1}')

        (memory,) = memories(read(own_file(row), "refine"))

        assert (memory.content, memory.memory_type) == ("a memory", "core")
        assert (memory.constitutional, memory.tags) == (True, ("voice",))
        assert (memory.source, memory.source_id) == ("refine", "0123456789abcdef-1")
        assert memory.created_at == datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
        assert memory.extra == '{"a": 1}'

    def test_keeps_the_original_source_where_its_id_is_opaque(self):
        known = own_row(id=1, source="mem0", source_id="17")
        words = own_row(id=2, source="mem0", source_id="loves cats")
        unknown = own_row(id=3, source="a diary", source_id="17")

        rows = memories(read(own_file(known, words, unknown), "refine"))

        assert [(row.source, row.source_id) for row in rows] == [
            ("mem0", "17"),
            ("refine", "0123456789abcdef-2"),
            ("refine", "0123456789abcdef-3"),
        ]

    def test_refuses_another_manifest_at_once(self):
        version = "has another version of the format; this Refine reads version 1"
        for manifest, reason in (
            ({"format": "diary"}, "is not the manifest of an export (format refine-memories)"),
            ({"version": 2}, version),
            ({"version": True}, version),
            ({"contents": False}, "is of an export without contents: there is nothing to import"),
            ({"origin": "the diary of Ada"}, "has no origin"),
        ):
            rows = read(own_file(own_row(), **manifest), "refine")

            assert (memories(rows), bad(rows)) == ([], [("line 1", reason)])

    def test_names_a_bad_row_and_reads_the_next(self):
        for changed, reason in (
            ({"id": None}, "has no id or no created_at"),
            ({"content": 7}, "content has a wrong type"),
            ({"content": None}, "content has a wrong type"),
            ({"extra": {}}, "extra has a wrong type"),
            ({"constitutional": 1}, "constitutional has a wrong type"),
            ({"tags": "audio"}, "tags has a wrong type"),
            ({"created_at": None}, "has no id or no created_at"),
            ({"created_at": "2199-01-01"}, "created_at lies in the future"),
        ):
            rows = read(own_file(own_row(**changed), own_row(id=2)), "refine")

            assert (bad(rows), len(memories(rows))) == ([("line 2", reason)], 1)

    def test_refuses_a_line_that_holds_two_rows_or_too_much(self):
        manifest, row, *rest = own_file(own_row()).splitlines()

        for line, reason in (
            (row + row, "must be valid JSON"),
            (json.dumps({"content": "x" * MAX_LINE_BYTES}), TOO_LONG),
        ):
            rows = read("\n".join([manifest, line, *rest]), "refine")

            assert memories(rows) == []
            assert ("line 2", reason) in bad(rows)

    def test_detects_missing_added_and_moved_lines(self):
        lines = own_file(own_row(), own_row(id=2)).splitlines()
        changed = "does not match its closing line: lines are missing, added or moved"
        cut_off = "has no closing line: memories may be missing at its end"

        for order, reason in (
            ((0, 1, 3), changed),
            ((0, 1, 1, 2, 3), changed),
            ((0, 2, 1, 3), changed),
            ((0, 1, 2), cut_off),
        ):
            rows = read("\n".join(lines[number] for number in order), "refine")

            assert bad(rows) == [("file", reason)], order

    def test_detects_an_altered_row_and_one_after_the_closing_line(self):
        altered = read(own_file(own_row()).replace("a memory", "A memory"), "refine")
        rows = read(own_file(own_row()) + json.dumps(own_row(id=2)), "refine")

        assert bad(altered) == [("line 2", "was altered: its digest does not match")]
        assert len(memories(rows)) == 1
        assert bad(rows) == [("line 4", "comes after the closing line")]


class TestDocuments:
    """JSON files that are one document: mem0's and Letta's."""

    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            (b'{"memory": "\\u0000"}', "must not contain a NUL character"),
            (b'{"score": 1e999}', "must not contain a number that is too large"),
            (b"[" * 30 + b"]" * 30, "must not be nested more than 20 levels deep"),
            (b'{"m": [' + b'{"x": 1},' * 1_000 + b"{}]}", "must not have more than"),
            (b"7", "is not an object"),
        ],
        ids=lambda each: each[:40] if isinstance(each, str) else "",
    )
    def test_names_a_row_that_breaks_a_limit_and_reads_the_next(self, row, reason):
        rows = read(b"[" + row + b', {"memory": "good"}]', "mem0")

        assert [each.content for each in memories(rows)] == ["good"]
        ((place, said),) = bad(rows)
        assert (place, said.startswith(reason)) == ("row 1", True), said

    @pytest.mark.parametrize("format_", ["mem0", "letta"])
    def test_imports_nothing_of_a_damaged_document(self, format_):
        row = b'{"id": 1, "memory": "good", "text": "good"}'
        for file, reason in (
            *((damaged, "must be valid JSON") for damaged in (b"", b"[", b"[%s] []", b"[%s,]")),
            *((damaged, "must be valid JSON") for damaged in (b"[%s", b"[%s, tru]", b"\x00[%s]")),
            (b"[%s, 'x\xff']", "must be valid UTF-8"),
            (b'[%s, {"a": 1, "a": 2}]', "must not repeat a key"),
            (b"[%s, " + b"1" * 200 + b"]", "must not contain a number of more than 100 digits"),
            (b"[%s, NaN]", "must not contain NaN, which is not JSON"),
            (b"[" * 100_000, "must not be nested more than 20 levels deep"),
        ):
            assert read(file.replace(b"%s", row), format_) == [BadRow("file", reason)], file[:20]

    def test_refuses_a_document_that_is_too_large(self, monkeypatch):
        monkeypatch.setattr(sources, "MAX_DOCUMENT_BYTES", 20)

        for file, count in (('[{"memory": "good"}]', 1), ('[ {"memory": "good"}]', 0)):
            assert len(memories(read(file, "mem0"))) == count
        reason = "is longer than 20 bytes: split its rows into several files"
        assert read(file, "mem0") == [BadRow("file", reason)]

    def test_a_byte_order_mark_is_skipped(self):
        row = b'{"type": "entity", "name": "x", "observations": ["good"]}'

        assert len(memories(read(b'\xef\xbb\xbf[{"memory": "good"}]', "mem0"))) == 1
        assert len(memories(read(b"\xef\xbb\xbf" + row, "mcp"))) == 1


class TestEveryFormat:
    """What holds for whichever format, a new one too."""

    @pytest.mark.parametrize("format_", FORMATS)
    def test_gives_rows_or_reasons_that_quote_nothing_for_whatever_file(self, format_):
        for file in (
            *(b"", b"\x00", b"\xff\xfegeese", b'geese,"\n\xff', b'{"geese', b"[" * 100_000),
            *(b"geese\n" + b"geese" * 50_000, b"geese" * (MAX_LINE_BYTES // 4)),
        ):
            rows = read(file, format_)

            said = [text for place_and_reason in bad(rows) for text in place_and_reason]
            assert not [text for text in said if "geese" in text or len(text) > 120], file[:20]

    def test_is_in_the_guide_and_among_the_damaged_files(self):
        guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()

        assert [name for name in FORMATS if f"`{name}`" not in guide] == []
        assert {format_ for format_, _ in FILES} == FORMATS.keys()
