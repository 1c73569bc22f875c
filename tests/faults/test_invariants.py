"""The invariants find what is wrong, and nothing where all is well."""

import pytest
from flask import Flask
from sqlalchemy import text

from refine.extensions import db
from refine.models import RefinementSession
from refine.models.runs import task as tasks
from refine.models.runs.session.duplicates import remove_duplicates
from refine.refinement import time_machine
from tests import editing, factories, sql
from tests.faults.invariants import Before, breaches, left_open, sweep


class Lived:
    """An agent with a session that was undone, a task, and an access that ended."""

    def __init__(self) -> None:
        self.agent = factories.agent("said twice", "said twice ")
        memories = factories.ledger(self.agent, *[25] * 14)
        factories.memory(self.agent, constitutional=True)
        db.session.commit()
        self.before = Before.of(self.agent)
        self.session = RefinementSession.queue(self.agent, "manual")
        assert self.session.claim()
        remove_duplicates(self.session)
        self.session.take_snapshot()
        self.edited = memories[0].id
        editing.update(self.session, self.edited, "it is the same, as it was")
        editing.consolidate(self.session, [memories[2].id, memories[3].id], "both " * 8)
        editing.protect(self.session, memories[4].id)
        self.session.consented_at = self.session.started_at
        editing.complete(self.session, "three changes")
        db.session.commit()
        time_machine.undo(self.session, through="dashboard")
        self.task = factories.extraction(self.agent)
        assert self.task.claim()
        tasks.save(self.task, "what was said")
        self.task.finish("completed")
        reader = factories.user(account=self.agent.account)
        self.grant = factories.live_grant(self.agent, reader)
        self.grant.end(user=reader)
        db.session.commit()

    def found(self) -> str:
        return "; ".join(breaches(self.before))


@pytest.fixture
def lived(app: Flask) -> Lived:
    return Lived()


def test_nothing_is_found_where_all_is_well(lived: Lived) -> None:
    factories.extraction(lived.agent)
    RefinementSession.start(lived.agent)
    factories.grant(lived.agent, status="requested").record("requested")
    db.session.commit()

    assert breaches(lived.before, at_rest=False) == []
    assert "still holds it" in lived.found()
    assert sweep(lived.agent.id) == 1
    assert lived.found() == ""
    assert left_open() == []


WRONG = {
    "UPDATE refinement_sessions SET mutation_count = 5": "5 mutations, and has 2 records of some",
    """UPDATE refinement_sessions SET stats = stats || '{"updated": 2}'""": "and its records",
    "UPDATE refinement_sessions SET duplicates_removed = 2": "2 duplicates, and its records 1",
    "UPDATE refinement_sessions SET mass_after = 1": "measured otherwise",
    "UPDATE refinement_sessions SET removable_tokens = 1, removed_tokens = 1": "may take 1",
    "UPDATE refinement_sessions SET status = 'declined'": "has the ends",
    "UPDATE refinement_sessions SET summary = NULL": "does not summarize",
    "UPDATE memory_tasks SET memories_kept = 2": "counts 2 memories",
    "UPDATE memory_tasks SET end_reason = NULL, kind = 'reflection', status = 'queued', "
    "ended_at = NULL": "has 1 ends on record",
    "UPDATE access_grants SET status = 'declined'": "has the answers",
    "UPDATE access_grants SET status = 'granted'": "ended otherwise",
    "DELETE FROM audit_logs WHERE action = 'refinement_queued'": "was queued 0 times",
    "DELETE FROM audit_logs WHERE action = 'memory_refinement_update'": "did not find",
    "DELETE FROM agent_memories WHERE memory_type = 'journal' AND session_id IS NOT NULL": "notes",
    "DELETE FROM agent_memories WHERE memory_type = 'journal'": "not as the records say",
    "UPDATE agent_memories SET tags = '{voice}'": "not as the records say",
    "UPDATE chain_heads SET sequence = sequence + 1": "verify",
}


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        pytest.param(*each, marks=pytest.mark.nightly if number % 3 else ())
        for number, each in enumerate(WRONG.items())
    ],
)
def test_broken_invariants_are_found(lived: Lived, statement: str, said: str) -> None:
    as_anybody = "SET LOCAL session_replication_role = replica"
    sql.rewrite(as_anybody, statement)

    assert said in lived.found()


def test_open_transactions_and_held_locks_are_found(app: Flask) -> None:
    with db.engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(1)"))

        assert left_open(patience_seconds=0) == [
            "1 transactions are open",
            "1 advisory locks are held",
        ]
    assert left_open() == []


def test_an_erased_agent_keeps_its_rows(lived: Lived) -> None:
    factories.erase(lived.agent)
    db.session.commit()

    assert lived.found() == ""
    sql.tamper(f"DELETE FROM agent_memories WHERE id = {lived.edited}")
    assert lived.found() == f"memory {lived.edited} is gone"
