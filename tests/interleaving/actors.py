"""The actors of a simulation: each is a number of deeds, done through the doors that exist."""

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from zlib import crc32

from flask import Flask
from sqlalchemy import select, text

from refine.access import asking, reading
from refine.errors import InvalidValue, NotFound, Refused
from refine.extensions import db
from refine.jobs.tick import run_tick
from refine.models import AccessGrant, Agent, AgentMemory, RefinementSession, User
from refine.models.agent import configuring
from refine.models.runs.access.asking_rules import AccessTerms
from refine.models.runs.run import Run
from refine.refinement import loop, time_machine
from refine.settings import Settings
from tests.api.conftest import Program
from tests.factories import text_of
from tests.interleaving.baton import Baton

Deed = Callable[[random.Random], None]
# Answers of the API to programs that come too late, or ask for what may not be.
_REFUSALS = (404, 409)
_LOOKS_FOR_WORK = 8


class Fault(Exception):
    """An answer that no concurrent action can justify."""


class Actors:
    """The possible deeds of all actors in one world."""

    def __init__(
        self,
        app: Flask,
        settings: Settings,
        baton: Baton,
        programs: dict[int, Program],
        user_ids: list[int],
        texts: list[str],
        pass_time: Callable[[timedelta], None],
    ) -> None:
        self._app = app
        self._settings = settings
        self._baton = baton
        self._programs = programs
        self._user_ids = user_ids
        self._texts = texts
        self._pass_time = pass_time
        # what each session's worker was told by its tool, in order
        self.told: dict[uuid.UUID, list[str]] = {}

    # -- workers ----------------------------------------------------------------------------------

    def work(self, dice: random.Random) -> None:
        """Take waiting runs and work on them, until there are none for a while.

        Now and then the worker is asked to stop, and another takes its place.
        """
        for _ in range(dice.randint(2, _LOOKS_FOR_WORK)):
            steps = dice.choice([0, 0, 2, 3, 4, 5])
            refine = partial(self._refine, steps)
            has_worked = self._work_on(RefinementSession, refine)
            if not self._work_on(AccessGrant, asking.run_access_request) and not has_worked:
                self._baton.hand_on()

    def _work_on(self, kind: type[Run], work: Callable[..., object]) -> bool:
        with self._app.app_context():
            waiting = select(kind.id).where(kind.is_waiting).order_by(kind.created_at).limit(1)
            run_id = db.session.scalar(waiting)
            db.session.commit()
            if run_id is not None:
                self._baton.note(f"claims a {kind.__name__}")
                work(run_id, self._settings)
        return run_id is not None

    def _refine(self, steps: int, run_id: uuid.UUID, settings: Settings) -> None:
        """Work on a session; the worker is asked to stop after so many steps, 0: never."""
        seen: list[str] = []

        def observe(happened: loop.SessionEvent) -> None:
            self._observe(happened)
            seen.append(happened.kind)

        loop.refine(run_id, settings, observe=observe, is_stopping=lambda: 0 < steps <= len(seen))

    def _observe(self, happened: loop.SessionEvent) -> None:
        if happened.kind == "tool_call":
            self.told.setdefault(happened.session.id, []).append(happened.facts["result"])
        self._baton.note(" ".join([happened.kind, *map(str, happened.facts.values())]))

    # -- the agent's program ----------------------------------------------------------------------

    def save(self, dice: random.Random) -> None:
        """Save a memory; half of the time an exact duplicate."""
        new = text_of(dice.choice([18, 25]))
        content = dice.choice([new, dice.choice(self._texts)])
        self._texts.append(new)
        body = {"content": content, "memory_type": dice.choice(["core", "core", "journal"])}
        headers = {}
        if dice.random() < 0.3:
            sent = crc32(f"{body}".encode())  # with another body, the same key is refused
            headers["Idempotency-Key"] = f"key-{dice.randint(1, 2)}-{sent}"
        self._ask(dice, "POST", "/memories", json=body, headers=headers)

    def ask_for_session(self, dice: random.Random) -> None:
        """Ask for a session."""
        self._ask(dice, "POST", "/sessions", json={})

    def take_back(self, dice: random.Random) -> None:
        """Undo its last session."""
        agent_id = self._one_agent(dice)
        with self._app.app_context():
            last = RefinementSession.last_changing_of(db.session.get_one(Agent, agent_id))
            last_id = last.id if last is not None else None
            db.session.rollback()
        if last_id is not None:
            self._ask(dice, "POST", f"/sessions/{last_id}/undo", json={}, agent_id=agent_id)

    def revoke(self, dice: random.Random) -> None:
        """Revoke an access, whatever state it is in."""
        agent_id = self._one_agent(dice)
        with self._app.app_context():
            grant_id = self._one_of(dice, AccessGrant, agent_id)
        if grant_id is not None:
            self._ask(dice, "DELETE", f"/grants/{grant_id}", agent_id=agent_id)

    def _ask(
        self,
        dice: random.Random,
        method: str,
        path: str,
        agent_id: int | None = None,
        **what: object,
    ) -> None:
        program = self._programs[agent_id or self._one_agent(dice)]
        answer = program.open(path, method=method, **what)
        shown = "/".join(part for part in path.split("/") if len(part) < 20)
        self._baton.note(f"{method} {shown}: {answer.status_code}")
        if answer.status_code >= 400 and answer.status_code not in _REFUSALS:
            problem = (answer.get_json(silent=True) or {}).get("title")
            raise Fault(f"{method} {shown} was answered {answer.status_code} ({problem})")

    # -- admins -----------------------------------------------------------------------------------

    def toggle(self, dice: random.Random) -> None:
        """Set or lift the constitutional flag of a memory."""
        with self._acting("toggles"):
            memory = self._memory(dice)
            memory.set_constitutional(not memory.constitutional, user=self._user(dice))

    def discard_or_restore(self, dice: random.Random) -> None:
        """Discard or restore a memory."""
        with self._acting("discards or restores"):
            memory = self._memory(dice)
            verb = memory.restore if memory.discarded else memory.discard
            verb(user=self._user(dice))

    def configure(self, dice: random.Random) -> None:
        """Change the agent's settings."""
        changed = dice.choice(
            [
                {"refinement_threshold": dice.choice(["0.75", "0.9"])},
                {"paused": dice.random() < 0.5},
                {"core_token_budget": dice.choice([100, 5000])},
                {"model_id": f"test/model-{dice.randint(1, 3)}"},
            ]
        )
        with self._acting(f"configures {', '.join(changed)}"):
            agent = db.session.get_one(Agent, self._one_agent(dice))
            configuring.configure(agent, user=self._user(dice), **changed)

    def stop(self, dice: random.Random) -> None:
        """Ask a live session to stop."""
        with self._acting("stops"):
            agent = db.session.get_one(Agent, self._one_agent(dice))
            if (live := RefinementSession.live_of(agent)) is not None:
                live.request_stop(self._user(dice))

    def travel(self, dice: random.Random) -> None:
        """Undo a session, or it and everything after it."""
        verb = dice.choice(["undo", "undo", "undo and after"])
        with self._acting(verb):
            session_id = self._one_of(dice, RefinementSession, self._one_agent(dice))
            if session_id is None:
                return
            session = db.session.get_one(RefinementSession, session_id)
            user, is_wide = self._user(dice), verb != "undo"
            time_machine.undo(session, through="dashboard", user=user, and_after=is_wide)

    def queue(self, dice: random.Random) -> None:
        """Ask for a session, as *Refine now* does."""
        with self._acting("refine now"):
            agent = db.session.get_one(Agent, self._one_agent(dice))
            RefinementSession.queue(agent, "manual", user=self._user(dice))

    # -- access -----------------------------------------------------------------------------------

    def ask_for_access(self, dice: random.Random) -> None:
        """Ask to read the agent's memories."""
        with self._acting("asks for access"):
            agent = db.session.get_one(Agent, self._one_agent(dice))
            terms = AccessTerms.checked(
                reason="agent_asked", purpose="to see why it declined", duration_minutes=60
            )
            AccessGrant.request(agent, self._user(dice), terms)

    def read(self, dice: random.Random) -> None:
        """Read memories under a grant, if there is a live one."""
        with self._acting("reads"):
            agent_id, user = self._one_agent(dice), self._user(dice)
            memory_id = self._one_of(dice, AgentMemory, agent_id)
            grant_id = self._one_of(dice, AccessGrant, agent_id)
            if grant_id is not None and memory_id is not None:
                reading.memories(grant_id, user, [memory_id])

    def end_access(self, dice: random.Random) -> None:
        """End an access."""
        with self._acting("ends an access"):
            grant_id = self._one_of(dice, AccessGrant, self._one_agent(dice))
            if grant_id is not None:
                db.session.get_one(AccessGrant, grant_id).end(user=self._user(dice))

    # -- the clock --------------------------------------------------------------------------------

    def tick(self, _dice: random.Random) -> None:
        """Tick once."""
        with self._app.app_context():
            done = run_tick()
        self._baton.note(f"ticked, {done.lost} lost")
        if done.faults:
            raise Fault(f"{done.faults} steps of a tick failed")

    def pass_time(self, dice: random.Random) -> None:
        """Let hours or days pass, then tick."""
        by = dice.choice([timedelta(hours=2), timedelta(days=1), timedelta(days=8)])
        self._baton.note(f"{by} pass")
        self._pass_time(by)
        self.tick(dice)

    def lose_workers(self, dice: random.Random) -> None:
        """Let every heartbeat be an hour old, until a tick or a request for a session finds it.

        The workers know nothing of it, and go on afterwards.
        """
        with self._baton.hearts_frozen():
            with self._app.app_context():
                forget_heartbeats()
            self._baton.note("heartbeats stop")
            dice.choice([self.tick, self.tick, self.queue, self.ask_for_session])(dice)

    # -- help -------------------------------------------------------------------------------------

    @contextmanager
    def _acting(self, deed: str) -> Iterator[None]:
        """Do it in a transaction of its own; a refusal is an answer like others."""
        with self._app.app_context():
            try:
                yield
                db.session.commit()
                self._baton.note(deed)
            except (Refused, InvalidValue, NotFound) as refusal:
                db.session.rollback()
                self._baton.note(f"{deed}: {type(refusal).__name__}")

    def _one_agent(self, dice: random.Random) -> int:
        return dice.choice(sorted(self._programs))

    def _user(self, dice: random.Random) -> User:
        return db.session.get_one(User, dice.choice(self._user_ids))

    def _memory(self, dice: random.Random) -> AgentMemory:
        memory_id = self._one_of(dice, AgentMemory, self._one_agent(dice))
        return db.session.get_one(AgentMemory, memory_id)

    def _one_of(self, dice: random.Random, kind: type, agent_id: int) -> object:
        """The id of one of the agent's rows, in the order in which they were made; or None."""
        found = select(kind.id).where(kind.agent_id == agent_id)
        ids = db.session.scalars(found.order_by(kind.created_at, kind.id)).all()
        return dice.choice(ids) if ids else None


