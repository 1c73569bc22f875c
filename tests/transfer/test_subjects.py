"""Imported memories say what they are about, and are told apart by it."""

import json
from typing import Any

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import Agent
from refine.transfer.rows import MAX_PREFIX_CHARACTERS
from tests import factories
from tests.transfer.files import bad, bring, contents, fixture, memories, read


@pytest.fixture
def owner(app: Flask) -> Agent:
    made = factories.agent()
    db.session.commit()
    return made


def entity(*observations: str, name: str = "Ada", **fields: Any) -> str:
    return json.dumps({"type": "entity", "name": name, "observations": observations, **fields})


class TestMcp:
    def test_equal_sentences_about_different_people_are_different_memories(self, owner):
        report = bring(owner, fixture("mcp-people.jsonl"), "mcp")

        assert contents(owner) == [
            "Ada_Byrne (person): Is allergic to penicillin",
            "Ada_Byrne (person): Lives in Cardiff",
            "Ada_Byrne (person): Plays the cello on Sundays",
            "Bo Lindqvist (person): Is allergic to penicillin",
            "Bo Lindqvist (person): Lives in Cardiff",
            "Ceri: Is allergic to penicillin",
            "Ceri: Speaks Welsh",
            "Cardiff (city): Has a library by the river",
        ]
        assert (report.already_present, report.left_out) == (
            0,
            {"relations between entities; only observations are imported": 1},
        )

    def test_names_and_types_are_written_on_one_line(self):
        line = entity("x", name=" Ada\n\tByrne ", entity_type=" a\nfriend ")

        (row,) = memories(read(line, "mcp"))

        assert row.prefix == "Ada Byrne (a friend): "

    def test_a_name_that_is_too_long_makes_a_bad_row(self):
        rows = read(entity("x", name="A" * MAX_PREFIX_CHARACTERS), "mcp")

        reason = "has 1,001 characters in its name, type or label; at most 1,000 are allowed"
        assert bad(rows) == [("row 1, observation 1", reason)]


class TestMem0:
    def test_memories_of_several_users_begin_with_their_names(self, owner):
        report = bring(owner, fixture("mem0-people.json"), "mem0")

        assert contents(owner) == ["ada: Likes tea", "bo: Likes tea", "The meeting is on Mondays"]
        assert report.already_present == 1

    def test_the_speakers_of_a_group_chat_come_before_its_user(self, owner):
        rows = [
            {"memory": "Likes tea", "user_id": "team", "actor_id": " ada "},
            {"memory": "Likes tea", "user_id": "team", "actor_id": "bo"},
            {"memory": "Meets on Mondays", "user_id": "team"},
        ]

        bring(owner, json.dumps({"results": rows}), "mem0")

        assert contents(owner) == ["ada: Likes tea", "bo: Likes tea", "team: Meets on Mondays"]

    def test_memories_of_a_single_user_are_imported_as_they_are(self, owner):
        rows = [
            {"memory": "Likes tea", "user_id": "ada", "metadata": {"user_id": "bo"}},
            {"memory": "Likes rye bread", "user_id": " ada", "actor_id": 7},
        ]

        bring(owner, json.dumps(rows), "mem0")

        assert contents(owner) == ["Likes tea", "Likes rye bread"]
