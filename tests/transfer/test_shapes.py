"""What other programs write is recognized by its shape, and read as a person would expect."""

import json
import zipfile
from collections import Counter

import pytest

from refine.errors import InvalidValue
from refine.transfer.importing import format_of, rows_at
from refine.transfer.rows import LeftOut, Wanted
from tests.transfer.files import bad, memories, read, source
from tests.transfer.shapes import SHAPES, Shape, lines, picture


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_file_is_recognized_and_read_row_for_row(shape: Shape):
    rows = read(shape.content, name=shape.name)

    assert format_of(source(shape.content, shape.name)) == shape.format_
    assert bad(rows) == []
    kept = [
        (f"{row.created_at:%Y-%m-%d}" if row.created_at else None, row.prefix + row.content)
        for row in memories(rows)
    ]
    assert kept == list(shape.kept)
    assert sum(isinstance(row, LeftOut) for row in rows) == shape.left_out


@pytest.mark.parametrize("is_packed", [False, True])
def test_each_file_of_a_folder_or_a_zip_is_read_as_what_it_is(tmp_path, is_packed):
    folder = tmp_path / "vault"
    for path, content in (
        ("MEMORY.md", "- sails"),
        ("memory/2025-04-01.md", "- mended the mast"),
        ("memory/people.md", "Anna knits."),
        ("graph.jsonl", SHAPES["mcp lines"].content),
        (".obsidian/app.json", "{}"),
        ("picture.png", "\x89PNG\x00"),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(str(content))
    packed = tmp_path / "vault.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in folder.rglob("*"):
            archive.write(path, path.relative_to(folder))

    rows = list(rows_at(packed if is_packed else folder))

    assert [(row.place, row.source, row.prefix + row.content) for row in memories(rows)] == [
        ("MEMORY.md, line 1", "markdown", "sails"),
        ("graph.jsonl, line 1, observation 1", "mcp", "Anna (Person): Sails a sloop"),
        ("graph.jsonl, line 1, observation 2", "mcp", "Anna (Person): Fears geese"),
        ("graph.jsonl, line 2, observation 1", "mcp", "The sloop: Leaks a little"),
        ("memory/2025-04-01.md, line 1", "markdown", "mended the mast"),
        ("memory/people.md, line 1", "markdown", "people: Anna knits."),
    ]
    left_out = sorted(row.kind[:5] for row in rows if isinstance(row, LeftOut))
    assert left_out == ["files", "hidde", "relat"]


def test_fields_are_found_by_the_names_that_are_given():
    rows = lines(
        {"when": 1743494400, "who": "Anna", "said": {"body": "Sails"}},
        {"when": "", "who": "Bo", "said": {}, "text": "not this"},
    )
    fields = {"content": "said.body", "date": "when", "subject": "who"}

    read_rows = read(rows, "jsonl", Wanted(fields=fields))

    (row,) = memories(read_rows)
    assert (row.prefix + row.content, f"{row.created_at:%Y-%m-%d}") == ("Anna: Sails", "2025-04-01")
    assert [place for place, _ in bad(read_rows)] == ["line 2"]


@pytest.mark.parametrize(("name", "count"), [("mem0 Node", 1), ("LangGraph", 1)])
def test_only_the_memories_of_one_person_are_read_where_that_is_wanted(name, count):
    rows = read(SHAPES[name].content, wanted=Wanted(user="anna"))

    assert [row.content for row in memories(rows)] == ["Sails"] * count


def test_what_is_archived_is_read_only_where_that_is_wanted():
    for content in ('[{"memory": "a", "state": "archived"}]', SHAPES["SillyTavern"].content):
        few, all_ = read(content), read(content, wanted=Wanted(archived=True))

        assert len(memories(all_)) == len(memories(few)) + 1


def test_a_file_of_no_shape_is_refused_and_says_what_to_do():
    for content in (b"\x00\x01", "7", "[]", '"text"'):
        rows = read(content, name="file.bin")

        assert [reason[-8:] for _, reason in bad(rows)] == ["--format"], content


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("memories.json", '[{"memory": "Sai', "must be valid JSON"),
        ("agent.af", '{"agents": [', "must be valid JSON"),
        ("memories.json", '[{"memory": "Sails"}]'.encode("utf-16")[:-1], "must be valid UTF-16"),
        ("anna.png", picture(chara=b"x"), "holds a character card that is damaged"),
        ("notes.md", b"- Sails\n- Caf\xe9", "must be valid UTF-8, and is not in line 2"),
    ],
)
def test_a_damaged_file_is_told_alone_and_among_others(tmp_path, name, content, reason):
    folder = tmp_path / "vault"
    folder.mkdir()
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "MEMORY.md").write_text("- sails")

    assert bad(rows_at(folder / name)) == [("file", reason)]
    assert bad(rows_at(folder)) == [(f"{name}, file", reason)]


def test_a_zip_with_a_password_is_told(tmp_path):
    packed = tmp_path / "vault.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("notes.md", "- sails")
        archive.infolist()[0].flag_bits |= 1

    with pytest.raises(InvalidValue, match="the zip is damaged, or needs a password"):
        list(rows_at(packed))


def test_what_is_left_out_of_a_folder_is_counted(tmp_path):
    for name, content in (
        (".claude/MEMORY.md", "- hidden"),
        ("card.png", picture(Software=b"x")),
        ("empty.md", ""),
        ("front.md", "---\nborn: 1990\n---\n"),
        ("package.json", '{"name": "boat"}'),
        ("notes.md", "- sails"),
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "link.md").symlink_to(tmp_path / "notes.md")

    rows = list(rows_at(tmp_path))

    assert [row.content for row in memories(rows)] == ["sails"]
    left_out = Counter(row.kind for row in rows if isinstance(row, LeftOut))
    assert left_out == {"files that hold no memories": 5, "hidden files": 1}
    assert bad(rows) == []


def test_a_file_is_called_and_dated_by_its_name(tmp_path):
    for name in ("2025_04_01.md", "2025-04-01-harbour.md", "people.md", "USER.md"):
        (tmp_path / name).write_text("# USER.md - About Anna\n\nSails" if "U" in name else "Sails")

    assert [
        (row.created_at and f"{row.created_at:%Y-%m-%d}", row.prefix)
        for row in memories(rows_at(tmp_path))
    ] == [
        ("2025-04-01", "harbour: "),
        ("2025-04-01", ""),
        (None, "About Anna: "),
        (None, "people: "),
    ]


def test_refines_own_rows_keep_their_type_and_are_known_by_their_id():
    (row,) = memories(read(json.dumps({"rows": [{"content": "a", "memory_type": "journal"}]})))
    other = memories(read('[{"content": "a", "memory_type": "episodic", "source_id": "7"}]'))

    assert (row.memory_type, other[0].memory_type, other[0].source_id) == ("journal", None, "7")
