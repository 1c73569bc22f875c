"""`refine undo`."""

from datetime import datetime

import pytest

from refine.extensions import db
from refine.models import Agent, AgentMemory, RefinementSession
from tests import editing, factories, sql
from tests.cli.conftest import problem


@pytest.fixture
def session(ledger: Agent) -> RefinementSession:
    """A session of Ada's that discarded the canary."""
    return refined(ledger, canary(ledger))


def refined(owner: Agent, *deleted: AgentMemory, at: datetime | None = None) -> RefinementSession:
    session = RefinementSession.start(owner, at=at)
    for memory in deleted:
        editing.delete(session, memory.id)
    editing.complete(session, "Done.")
    db.session.commit()
    return session


def canary(owner: Agent) -> AgentMemory:
    """The last of the agent's memories from the first."""
    first = db.select(AgentMemory).filter_by(agent_id=owner.id, session_id=None)
    return db.session.scalars(first.order_by(AgentMemory.id.desc()).limit(1)).one()


def test_undo_prints_figures(ledger, session, run):
    done = run("undo", session.id)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "undid 1 session of Ada: 1 brought back; 19 → 20 memories, 475 → 481 tokens\n"
    )
    assert not canary(ledger).discarded
    record = factories.records(ledger)[-1]
    assert (record.action, record.user_id) == ("memory_refinement_rollback", None)
    assert (record.data["operation"], record.data["by"]) == ("undo", "command line")
    assert session.undone_through == "command line"


def test_a_conflict_names_the_record_and_the_wider_undo_resolves_it(ledger, session, run):
    canary(ledger).restore()
    canary(ledger).set_constitutional(True)
    db.session.commit()
    record, before = factories.records(ledger)[-2], sql.snapshot()

    line = problem(run("undo", session.id))

    assert line.startswith(
        "nothing was undone, because these memories were changed after the session: "
        f"#{canary(ledger).id} by record {record.sequence} (memory_restored, "
    )
    assert line.endswith("; you can undo this session and everything after it (--and-after)")
    assert sql.snapshot() == before
    done = run("undo", session.id, "--and-after")

    assert done.returncode == 0
    assert (canary(ledger).discarded, canary(ledger).constitutional) == (False, False)
