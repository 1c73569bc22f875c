"""A migration that changes a column's type meanwhile: what was prepared before no longer fits."""

from collections.abc import Iterator

import pytest
from flask import Flask

from refine.extensions import db
from tests import sql
from tests.refinement.conftest import World

# each is among the columns that every turn reads, and none of a trigger
CHANGED = (("refinement_sessions", "tool_calls"),)


def change_types(type_: str) -> None:
    for table, column in CHANGED:
        sql.run(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {type_}")


def change_meanwhile(app: Flask) -> None:
    with app.app_context():
        change_types("bigint")


@pytest.fixture
def types_are_put_back(app: Flask) -> Iterator[None]:
    yield
    db.session.rollback()
    change_types("integer")
    db.engine.dispose()


@pytest.mark.usefixtures("types_are_put_back")
def test_a_session_goes_on_while_a_migration_changes_types(world: World) -> None:
    model = world.model.say("YES")
    for number in range(8):
        model.call("update", id=world.ids[number], content=f"what it says now {number} " * 4)
    model.meanwhile(lambda: change_meanwhile(world.app))
    model.call("delete", id=world.ids[9]).call("complete", summary="Done.")

    session = world.refine()

    assert (session.status, session.end_reason) == ("completed", "the agent completed it")
    assert session.mutation_count == 9
