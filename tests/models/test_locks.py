"""Each verb waits for the rows that it decides by, however little it would change."""

import uuid

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError

from refine import clock
from refine.access import reading
from refine.extensions import db
from refine.models import (
    AccessGrant,
    Agent,
    AgentMemory,
    ApiToken,
    Invitation,
    MemoryTask,
    RefinementSession,
)
from refine.models.agent import configuring
from refine.models.audit import ChainHead
from refine.models.runs import task as tasks
from refine.models.runs.access.asking_rules import AccessTerms
from refine.models.runs.access.grant import REQUEST_LAPSES_AFTER
from refine.models.runs.session import duplicates
from refine.refinement import time_machine
from tests import editing, factories, sql

LOCK_NOT_AVAILABLE = "55P03"
TERMS = AccessTerms.checked(
    reason="agent_asked", purpose="to see why it declined", duration_minutes=60
)


PAUSED = select(Agent.id).where(Agent.paused).order_by(Agent.id)


class World:
    """Rows of one agent, in states in which most verbs have nothing to change.

    A verb that writes would wait for the row even if it did not lock it.
    """

    def __init__(self):
        self.agent = agent = factories.agent()
        self.account = agent.account
        self.user = factories.user(account=self.account)
        self.discarded = factories.memory(agent, discarded_at=clock.now())
        self.memory = factories.memory(agent, constitutional=True)
        self.copy = factories.memory(agent, self.memory.content)
        self.session = RefinementSession.queue(agent, "manual")
        self.session.finish("failed", "no answer")
        self.grant = factories.grant(agent, user_id=self.user.id)
        self.failed_grant = factories.grant(agent, status="failed", ended_at=clock.now())
        self.closer = self.failed_grant.user
        self.task = factories.extraction(agent)
        self.lease = self.task.claim()
        self.waiting = factories.extraction(agent)
        self.live_grant = factories.live_grant(agent, factories.user(account=self.account))
        # ended and to be undone, of an agent of its own
        self.edited = RefinementSession.start(factories.agent("one"))
        self.protected = db.session.scalars(self.edited.agent.ledger.core()).one()
        editing.protect(self.edited, self.protected.id)
        editing.complete(self.edited, "Done.")
        # running
        self.running = RefinementSession.start(factories.agent("two"))
        self.running_agent = self.running.agent
        self.shown = db.session.scalars(self.running.agent.ledger.core()).one()
        self.token, _ = ApiToken.mint(account=self.account, agent=agent)
        self.token.revoke()
        self.platform, _ = ApiToken.mint(account=self.account)
        self.secret = Invitation.issue(self.user)
        db.session.commit()
        self.invitation = db.session.scalars(select(Invitation)).one()
        self.head = self.head_of(agent)
        self.running_head = self.head_of(self.running.agent)

    def head_of(self, agent):
        return db.session.scalars(select(ChainHead).filter_by(agent_id=agent.id)).one()


def hold(row):
    """The statement that locks this row; references to the row do not wait for that."""
    return f"SELECT id FROM {row.__tablename__} WHERE id = '{row.id}' FOR NO KEY UPDATE"


def assert_waits(verb, world, row):
    """Assert that the verb waits for this row while another transaction holds it."""
    db.session.rollback()
    with db.engine.connect() as other:
        other.exec_driver_sql(hold(row))
        db.session.execute(text("SET LOCAL lock_timeout = '20ms'"))
        with pytest.raises(OperationalError) as error:
            verb(world)
    assert error.value.orig.sqlstate == LOCK_NOT_AVAILABLE


# Verbs by name, each with what it is called on.
NEEDS_AGENT = {
    "Agent.author": lambda w: configuring.author(w.agent, "name", w.agent.name),
    "Agent.configure": lambda w: configuring.configure(w.agent, user=w.user, paused=False),
    "Agent.clear_refinement_prompt": lambda w: configuring.clear_refinement_prompt(
        w.agent, user=w.user
    ),
    "Ledger.remember": lambda w: w.agent.ledger.remember("new", "core"),
    "Ledger.add_journal_note": lambda w: w.agent.ledger.add_journal_note("new"),
    "AgentMemory.discard": lambda w: w.discarded.discard(),
    "AgentMemory.restore": lambda w: w.memory.restore(),
    "AgentMemory.set_constitutional": lambda w: w.memory.set_constitutional(True),
    "RefinementSession.queue": lambda w: RefinementSession.queue(w.agent, "manual"),
    "RefinementSession.claim": lambda w: w.session.claim(),
    "RefinementSession.request_stop": lambda w: w.session.request_stop(),
    "RefinementSession.end_if_lost": lambda w: w.session.end_if_lost(),
    "RefinementSession.end_if_still_held": lambda w: w.session.end_if_still_held(uuid.uuid4()),
    "MemoryTask.reflect": lambda w: MemoryTask.reflect(w.agent, "api"),
    "MemoryTask.extract": lambda w: MemoryTask.extract(
        w.agent, [{"role": "user", "content": "hi"}]
    ),
    "MemoryTask.end_if_lapsed": lambda w: w.waiting.end_if_lapsed(),
    "MemoryTask.held": lambda w: MemoryTask.held(w.task.id, w.lease),
    "time_machine.preview": lambda w: time_machine.preview(w.session),
    "time_machine.undo_own_last": lambda w: time_machine.undo_own_last(w.session),
    "ApiToken.mint": lambda w: ApiToken.mint(account=w.account, agent=w.agent),
    "AccessGrant.request": lambda w: AccessGrant.request(w.agent, w.closer, TERMS),
    "AccessGrant.settle": lambda w: w.failed_grant.settle("YES", agreed=True, generation_id=None),
    "AccessGrant.end": lambda w: w.failed_grant.end(user=None),
    "AccessGrant.end_all_of": lambda w: AccessGrant.end_all_of(w.user, by=None),
    "Agent.erase": lambda w: w.agent.erase(),
}

