"""A column that is added to a table is signed, written, imaged and verified, listed nowhere."""

import os
import subprocess
import sys

from tests import sql

_WRITE_IT = """
import re

from sqlalchemy import Text
from sqlalchemy.orm import mapped_column

from refine import create_app
from refine.errors import RowAltered
from refine.extensions import db
from refine.models import AgentMemory, AuditLog, RefinementSession, SessionEntry
from refine.models.ledger.image import Change, changes_in
from refine.models.ledger.memory import change_memories
from tests import editing, factories
from tests.chains import problems

for kind in (AgentMemory, AuditLog, RefinementSession, SessionEntry):
    kind.scratch = mapped_column("scratch", Text)

with create_app().app_context():
    agent = factories.agent()
    memory = factories.memory(agent, "a memory", scratch="first")
    other, _ = agent.ledger.remember("another memory", "core")
    db.session.commit()

    # written: the entity, and an image that is applied; imaged: before and after
    before = memory.image()
    change = Change(memory.id, before, {**before, "scratch": "second"})
    record = change_memories("memory_saved", [change], agent=agent)
    db.session.commit()
    (found,) = changes_in(record.data, record.sealed)
    assert (found.before["scratch"], found.after["scratch"]) == ("first", "second")
    db.session.refresh(memory)
    assert memory.scratch == "second"

    # written by COPY, and by an edit that writes record, memory, entry and session
    session = factories.session(agent)
    session.scratch = "of the session"
    db.session.commit()
    assert problems() == []
    editing.protect(session, memory.id)
    db.session.commit()
    assert problems() == []

    # signed, hashed and verified
    for table in ("agent_memories", "audit_logs", "refinement_sessions"):
        changed = problems(f"UPDATE {table} SET scratch = 'third'")
        assert changed, table
        assert re.search("changed in the database|was altered", changed[0]), changed
    db.session.execute(SessionEntry.__table__.update().values(scratch="third"))
    db.session.commit()
    try:
        editing.protect(session, other.id)
    except RowAltered:
        print("each was written and verified")
"""


def told_by(script: str, **environ: str) -> tuple[str, str]:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )
    return done.stdout.strip(), "" if done.returncode == 0 else done.stderr


def test_a_new_column_is_written_imaged_and_verified(app, environ):
    tables = ("agent_memories", "audit_logs", "refinement_sessions", "session_entries")
    sql.run(*(f"ALTER TABLE {table} ADD COLUMN scratch text" for table in tables))
    try:
        told = told_by(_WRITE_IT, **environ)
    finally:
        sql.run(*(f"ALTER TABLE {table} DROP COLUMN scratch" for table in tables))

    assert told == ("each was written and verified", "")
