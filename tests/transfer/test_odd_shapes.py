"""What is missing, damaged or unusual in a file of a known shape."""

import json
from typing import Any

import pytest

from refine.transfer.importing import format_of
from refine.transfer.rows import MAX_EXTRA_CHARACTERS, LeftOut, Wanted
from tests.transfer.files import bad, memories, read, source
from tests.transfer.shapes import FACT, lines


def texts(content: str, format_: str, wanted: Wanted | None = None) -> list[str]:
    rows = read(content, format_, *([wanted] if wanted else []))
    return [row.prefix + row.content for row in memories(rows)]


def test_a_note_without_words_is_left_out():
    note: dict[str, Any] = {"recipient": "bio", "content": {"parts": [{"image": 1}, " "]}}
    conversation = {"mapping": {"a": {"message": note}}}

    assert read(json.dumps([conversation]), "chatgpt") == [LeftOut("blank")]


def test_a_project_without_a_memory_is_passed_over():
    export = [{"conversations_memory": "Sails.", "project_memories": {"a": None, "b": "Knits."}}]

    assert texts(json.dumps(export), "claude") == ["Sails.", "Knits."]


@pytest.mark.parametrize(("wanted", "count"), [("Wren", 2), ("Gull", 0)])
def test_of_several_agents_the_one_that_is_wanted_must_be_the_only_one(wanted, count):
    agents = [{"id": number, "name": "Wren", "block_ids": []} for number in range(2)]
    file = {"agents": agents, "blocks": [{"id": "1", "label": "human", "value": "Keeps bees"}]}

    ((_, reason),) = bad(read(json.dumps(file), "letta", Wanted(agent=wanted)))

    assert reason == f"holds {count} agents of the id or name in --agent"


def test_a_file_without_entries_or_a_character_is_no_lorebook():
    ((_, reason),) = bad(read('{"name": "Anna"}', "lorebook"))

    assert reason == "holds no entries and no character"


def test_a_character_who_says_nothing_is_read_whole():
    card = {"spec": "chara_card_v2", "data": {"name": "Anna", "description": "Sails."}}

    assert read(json.dumps(card), "lorebook") == memories(read(json.dumps(card), "lorebook"))
    assert texts(json.dumps(card), "lorebook") == ["Anna, description: Sails."]


def test_an_observation_without_words_is_left_out_or_a_bad_row():
    rows = read(lines({"name": "Anna", "observations": ["", 7, "Sails"]}), "mcp")

    assert rows[0] == LeftOut("blank")
    assert bad(rows) == [("row 1, observation 2", "is not text")]
    assert [row.content for row in memories(rows)] == ["Sails"]


def test_a_bad_row_of_a_table_is_named_by_its_line():
    rows = read("text,date\nSails,some day\nKnits,\n", "csv")

    assert [place for place, _ in bad(rows)] == ["line 2"]
    assert [row.content for row in memories(rows)] == ["Knits"]


def test_a_file_is_recognized_by_its_first_line_that_is_not_damaged():
    damaged = '{"memory": }\n'

    assert format_of(source(damaged + lines(FACT), "file.jsonl")) == "mem0"
    assert format_of(source(damaged * 101 + lines(FACT), "file.jsonl")) != "mem0"


FRONT = "---\n# of a harbour\ntags:\n  - voice\n  - harbour\n"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"{FRONT}---\nSails", ["Sails"]),
        (FRONT, []),
        ("- Sails\n\n  in all winds\n- Knits", ["Sails\n\nin all winds", "Knits"]),
        ("Sails\n\n***\n\nKnits", ["Sails", "Knits"]),
        ("2999-01-01 Sails", ["2999-01-01 Sails"]),
    ],
)
def test_of_a_note_each_paragraph_and_item_is_kept(text, kept):
    assert texts(text, "markdown") == kept


def test_the_tags_that_a_note_lists_are_kept_and_others_beside_it():
    (row,) = memories(read(f"{FRONT}---\nSails", "markdown"))

    assert row.tags == ("voice",)
    assert json.loads(row.extra or "")["tags"] == ["harbour"]


def test_fields_that_are_too_long_make_a_bad_row_of_each_text():
    note = f"---\nabout: {'x' * (MAX_EXTRA_CHARACTERS + 1)}\n---\nSails\n\nKnits"

    assert [place for place, _ in bad(read(note, "markdown"))] == ["line 4", "line 6"]