# Verbs by name, each with the row that it locks itself.
NEEDS_ROW = {
    "Agent.lock_due": (
        "agent",
        lambda w: Agent.lock_due(select(Agent.id), [w.agent.id], wait=True),
    ),
    "Account.request_sweep": ("account", lambda w: w.account.request_sweep(user=w.user)),
    "RefinementSession.claim": ("session", lambda w: w.session.claim()),
    "RefinementSession.request_stop": ("session", lambda w: w.session.request_stop()),
    "RefinementSession.end_if_lost": ("session", lambda w: w.session.end_if_lost()),
    "RefinementSession.end_if_still_held": (
        "session",
        lambda w: w.session.end_if_still_held(uuid.uuid4()),
    ),
    "MemoryTask.end_if_lapsed": ("waiting", lambda w: w.waiting.end_if_lapsed()),
    "MemoryTask.held": ("task", lambda w: MemoryTask.held(w.task.id, w.lease)),
    "AccessGrant.settle": (
        "failed_grant",
        lambda w: w.failed_grant.settle("YES", agreed=True, generation_id=None),
    ),
    "AccessGrant.end": ("failed_grant", lambda w: w.failed_grant.end(user=None)),
    "AgentMemory.locked": ("memory", lambda w: AgentMemory.lock_rows(w.agent, [w.memory.id])),
    "AgentMemory.discard": ("discarded", lambda w: w.discarded.discard()),
    "AgentMemory.restore": ("memory", lambda w: w.memory.restore()),
    "AgentMemory.set_constitutional": ("memory", lambda w: w.memory.set_constitutional(True)),
    "duplicates.remove_duplicates": ("copy", lambda w: duplicates.remove_duplicates(w.session)),
    "tasks.promote": ("memory", lambda w: tasks.promote(w.task, [w.memory.id])),
    "Account.configure": ("account", lambda w: w.account.configure(user=w.user, paused=False)),
    "ApiToken.mint_for": ("platform", lambda w: w.platform.mint_for(w.agent, expires_at=None)),
    "ApiToken.revoke": ("token", lambda w: w.token.revoke()),
    "Invitation.open": ("invitation", lambda w: Invitation.by_secret(w.secret)),
    "Invitation.open, user": ("user", lambda w: Invitation.by_secret(w.secret)),
    "Invitation.issue": ("user", lambda w: Invitation.issue(w.user)),
    "ChainHead.all_locked": ("head", lambda w: ChainHead.all_locked([w.agent.chain_owner])),
    # a preview changes nothing, but locks as an undo does
    "time_machine.preview, session": ("edited", lambda w: time_machine.preview(w.edited)),
    "time_machine.preview, memories": ("protected", lambda w: time_machine.preview(w.edited)),
    "reading.memories": (
        "live_grant",
        lambda w: reading.memories(w.live_grant.id, w.live_grant.user, []),
    ),
}


def two_overdue():
    long_ago = clock.now() - 2 * REQUEST_LAPSES_AFTER
    times = {"granted_at": long_ago, "expires_at": long_ago}
    return [
        factories.grant(factories.agent(), created_at=long_ago),
        factories.grant(factories.agent(), status="granted", **times),
    ]


# Queries by name, each with two rows that it finds, and how many of them it returns.
PASSES_OVER = {
    "Agent.lock_due": (
        lambda: [factories.agent(paused=True) for _ in range(2)],
        lambda: Agent.lock_due(PAUSED, db.session.scalars(PAUSED).all()),
        2,
    ),
    "RefinementSession.select_waiting": (
        lambda: [RefinementSession.queue(factories.agent(), "manual") for _ in range(2)],
        lambda: db.session.scalars(RefinementSession.select_waiting(9)).all(),
        2,
    ),
    "AccessGrant.select_waiting": (
        lambda: [factories.grant(factories.agent()) for _ in range(2)],
        lambda: db.session.scalars(AccessGrant.select_waiting(9)).all(),
        2,
    ),
    "tasks.due": (
        lambda: [factories.extraction(factories.agent()) for _ in range(2)],
        lambda: tasks.due(9, clock.now()),
        2,
    ),
    "AccessGrant.next_overdue": (two_overdue, lambda: [AccessGrant.next_overdue()], 1),
}


def test_every_verb_of_an_agent_waits_for_the_agents_row(app, subtests):
    world = World()

    for name, verb in NEEDS_AGENT.items():
        with subtests.test(name):
            assert_waits(verb, world, world.agent)


def test_every_verb_waits_for_the_row_that_it_reads(app, subtests):
    world = World()

    for name, (row, verb) in NEEDS_ROW.items():
        with subtests.test(name):
            assert_waits(verb, world, getattr(world, row))


def test_queries_skip_locked_rows_and_lock_their_results(app, subtests):
    for name, (arrange, query, returned) in PASSES_OVER.items():
        rows = arrange()
        db.session.commit()
        with subtests.test(name):
            with db.engine.connect() as other:
                other.exec_driver_sql(hold(rows[0]))
                assert [getattr(each, "id", each) for each in query()] == [rows[1].id]
            db.session.rollback()
            found = [getattr(each, "id", each) for each in query()]
            assert found == [row.id for row in rows[:returned]]
            held = [sql.value(f"{hold(row)} SKIP LOCKED") is None for row in rows]
            assert held == [number < returned for number in range(2)]
        db.session.rollback()
