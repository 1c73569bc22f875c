"""What a fault is put into: each operation as whoever asks for it does it, in this very process.

Each takes a world of its own: ``prepare`` and ``begin`` before the fault, ``run`` under it, and
after it ``recover``, what workers and clock do by themselves, and ``again``, what was asked for
once more. ``wrong`` tells what then is not as it should be.
"""

import json
import uuid
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
import time_machine as time_travel
from cryptography.fernet import Fernet
from flask import Flask
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from refine import clock
from refine.cli import context
from refine.cli.database import keys_rotate
from refine.errors import RefineError
from refine.extensions import db
from refine.jobs import queue, worker
from refine.jobs.tick import run_tick
from refine.models import (
    AccessGrant,
    Account,
    Agent,
    AgentMemory,
    AuditLog,
    MemoryTask,
    RefinementSession,
    User,
    WrappedKey,
)
from refine.models.runs.access.asking_rules import AccessTerms
from refine.refinement import time_machine
from refine.sealing import Keyring
from refine.transfer import importing
from refine.transfer.importing import import_memories
from refine.transfer.rows import Incoming
from tests import editing, factories, sql
from tests.factories import EDITS
from tests.faults.injecting import FaultyModel, Kind
from tests.faults.invariants import Before, breaches, sweep

# What may come out of an operation that failed; anything else is a fault in Refine.
EXPECTED = (OperationalError, RefineError)


class Operation:
    """One operation; ``fault`` is what it raised, None if it passed."""

    name: ClassVar[str]

    def __init__(self, app: Flask, environ: dict[str, str], model: FaultyModel) -> None:
        self.app = app
        self.model = model
        self.fault: Exception | None = None
        self.agents: list[Agent] = []
        self.befores: list[Before] = []
        self.environ = environ

    @abstractmethod
    def prepare(self) -> None:
        """Make what it works on."""

    def begin(self) -> None:
        self.prepare()
        db.session.commit()
        self.befores = [Before.of(agent) for agent in self.agents]
        db.session.rollback()

    def run(self) -> None:
        """Do it as its caller does, in an application context of its own."""
        try:
            with self.app.app_context():
                self.work()
        except Exception as fault:
            self.fault = fault

    @abstractmethod
    def work(self) -> None: ...

    def recover(self) -> None:
        """Do what others do by themselves: end what was lost."""
        for before in self.befores:
            sweep(before.agent_id)

    def wrong(self, kind: Kind) -> Iterator[str]:
        """What is not as it should be after the fault and the recovery."""
        if self.fault is not None and not isinstance(self.fault, EXPECTED):
            yield f"it raised {type(self.fault).__name__}: {self.fault}"
        for before in self.befores:
            yield from breaches(before)
        yield from self.outcome(kind)

    def outcome(self, kind: Kind) -> Iterator[str]:
        """What is neither done nor said to have failed."""
        yield from ()

    def again(self) -> Iterator[str]:
        """Do it once more, with nothing in its way; tell what then is not done."""
        yield from ()

    def summary(self) -> Any:
        """What is the same after each recovery, whatever failed."""
        return None

    def close(self) -> None: ...


# -- runs -----------------------------------------------------------------------------------------


class RunOperation(Operation):
    """A run, asked for as by a page or the API, and worked on as by a worker."""

    model_kind: ClassVar[type[Any]]
    done: ClassVar[str]

    def prepare(self) -> None:
        self.agent = factories.agent("twice said", "Twice said ", system_prompt="You are Ada.")
        self.memories = factories.ledger(self.agent, *[25] * 14)
        self.locked = factories.memory(self.agent, factories.text_of(25), constitutional=True)
        self.agents = [self.agent]
        self.agent_id = self.agent.id
        self.model.forget()
        self.script()

    @abstractmethod
    def script(self) -> None:
        """Let the model say what it says in this operation."""

    @abstractmethod
    def ask(self) -> uuid.UUID:
        """Ask for the run, as in a request; return its id."""

    def work_on(self, run_id: uuid.UUID) -> None:
        worker.work_on(str(run_id))

    def again(self) -> Iterator[str]:
        self.model.forget()
        self.script()
        sql.run("DELETE FROM shared_counts")
        with self.app.app_context():
            self.work_on(self.ask())
        if (status := self.runs()[-1].status) != self.done:
            yield f"the next one ended {status}"

    def work(self) -> None:
        run_id = self.ask()
        db.session.remove()
        with self.app.app_context():
            self.work_on(run_id)

    def runs(self) -> list[Any]:
        db.session.rollback()
        mine = select(self.model_kind).where(self.model_kind.agent_id == self.agent_id)
        return list(db.session.scalars(mine.order_by(self.model_kind.created_at)))

    def recover(self) -> None:
        super().recover()
        for run_id in [run.id for run in self.runs() if run.is_live]:
            sql.run("UPDATE memory_tasks SET due_at = due_at - interval '1 day'")  # pauses are over
            self.model.forget()
            self.script()
            with self.app.app_context():
                self.work_on(run_id)

    def outcome(self, kind: Kind) -> Iterator[str]:
        runs_ = self.runs()
        if len(runs_) > 1:
            yield f"{len(runs_)} runs were made of one"
        if not runs_ and self.fault is None:
            yield "nobody was told that there is no run"
        for run in runs_:
            if run.is_live:
                yield f"it is still {run.status}"
            # for a true reason alone; what passes by itself is none
            elif run.status != self.done and run.error_kind != (kind.excuse or "nothing"):
                yield f"it ended {run.status} ({run.error_kind}), and not for {kind.excuse}"


