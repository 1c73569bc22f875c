"""The migrations make exactly the tables of the models."""

import re
import subprocess
from collections.abc import Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from flask import Flask
from flask_migrate import upgrade
from sqlalchemy import text

from refine.embedded.postgres import postgres_binaries
from refine.extensions import db
from tests import landed
from tests.conftest import app_of

# What only the migrations make; and what a dump says about itself.
_BEYOND_MODELS = re.compile(r"^(CREATE FUNCTION|CREATE TRIGGER)|alembic_version")
_NOISE = re.compile(r"^(--.*|\\(un)?restrict .*|)$")


@pytest.fixture
def empty_app(fresh: dict[str, str]) -> Iterator[Flask]:
    """An application on a new, empty database; its context is pushed."""
    with app_of(fresh) as empty:
        yield empty


def dump() -> list[str]:
    """The statements that make the present database, sorted; columns of a table in their order."""
    url = db.engine.url
    command = [
        str(postgres_binaries() / "pg_dump"),
        *("--schema-only", "--no-owner", "--no-privileges"),
        f"--host={url.query['host']}",
        f"--username={url.username}",
        url.database,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    text = "\n".join(line for line in done.stdout.splitlines() if not _NOISE.match(line))
    return sorted(re.split(r"(?<=;)\n(?!\s|END|BEGIN|DECLARE|\$)", text))


def of_models(statements: list[str]) -> list[str]:
    """Those that the models know of, whatever the order of a table's columns."""
    return [with_sorted_lines(each) for each in statements if not _BEYOND_MODELS.search(each)]


def with_sorted_lines(statement: str) -> str:
    return "\n".join(sorted(line.rstrip(",") for line in statement.splitlines()))


def test_the_migrations_match_the_models(empty_app):
    db.create_all()
    by_models = dump()
    db.drop_all()

    upgrade()

    assert of_models(dump()) == of_models(by_models)
    assert any("CREATE TABLE public.agent_memories" in each for each in by_models)


@pytest.mark.filterwarnings("ignore:Did not recognize type 'xid8'")
def test_autogenerate_finds_nothing_to_do(app):
    with db.engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "compare_server_default": True,
                # rows that tests begin with are kept in tables of their own
                "include_object": lambda _table, name, *_: not str(name).startswith("kept_"),
            },
        )
        differences = compare_metadata(context, db.metadata)

    assert differences == []


def test_the_guards_are_in_place(app):
    with db.engine.connect() as connection:
        triggers = connection.execute(
            text("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'D'")
        )

        assert set(triggers.scalars()) == {
            "audit_logs_append_only",
            "agent_memories_nothing_purged",
            "agent_memories_constitutional",
            "agent_memories_added",
            "agent_memories_changed",
            "agents_over_budget",
            "refinement_sessions_last",
        }


def test_a_migration_never_changes_after_it_landed_and_no_id_repeats():
    """A new one is listed by `python -m tests.landed`."""
    assert landed.written() == landed.listed()
    assert len({line.split()[0] for line in landed.listed()}) == len(landed.listed())
