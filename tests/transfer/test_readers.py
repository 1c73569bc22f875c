"""What each format's reader makes of a file."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from refine.errors import InvalidValue
from refine.transfer import json_document
from refine.transfer.formats import READERS
from refine.transfer.json_document import Document
from refine.transfer.json_text import MAX_ROW_BYTES
from refine.transfer.rows import MAX_EXTRA_CHARACTERS, SOURCES, LeftOut, extra_of
from tests.transfer.files import (
    bad,
    fixture,
    memories,
    own_file,
    own_row,
    read,
    stream,
)

HUMAN = "Ada keeps bees, and calls the oldest hive the library."
PERSONA = "I am Wren, and I answer plainly."


def test_every_source_can_be_read() -> None:
    assert tuple(READERS) == SOURCES


class TestLetta:
    def test_blocks_become_core_memories_and_read_only_ones_constitutional(self) -> None:
        rows = read(fixture("agent-v2.af"), "letta")

        human, persona = memories(rows)
        assert (human.content, human.memory_type, human.constitutional) == (HUMAN, "core", False)
        assert (persona.content, persona.memory_type) == (PERSONA, "core")
        assert persona.constitutional
        assert human.tags == ("relational",)
        assert rows[2] == LeftOut("blank")

    def test_what_refine_has_no_column_for_is_kept(self) -> None:
        human, persona = memories(read(fixture("agent-v2.af"), "letta"))

        kept = json.loads(human.extra or "")
        assert kept == {
            "id": "block-0",
            "label": "human",
            "limit": 5000,
            "description": "What is known of the person",
            "metadata": {"reviewed": True},
            "tags": ["people"],
            "is_template": False,
            "preserve_on_migration": False,
        }
        assert json.loads(persona.extra or "")["label"] == "persona"

    @pytest.mark.parametrize("name", ["agent-v2.af", "agent-v1.af"])
    def test_no_secret_of_an_agent_file_is_taken(self, name: str) -> None:
        assert b"sk-" in fixture(name)
        assert "sk-" not in repr(read(fixture(name), "letta"))

    @pytest.mark.parametrize(
        "name",
        [
            *("secret_key", "aws_secret_access_key", "clientSecret", "session_token", "token"),
            *("auth", "cookie", "pwd", "apiKey", "x-api-key", "Authorization", "db_password"),
        ],
    )
    def test_no_field_that_sounds_like_a_secret_is_kept(self, name: str) -> None:
        kept = extra_of({"metadata": {name: "opens something", "prompt_tokens": 7}})

        assert json.loads(kept or "") == {"metadata": {"prompt_tokens": 7}}

    def test_version_1_has_its_blocks_in_core_memory_with_dates(self) -> None:
        human, persona = memories(read(fixture("agent-v1.af"), "letta"))

        assert (human.content, persona.content) == (HUMAN, PERSONA)
        assert human.created_at == datetime(2025, 3, 2, 8, 30, 0, 250_000, tzinfo=UTC)
        assert persona.created_at == datetime(2025, 3, 2, 6, 31, tzinfo=UTC)
        assert not human.constitutional

    def test_passages_are_read_without_vectors_and_without_deleted_ones(self) -> None:
        rows = read(fixture("passages.json"), "letta")

        (passage,) = memories(rows)
        assert passage.content == "The first frost came on the ninth of October."
        assert passage.memory_type is None
        assert passage.source_id == "passage-6f0a3c1e-58bd-4ad9-9b8e-0b6a6f2f7d11"
        assert "embedding" not in (passage.extra or "")
        assert json.loads(passage.extra or "")["metadata"] == {"page": 12}
        assert rows[1] == LeftOut("deleted passage")

    def test_a_group_that_shares_its_blocks_is_one_agents_file(self) -> None:
        blocks = [{"id": "b", "label": "x", "value": "shared"}]
        agents = [{"block_ids": []}, {"block_ids": ["b"]}, {"block_ids": ["b"]}]

        (row,) = memories(read(json.dumps({"agents": agents, "blocks": blocks}), "letta"))

        assert row.content == "shared"

    @pytest.mark.parametrize("order", [("agents", "blocks"), ("blocks", "agents")])
    def test_a_file_of_several_agents_is_refused_whatever_comes_first(
        self, order: tuple[str, str]
    ) -> None:
        parts = {
            "agents": [{"block_ids": ["a"]}, {"block_ids": ["b"]}],
            "blocks": [{"id": "a", "value": "one's"}, {"id": "b", "value": "another's"}],
        }

        rows = read(json.dumps({name: parts[name] for name in order}), "letta")

        reason = "holds several agents with blocks of their own; export one alone"
        assert (memories(rows), bad(rows)) == ([], [("file", reason)])

    def test_agents_whose_blocks_are_no_list_are_no_reason_to_refuse(self) -> None:
        file = {"agents": [{"block_ids": "b"}], "blocks": [{"value": "a block"}]}

        assert len(memories(read(json.dumps(file), "letta"))) == 1

    @pytest.mark.parametrize(
        ("block", "reason"),
        [
            ("a text", "is not an object"),
            ({"label": "x"}, "has no text in value"),
            ({"value": "x", "read_only": "yes"}, "read_only is neither true nor false"),
            ({"value": "x", "created_at": "tomorrow"}, "created_at is not a time"),
        ],
    )
    def test_a_bad_block_is_named_and_stops_no_other(self, block: object, reason: str) -> None:
        rows = read(json.dumps({"blocks": [block, {"value": "good"}]}), "letta")

        assert [row.content for row in memories(rows)] == ["good"]
        ((place, said),) = bad(rows)
        assert place == "block 1"
        assert said.startswith(reason)

    def test_a_passage_without_text_is_no_memory(self) -> None:
        rows = read('[{"text": 7}, {"text": " "}]', "letta")

        assert bad(rows) == [("passage 1", "has no text in text")]
        assert rows[1] == LeftOut("blank")

    def test_a_block_that_is_too_long_is_passed_over(self) -> None:
        blocks = [{"value": "x" * MAX_ROW_BYTES}, {"value": "good"}]

        rows = read(json.dumps({"blocks": blocks}), "letta")

        assert bad(rows) == [("block 1", "has more than 2,000,000 bytes")]
        assert len(memories(rows)) == 1

    def test_a_file_without_blocks_says_what_was_looked_for(self) -> None:
        assert bad(read('{"tools": []}', "letta")) == [
            ("file", "has no list of blocks, core_memory, or archival passages")
        ]


class TestMem0:
    def test_each_result_is_a_memory_with_its_time_and_its_other_fields(self) -> None:
        seat, coffee = memories(read(fixture("mem0.json"), "mem0"))

        assert seat.content == "Prefers the window seat on trains"
        assert seat.source_id == "0b9b3a52-8c1c-4d55-9a8e-6f1d0b6c2a01"
        west = timezone(timedelta(hours=-8))
        assert seat.created_at == datetime(2025, 11, 2, 7, 15, 30, 123_456, tzinfo=west)
        assert json.loads(seat.extra or "")["metadata"] == {"topic": "travel"}
        assert json.loads(seat.extra or "")["user_id"] == "ada"
        assert coffee.created_at == datetime(2025, 11, 2, 15, 15, 30, 123_000, tzinfo=UTC)

    def test_an_empty_alias_hides_no_filled_one(self) -> None:
        _, coffee = memories(read(fixture("mem0.json"), "mem0"))

        assert coffee.content == "Drinks no coffee after noon"
        assert json.loads(coffee.extra or "")["categories"] == ["health"]

    def test_bad_rows_are_named_and_blank_ones_left_out(self) -> None:
        rows = read(fixture("mem0.json"), "mem0")

        assert bad(rows) == [
            ("row 4", "has no text in memory, text, data, content"),
            ("row 5", "created_at lies in the future"),
        ]
        assert rows[2] == LeftOut("blank")

    @pytest.mark.parametrize("name", ["results", "memories", "items", "data", None])
    def test_the_list_may_stand_alone_or_under_another_name(self, name: str | None) -> None:
        rows = [{"id": 7, "content": "a memory"}]
        file = json.dumps(rows if name is None else {"count": 1, name: rows})

        (memory,) = memories(read(file, "mem0"))

        assert (memory.content, memory.source_id) == ("a memory", "7")

    def test_an_empty_list_hides_no_filled_one(self) -> None:
        rows = read('{"results": [], "memories": [{"memory": "a memory"}]}', "mem0")

        assert [row.content for row in memories(rows)] == ["a memory"]

    def test_a_file_without_a_list_says_what_was_looked_for(self) -> None:
        ((place, reason),) = bad(read('{"answer": {"memory": "x"}}', "mem0"))

        assert place == "file"
        assert reason.startswith("has no list of memories (a list, or one under results,")

    def test_a_list_that_is_empty_is_no_fault(self) -> None:
        assert read('{"results": []}', "mem0") == []

    def test_an_id_that_is_no_id_is_none(self) -> None:
        rows = read('[{"memory": "a", "id": true}, {"memory": "b", "id": " "}]', "mem0")

        assert [row.source_id for row in memories(rows)] == [None, None]

    def test_other_fields_are_kept_only_within_a_limit(self) -> None:
        row = {"memory": "a", "metadata": "x" * MAX_EXTRA_CHARACTERS}

        ((place, reason),) = bad(read(json.dumps([row]), "mem0"))

        assert place == "row 1"
        assert reason.startswith("its other fields have 50,0")

    def test_tags_that_are_no_list_are_kept_as_they_are(self) -> None:
        (row,) = memories(read('[{"memory": "a", "tags": "audio"}]', "mem0"))

        assert row.tags == ()
        assert json.loads(row.extra or "") == {"tags": "audio"}


class TestMcp:
    def test_each_observation_is_a_memory_with_its_entity(self) -> None:
        rows = memories(read(fixture("mcp.jsonl"), "mcp"))

        assert [row.content for row in rows] == [
            "Speaks Welsh",
            "Keeps bees behind the library",
            "Opens at nine",
            "Was named after a bird",
            "Has no newline behind it",
        ]
        assert json.loads(rows[0].extra or "") == {"name": "Ada_Byrne", "entityType": "person"}
        assert json.loads(rows[3].extra or "")["name"] == "Wren"

    def test_what_is_wrong_is_named_and_relations_are_left_out(self) -> None:
        rows = read(fixture("mcp.jsonl"), "mcp")

        assert bad(rows) == [
            ("line 4, observation 2", "is not a text"),
            ("line 5", "is not valid JSON"),
        ]
        left_out = [row.kind for row in rows if isinstance(row, LeftOut)]
        assert left_out == ["blank", "relation", "relation"]

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("[]", "is not an object"),
            ('{"type": "tool"}', "is neither an entity nor a relation"),
            ('{"type": "entity", "observations": []}', "has no name, entityName, id"),
            ('{"type": "entity", "name": "x"}', "has no list of observations"),
        ],
    )
    def test_a_line_that_is_no_entity_says_so(self, line: str, reason: str) -> None:
        assert bad(read(line, "mcp")) == [("line 1", reason)]

    def test_a_line_that_is_too_long_is_passed_over(self) -> None:
        long = '{"type": "entity", "name": "' + "x" * 2 * MAX_ROW_BYTES + '"}\n'
        good = '{"type": "entity", "name": "x", "observations": ["good"]}'

        rows = read(long + good, "mcp")

        assert bad(rows) == [("line 1", "has more than 2,000,000 bytes")]
        assert memories(rows)[0].place == "line 2, observation 1"


class TestOwn:
    def test_a_row_is_read_as_it_was_written(self) -> None:
        row = own_row(constitutional=True, tags=["voice"], extra='{"a": 1}')

        (memory,) = memories(read(own_file(row), "refine"))

        assert (memory.content, memory.memory_type) == ("a memory", "core")
        assert (memory.constitutional, memory.tags) == (True, ("voice",))
        assert (memory.source, memory.source_id) == (None, "0123456789abcdef-1")
        assert memory.created_at == datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
        assert memory.extra == '{"a": 1}'

    def test_where_a_row_came_from_before_is_kept_if_it_says_nothing(self) -> None:
        known = own_row(id=1, source="mem0", source_id="17")
        words = own_row(id=2, source="mem0", source_id="loves cats")
        unknown = own_row(id=3, source="a diary", source_id="17")

        rows = memories(read(own_file(known, words, unknown), "refine"))

        assert [(row.source, row.source_id) for row in rows] == [
            ("mem0", "17"),
            (None, "0123456789abcdef-2"),
            (None, "0123456789abcdef-3"),
        ]

    @pytest.mark.parametrize(
        ("manifest", "reason"),
        [
            ({"format": "diary"}, "is not the manifest of an export (format refine-memories)"),
            ({"version": 2}, "is of another version of the format; this Refine reads 1"),
            ({"version": True}, "is of another version of the format; this Refine reads 1"),
            (
                {"contents": False},
                "says that the export is without contents: there is nothing to import",
            ),
            ({"origin": "the diary of Ada"}, "has no origin"),
        ],
    )
    def test_another_manifest_is_refused_at_once(
        self, manifest: dict[str, object], reason: str
    ) -> None:
        rows = read(own_file(own_row(), **manifest), "refine")

        assert (memories(rows), bad(rows)) == ([], [("line 1", reason)])

    @pytest.mark.parametrize("file", ["", "\n\n", "null\n"])
    def test_a_file_without_manifest_is_refused(self, file: str) -> None:
        assert bad(read(file, "refine")) == [("line 1", "is not an object")]

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"id": None}, "has no id"),
            ({"content": 7}, "content is not a text"),
            ({"constitutional": 1}, "constitutional is neither true nor false"),
            ({"tags": "audio"}, "tags is not a list of texts"),
            ({"tags": [1]}, "tags is not a list of texts"),
            ({"created_at": None}, "has no created_at"),
            ({"created_at": "2199-01-01"}, "created_at lies in the future"),
        ],
    )
    def test_a_bad_row_is_named_and_stops_no_other(
        self, fields: dict[str, object], reason: str
    ) -> None:
        rows = read(own_file(own_row(**fields), own_row(id=2)), "refine")

        assert bad(rows) == [("line 2", reason)]
        assert len(memories(rows)) == 1

    def test_two_rows_in_one_line_are_none(self) -> None:
        manifest, row, *rest = own_file(own_row()).splitlines()

        rows = read("\n".join([manifest, row + row, *rest]), "refine")

        assert memories(rows) == []
        assert ("line 2", "is not valid JSON") in bad(rows)

    def test_an_altered_row_is_found_by_its_digest(self) -> None:
        rows = read(own_file(own_row()).replace("a memory", "A memory"), "refine")

        assert bad(rows) == [("line 2", "was altered: its digest does not fit")]

    def test_a_missing_end_is_reported(self) -> None:
        lines = own_file(own_row(), own_row(id=2)).splitlines()

        rows = read("\n".join(lines[:-1]), "refine")

        assert len(memories(rows)) == 2
        reason = "has no closing line: memories may be missing at its end"
        assert bad(rows) == [("file", reason)]

    @pytest.mark.parametrize("order", [(0, 1, 3), (0, 1, 1, 2, 3), (0, 2, 1, 3)])
    def test_missing_added_and_moved_lines_are_reported(self, order: tuple[int, ...]) -> None:
        lines = own_file(own_row(), own_row(id=2)).splitlines()

        rows = read("\n".join(lines[number] for number in order), "refine")

        reason = "lines are missing, added or moved: it is not as its closing line says"
        assert bad(rows) == [("file", reason)]

    def test_what_stands_behind_the_end_is_not_read(self) -> None:
        rows = read(own_file(own_row()) + json.dumps(own_row(id=2)), "refine")

        assert len(memories(rows)) == 1
        assert bad(rows) == [("line 4", "stands behind the closing line")]

    def test_a_line_that_is_too_long_is_passed_over(self) -> None:
        manifest, end = own_file().splitlines()
        long = json.dumps({"content": "x" * MAX_ROW_BYTES})

        rows = read("\n".join([manifest, long, end]), "refine")

        assert bad(rows) == [("line 2", "has more than 2,000,000 bytes")]


class TestStrangeJson:
    """In one row of a list: it is bad, and the next one is read."""

    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            (b'{"memory": "a\xff"}', "is not valid UTF-8"),
            (b'{"memory": "\\u0000"}', "a text in it must not contain a NUL character"),
            (b'{"memory": "\\ud800"}', "a text in it must be valid Unicode"),
            (b'{"memory": "a", "\\udfff": 1}', "a text in it must be valid Unicode"),
            (b'{"memory": "a", "score": NaN}', "has NaN or Infinity, which are not JSON"),
            (b'{"memory": "a", "score": -Infinity}', "has NaN or Infinity"),
            (b'{"memory": "a", "score": 1e999}', "has a number that is too large"),
            (b'{"memory": "a", "id": ' + b"1" * 5_000 + b"}", "has a number of more than 100"),
            (b'{"memory": "a", "memory": "b"}', "has the same field twice"),
            (b'{"memory": "a" "id": 1}', "is not valid JSON"),
            (b'{"memory": "a\nb"}', "is not valid JSON"),
            (b"nonsense", "is not valid JSON"),
            (b"[" * 30 + b"]" * 30, "is nested more than 20 levels deep"),
            (b"[" * 100_000 + b"]" * 100_000, "is nested more than 20 levels deep"),
            (b'{"memory": "a", "m": [' + b'{"x": 1},' * 1_000 + b"{}]}", "has more than 1,000"),
            (b'"' + b"x" * MAX_ROW_BYTES + b'"', "has more than 2,000,000 bytes"),
        ],
        ids=lambda value: value[:30] if isinstance(value, bytes) else None,
    )
    def test_is_a_bad_row(self, row: bytes, reason: str) -> None:
        rows = read(b"[" + row + b', {"memory": "good"}]', "mem0")

        assert [one.content for one in memories(rows)] == ["good"]
        ((place, said),) = bad(rows)
        assert place == "row 1"
        assert said.startswith(reason)

    def test_rows_without_a_comma_between_them_end_the_file(self) -> None:
        rows = read('[{"memory": "a"} {"memory": "b"}]', "mem0")

        assert [row.content for row in memories(rows)] == ["a"]
        assert bad(rows) == [("file", "is not valid JSON")]

    @pytest.mark.parametrize("format_", ["mem0", "letta"])
    @pytest.mark.parametrize(
        ("file", "reason"),
        [
            (b"", "ends in the middle"),
            (b"   ", "ends in the middle"),
            (b"[", "ends in the middle"),
            (b'["', "ends in the middle"),
            (b'["\\', "ends in the middle"),
            (b'["a', "ends in the middle"),
            (b'{"results"', "ends in the middle"),
            (b'{"results": [1, ', "ends in the middle"),
            (b'{"other": [1, {"a": ', "ends in the middle"),
            (b"[1,]", "is not valid JSON"),
            (b"[1 2]", "is not valid JSON"),
            (b"{1: 2}", "is not valid JSON"),
            (b'{"a" 2}', "is not valid JSON"),
            (b'{"a": ]', "is not valid JSON"),
            (b'{"a": 1} {}', "is not valid JSON: it goes on after its end"),
            (b"\xff\xfe[\x00]\x00", "is not valid JSON: it goes on after its end"),
        ],
    )
    def test_around_the_rows_ends_the_file(self, file: bytes, reason: str, format_: str) -> None:
        assert ("file", reason) in bad(read(file, format_))

    def test_a_byte_order_mark_is_no_fault(self) -> None:
        row = b'{"type": "entity", "name": "x", "observations": ["good"]}'

        assert len(memories(read(b'\xef\xbb\xbf[{"memory": "good"}]', "mem0"))) == 1
        assert len(memories(read(b"\xef\xbb\xbf" + row, "mcp"))) == 1

    @pytest.mark.parametrize("chunk", [1, 2, 3, 7])
    def test_is_read_the_same_whatever_the_size_of_the_pieces(
        self, chunk: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tricky = [{"memory": 'a "quoted" \\ text', "x\\": ["]", "}", "\\"]}, {"memory": "ü\u2028"}]
        files = [fixture("agent-v2.af"), fixture("agent-v1.af"), fixture("passages.json")]
        whole = [read(file, "letta") for file in files] + [read(json.dumps(tricky), "mem0")]

        monkeypatch.setattr(json_document, "_CHUNK_BYTES", chunk)

        pieces = [read(file, "letta") for file in files] + [read(json.dumps(tricky), "mem0")]
        assert pieces == whole
        assert all(memories(rows) for rows in pieces)

    def test_a_name_of_any_length_is_no_fault(self) -> None:
        file = f'{{"{"x" * 5_000}": 1, "results": [{{"memory": "good"}}]}}'

        assert len(memories(read(file, "mem0"))) == 1

    def test_an_empty_object_has_nothing_at_any_place(self) -> None:
        document = Document(stream("{}"), [("results", None)])

        assert (list(document.values()), document.lists) == ([], set())

    def test_two_documents_are_refused(self) -> None:
        with pytest.raises(InvalidValue, match="goes on after its end"):
            list(Document(stream("[] []"), [(None,)]).values())