class Session(RunOperation):
    """A session with duplicates, each kind of edit, one that is refused, and an end."""

    name = "session"
    model_kind = RefinementSession
    done = "completed"

    def script(self) -> None:
        first, *others = [memory.id for memory in self.memories]
        self.model.tool = "refinement"
        self.model.say("Yes.")
        self.model.call("search", query="abc")
        self.model.call("update", id=first, content="it is the same, as it was")
        self.model.calls(
            {"action": "delete", "id": others[0]},
            {"action": "consolidate", "ids": others[1:3], "content": "both of them " * 12},
        )
        self.model.calls(
            {"action": "protect", "id": others[3]}, {"action": "delete", "id": self.locked.id}
        )
        self.model.call("complete", summary="four changes")

    def ask(self) -> uuid.UUID:
        agent = db.session.get_one(Agent, self.agent_id)
        return queue.refine_later(agent, "manual").id

    def outcome(self, kind: Kind) -> Iterator[str]:
        """The model was told of no edit that is not on record."""
        yield from super().outcome(kind)
        edits = AuditLog.agent_id == self.agent_id, AuditLog.action.in_(EDITS)
        done = Counter(db.session.scalars(select(AuditLog.action).where(*edits)))
        told = Counter(self.results())
        named = {"updated": "update", "deleted": "delete", "consolidated": "consolidate"}
        for said, operation in {**named, "protected": "protect"}.items():
            if told[said] > done[f"memory_refinement_{operation}"]:
                yield f"the model was told of {told[said]} that were {said}, which did not happen"

    def results(self) -> list[str]:
        messages = self.model.requests[-1]["messages"] if self.model.requests else []
        said = [each["content"] for each in messages if each["role"] == "tool"]
        return [json.loads(each).get("type", "") for each in said]

    def again(self) -> Iterator[str]:
        self.model.forget()
        self.model.say("No.")
        with self.app.app_context():
            self.work_on(self.ask())
        if (status := self.runs()[-1].status) != "declined":
            yield f"the next session ended {status}"


class Breaker(Session):
    """A session that removes too much, and is undone entirely."""

    name = "session that trips the breaker"
    done = "rolled_back"

    def script(self) -> None:
        self.model.tool = "refinement"
        self.model.say("Yes.")
        for memory in self.memories[:5]:
            self.model.call("delete", id=memory.id)


class Extraction(RunOperation):
    """A memory task: memories of a conversation."""

    name = "extraction"
    model_kind = MemoryTask
    done = "completed"

    def script(self) -> None:
        self.model.tool = "save_memory"
        self.model.calls({"content": "they said hello"}, {"content": "they asked for the time"})
        self.model.say("That is all.")

    def ask(self) -> uuid.UUID:
        said = [{"role": "user", "content": "hello, what is the time?"}]
        return queue.extract_later(db.session.get_one(Agent, self.agent_id), said).id


