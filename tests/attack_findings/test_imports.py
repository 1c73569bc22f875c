"""Imports that lose a subject, or take what is another's."""

import io
import json
from contextlib import suppress
from typing import Any

import pytest
from flask import Flask

from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import Agent
from refine.transfer import letta
from refine.transfer.importing import import_memories
from tests import factories
from tests.transfer.files import reading
from tests.transfer.stored import contents


@pytest.fixture
def owner(app: Flask) -> Agent:
    made = factories.agent()
    db.session.commit()
    return made


def entity(name: str, type_: str, *observations: str) -> str:
    return json.dumps(
        {"type": "entity", "name": name, "entityType": type_, "observations": observations}
    )


def test_equal_sentences_about_two_subjects_of_one_name_are_different_memories(
    owner: Agent,
) -> None:
    file = "\n".join(
        [entity("Jordan", "person", "Is dear to me"), entity("Jordan", "country", "Is dear to me")]
    )

    import_memories(owner, reading(file, "mcp"), source="mcp")

    assert contents(owner) == [
        "Jordan (person): Is dear to me",
        "Jordan (country): Is dear to me",
    ]


def test_an_agent_whose_blocks_the_file_does_not_name_does_not_get_those_of_another(
    owner: Agent,
) -> None:
    file: dict[str, Any] = {
        "agents": [
            {"id": "agent-0", "name": "Ada", "block_ids": ["block-0"]},
            {"id": "agent-1", "name": "Bo"},
        ],
        "blocks": [{"id": "block-0", "label": "human", "value": "Ada's own secret"}],
    }
    text = json.dumps(file).encode()

    with suppress(InvalidValue):
        import_memories(owner, lambda: letta.read(io.BytesIO(text), agent="Bo"), source="letta")

    assert contents(owner) == []