def forget_heartbeats() -> None:
    """Let every held run look as if its worker were gone."""
    for kind in (RefinementSession, AccessGrant):
        db.session.execute(
            text(
                f"UPDATE {kind.__tablename__} SET heartbeat_at = heartbeat_at - interval '1 hour' "  # noqa: S608
                "WHERE lease_token IS NOT NULL"
            )
        )
        db.session.commit()


def parts_of(actors: Actors, dice: random.Random) -> list[tuple[str, list[Deed]]]:
    """The actors of this world, with their deeds in order."""
    admin = [actors.toggle, actors.discard_or_restore, actors.configure, actors.stop]
    program = [actors.save, actors.save, actors.ask_for_session, actors.take_back]
    access = [actors.ask_for_access, actors.revoke, actors.read, actors.end_access]
    deeds: dict[str, tuple[list[Deed], int]] = {
        "worker": ([actors.work], 2),
        "admin": (admin, 4),
        "program": (program, 4),
        "traveller": ([actors.travel], 3),
        "reader": ([actors.ask_for_access, *access], 3),
        "clock": ([actors.tick, actors.pass_time], 2),
        "failing network": ([actors.lose_workers], 2),
        "second admin": ([actors.queue, *admin], 2),
    }
    names = ["worker", "worker", *dice.sample(sorted(deeds), dice.randint(2, 6))]
    return [
        (
            f"{name} {number}",
            [dice.choice(deeds[name][0]) for _ in range(dice.randint(1, deeds[name][1]))],
        )
        for number, name in enumerate(names, 1)
    ]