class Access(RunOperation):
    """A request for access, its answer, and its end by who asked."""

    name = "request for access"
    model_kind = AccessGrant
    done = "ended"

    def prepare(self) -> None:
        super().prepare()
        self.reader_id = factories.user(account=self.agent.account).id

    def script(self) -> None:
        self.model.say("YES")

    def ask(self) -> uuid.UUID:
        terms = AccessTerms.checked(
            reason="agent_asked", purpose="to see why it declined", duration_minutes=30
        )
        agent = db.session.get_one(Agent, self.agent_id)
        return queue.request_access_later(agent, db.session.get_one(User, self.reader_id), terms).id

    def work_on(self, run_id: uuid.UUID) -> None:
        super().work_on(run_id)
        with self.app.app_context():
            grant = db.session.get_one(AccessGrant, run_id)
            grant.end(user=db.session.get_one(User, self.reader_id))
            db.session.commit()

    def recover(self) -> None:
        super().recover()
        for grant in self.runs():
            if grant.status == "granted":  # its reader presses the button once more
                grant.end(user=db.session.get_one(User, self.reader_id))
                db.session.commit()


# -- what people do -------------------------------------------------------------------------------


class Undo(Operation):
    """An undo of one session, as the command does it."""

    name = "undo"

    def prepare(self) -> None:
        self.agent = factories.agent("twice said", "Twice said ")
        self.memories = factories.ledger(self.agent, *[25] * 14)
        self.agents = [self.agent]
        db.session.commit()
        self.original = Before.of(self.agent).images
        session = RefinementSession.start(self.agent)
        session.consented_at = clock.now()
        editing.update(session, self.memories[0].id, "it is the same, as it was")
        editing.delete(session, self.memories[1].id)
        editing.protect(session, self.memories[2].id)
        editing.complete(session, "three changes")
        db.session.commit()
        self.session_id = session.id
        self.refined = self.images()

    def images(self) -> dict[int, Any]:
        """The memories that there were at first, as they are."""
        images = Before.of(self.agent).images
        return {id_: image for id_, image in images.items() if id_ in self.original}

    def work(self) -> None:
        session = db.session.get_one(RefinementSession, self.session_id)
        time_machine.undo(session, through="command line")
        db.session.commit()

    def outcome(self, kind: Kind) -> Iterator[str]:
        if self.fault is None and self.images() != self.original:
            yield "it passed, and is not done"
        if self.images() not in (self.original, self.refined):
            yield "it is half done"

    def again(self) -> Iterator[str]:
        with self.app.app_context():
            self.work()
        db.session.rollback()
        if self.images() != self.original:
            yield "once more, and it is not done"


class Import(Operation):
    """An import in several batches."""

    name = "import"
    _ROWS = 10

    def prepare(self) -> None:
        self.agent = factories.agent("kept before")
        self.agents = [self.agent]
        self.agent_id = self.agent.id

    def work(self) -> None:
        rows = [Incoming(place=f"line {n}", content=f"row {n}") for n in range(self._ROWS)]
        agent = db.session.get_one(Agent, self.agent_id)
        self.report = import_memories(agent, lambda: rows, source="mem0")

    def run(self) -> None:
        kept, importing.BATCH_MEMORIES = importing.BATCH_MEMORIES, 4
        super().run()
        importing.BATCH_MEMORIES = kept

    def outcome(self, kind: Kind) -> Iterator[str]:
        imported = self.count() - 1
        if self.fault is None and imported != self._ROWS:
            yield f"it passed with {imported} rows"
        if imported not in (0, 4, 8, self._ROWS):
            yield f"{imported} rows are no complete batches"

    def count(self) -> int:
        db.session.rollback()
        mine = select(func.count()).where(AgentMemory.agent_id == self.agent_id)
        return db.session.scalar(mine) or 0

    def again(self) -> Iterator[str]:
        before = self.count()
        with self.app.app_context():
            self.work()
        if self.count() != self._ROWS + 1:
            yield f"once more, and there are {self.count()} memories"
        if self.report.already_present != before - 1:
            yield f"it says that {self.report.already_present} were there, of {before}"


class Erasure(Operation):
    """The erasure of an agent."""

    name = "erasure"

    def prepare(self) -> None:
        self.agent = factories.agent("kept before", system_prompt="You are Ada.")
        self.agents = [self.agent]
        self.agent_id = self.agent.id

    def work(self) -> None:
        db.session.get_one(Agent, self.agent_id).erase(by="command line")
        db.session.commit()

    def records(self) -> int:
        db.session.expire_all()
        return sum(each.action == "agent_erased" for each in factories.records(self.agent))

    def outcome(self, kind: Kind) -> Iterator[str]:
        if self.records() != self.agent.is_erased:
            yield f"{self.records()} erasures are on record, erased: {self.agent.is_erased}"
        if self.fault is None and not self.agent.is_erased:
            yield "it passed, and nothing is erased"

    def again(self) -> Iterator[str]:
        with self.app.app_context():
            self.work()
        if not (self.records() == 1 and self.agent.is_erased):
            yield "once more, and it is not erased"


class Rotation(Operation):
    """A rotation of the encryption key, by the command."""

    name = "key rotation"

    def prepare(self) -> None:
        self.agents = [factories.agent("kept before") for _ in range(3)]
        db.session.commit()
        new = Fernet.generate_key().decode()
        keys = f"{new},{self.environ['REFINE_ENCRYPTION_KEYS']}"
        self.variables = {**self.environ, "REFINE_ENCRYPTION_KEYS": keys}
        self.keys = keys.split(",")
        self.ring = self.app.extensions["refine.keyring"]
        self.app.extensions["refine.keyring"] = Keyring(self.keys)

    def work(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.variables.items():
                patch.setenv(name, value)
            # an application of its own would have doors of its own
            patch.setattr(context, "create_app", lambda _settings: self.app)
            assert keys_rotate.callback is not None
            keys_rotate.callback()

    def outcome(self, kind: Kind) -> Iterator[str]:
        if self.fault is None and (left := WrappedKey.count_under_older_keys()):
            yield f"it passed, and {left} keys are left"

    def again(self) -> Iterator[str]:
        with self.app.app_context():
            self.work()
        db.session.rollback()
        self.app.extensions["refine.keyring"] = Keyring(self.keys[:1])
        for before in self.befores:
            yield from breaches(before)

    def close(self) -> None:
        self.app.extensions["refine.keyring"] = self.ring


# -- what the clock does --------------------------------------------------------------------------

_HOUR = timedelta(hours=1)
_NEVER = "0 0 1 1 *"


class Tick(Operation):
    """A tick in which everything is due at once."""

    name = "tick"

    def prepare(self) -> None:
        began = clock.now()
        slot = began + 2 * _HOUR
        self.travelling = time_travel.travel(began, tick=False)
        self.clock = self.travelling.start()
        account = factories.account(next_due_at=slot)
        self.agents = [self.agent(account) for _ in range(2)]
        for arrange in (self.fails, self.is_lost, self.outgrows, self.waits, self.reads):
            owner = self.agent(factories.account(schedule=_NEVER))
            arrange(owner)
            self.agents.append(owner)
        db.session.commit()
        sql.run("UPDATE refinement_sessions SET heartbeat_at = '2020-01-01'")
        self.clock.move_to(slot)

    def agent(self, account: Account) -> Agent:
        return factories.agent(*(factories.text_of(25) for _ in range(4)), account=account)

    def fails(self, owner: Agent) -> None:
        session = RefinementSession.queue(owner, "over_budget")
        session.claim()
        session.give_up("the provider did not answer")

    def is_lost(self, owner: Agent) -> None:
        session = RefinementSession.start(owner)
        editing.delete(session, db.session.scalars(owner.ledger.core()).all()[0].id)

    def outgrows(self, owner: Agent) -> None:
        owner.core_token_budget = 99

    def waits(self, owner: Agent) -> None:
        factories.extraction(owner, at=clock.now() - timedelta(days=30))

    def reads(self, owner: Agent) -> None:
        grant = factories.live_grant(owner, factories.user(account=owner.account))
        grant.expires_at = datetime(2020, 1, 1, tzinfo=UTC)
        grant.granted_at = grant.expires_at - _HOUR

    def work(self) -> None:
        self.done = run_tick()

    def recover(self) -> None:
        self.clock.shift(timedelta(minutes=1))
        with self.app.app_context():
            assert run_tick().faults == 0

    def summary(self) -> Any:
        """What became of each agent."""
        db.session.rollback()
        return [
            (kind.__name__, list(db.session.scalars(statuses)))
            for owner in self.agents
            for kind in (RefinementSession, MemoryTask, AccessGrant)
            for statuses in [
                select(kind.status).where(kind.agent_id == owner.id).order_by(kind.created_at)
            ]
        ]

    def outcome(self, kind: Kind) -> Iterator[str]:
        if self.fault is not None:
            yield f"the tick raised {type(self.fault).__name__}"

    def close(self) -> None:
        self.travelling.stop()


OPERATIONS: tuple[type[Operation], ...] = (
    *(Session, Breaker, Extraction, Access),
    *(Undo, Import, Erasure, Rotation, Tick),
)
