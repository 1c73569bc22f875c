"""The baton: of all threads that play actors, one runs at a time, as far as its next statement.

Each actor stops before each statement, commit and rollback. A seed decides who goes on. An actor
that waits for another one's lock keeps waiting in PostgreSQL while others go on, and is noticed by
asking PostgreSQL who blocks it, so no time limit decides anything: the same seed gives the same
trace.
"""

import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import psycopg
from sqlalchemy import Connection, Engine, event

# How long to wait for an actor's next stop before PostgreSQL is asked whether it is blocked.
_PATIENCE_SECONDS = 0.002
# A run in which nothing moves for so long is a fault of its own.
_STUCK_SECONDS = 120.0
_HEART = "refine-heartbeat"
# The share of steps in which a heart beats, if there is one.
_BEATS = 0.03

_ABOUT = re.compile(r"\b(?:FROM|UPDATE|INTO)\s+(\w+)", re.IGNORECASE)


class Stuck(Exception):
    """Nothing moves, and no actor waits for a lock of one that could continue."""


@dataclass(eq=False)
class Actor:
    """One thread; ``step`` is what it does once it is given the baton."""

    name: str
    state: Literal["running", "ready", "blocked", "done"] = "running"
    step: str = ""
    pid: int | None = None
    is_heart: bool = False
    is_frozen: bool = False
    thread: threading.Thread | None = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class Baton:
    """Runs actors to their end, one step of one actor at a time."""

    def __init__(self, engine: Engine, seed: int, monitor: psycopg.Connection[Any]) -> None:
        self._random = random.Random(f"{seed} order")  # noqa: S311
        # from one that changes hands at each statement to one that is rarely handed on
        self._stickiness = self._random.choice([0.0, 0.5, 0.9, 0.97])
        self._engine = engine
        self._monitor = monitor
        self._actors: list[Actor] = []
        self._moved = threading.Condition()
        self._here = threading.local()
        self._last: Actor | None = None
        self.trace: list[str] = []
        # who waits for a lock, in the order in which they began to
        self._blocked: list[Actor] = []
        self.deadlocks: list[str] = []
        self.waits = 0

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Stop every actor at each statement meanwhile."""
        hooks: list[tuple[str, Callable[..., None]]] = [
            ("before_cursor_execute", self._before_statement),
            ("commit", lambda connection: self._stop(connection, "COMMIT")),
            ("rollback", lambda connection: self._stop(connection, "ROLLBACK")),
        ]
        for name, hook in hooks:
            event.listen(self._engine, name, hook)
        try:
            yield
        finally:
            for name, hook in hooks:
                event.remove(self._engine, name, hook)

    def run(self, parts: Sequence[tuple[str, Callable[[], None]]]) -> None:
        """Play all parts, each in a thread of its own, to the end."""
        try:
            self._run(parts)
        except Stuck:  # nobody would end what they have open
            pids = [each.pid for each in self._actors]
            ended = "SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid"
            self._monitor.execute(ended, [pids])
            raise
        finally:
            for each in self._blocked:
                os.kill(each.pid or 0, signal.SIGCONT)

    def _run(self, parts: Sequence[tuple[str, Callable[[], None]]]) -> None:
        for name, play in parts:
            actor = Actor(name)
            actor.thread = threading.Thread(
                target=self._play, args=(actor, play), name=name, daemon=True
            )
            self._actors.append(actor)
            actor.thread.start()
            self._settle()
        while any(each.state != "done" and not each.is_heart for each in self._actors):
            if self._blocked and not any(map(_can_go_on, self._actors)):
                self._break_deadlock()
            else:
                self._step(self._next())
        self._end_hearts()

    def note(self, words: str) -> None:
        """Add to the trace what the present actor does; never content."""
        actor = getattr(self._here, "actor", None)
        self.trace.append(f"{actor.name if actor else 'all'}: {words}")

    @property
    def now(self) -> str:
        """The actor with the baton."""
        return self._last.name if self._last is not None else ""

    def hand_on(self) -> None:
        """Let anybody take the next step: this actor has nothing to do."""
        self._last = None

    @contextmanager
    def hearts_frozen(self) -> Iterator[None]:
        """Let no heart beat meanwhile: processes are stopped, or cut off."""
        frozen = [each for each in self._actors if each.is_heart]
        for heart in frozen:
            heart.is_frozen = True
        try:
            yield
        finally:
            for heart in frozen:
                heart.is_frozen = False

    # -- in the actors' threads -------------------------------------------------------------------

    def _play(self, actor: Actor, play: Callable[[], None]) -> None:
        self._here.actor = actor
        self._stop(None, "begins")
        try:
            play()
        finally:
            with self._moved:
                actor.state = "done"
                self._moved.notify_all()

    def _before_statement(
        self, connection: Connection, _cursor: Any, statement: str, *_: Any
    ) -> None:
        about = _ABOUT.search(statement)
        verb = statement.split(None, 1)[0].upper()
        self._stop(connection, f"{verb} {about.group(1)}" if about else verb)

    def _stop(self, connection: Connection | None, step: str) -> None:
        """Wait for the baton, if this thread is an actor's."""
        actor = self._mine()
        if actor is None:
            return
        with self._moved:
            if connection is not None:
                driver: Any = connection.connection.dbapi_connection
                self._note_connection(actor, driver.info.backend_pid)
            actor.step, actor.state = step, "ready"
            self._moved.notify_all()
        actor.go.acquire()

    def _note_connection(self, actor: Actor, pid: int) -> None:
        """The pool may have given it a connection that another actor had before."""
        for other in self._actors:
            if other.pid == pid:
                other.pid = None
        actor.pid = pid

    def _mine(self) -> Actor | None:
        actor: Actor | None = getattr(self._here, "actor", None)
        thread = threading.current_thread()
        if actor is None and thread.name == _HEART:
            number = sum(each.is_heart for each in self._actors) + 1
            actor = self._here.actor = Actor(f"heart {number}", is_heart=True, thread=thread)
            with self._moved:
                self._actors.append(actor)
        return actor

    # -- in the thread that hands the baton on ----------------------------------------------------

    def _next(self) -> Actor:
        ready = [each for each in self._actors if each.state == "ready" and not each.is_frozen]
        hearts = [each for each in ready if each.is_heart]
        if hearts and self._random.random() < _BEATS:
            return self._random.choice(hearts)
        others = [each for each in ready if not each.is_heart]
        if not others:
            raise Stuck(self._where_all_are())
        if self._last in others and self._random.random() < self._stickiness:
            return self._last
        return self._random.choice(others)

    def _step(self, actor: Actor) -> None:
        self._last = actor
        self.trace.append(f"{actor.name}: {actor.step}")
        actor.state = "running"
        actor.go.release()
        self._settle()

    def _settle(self) -> None:
        """Wait until each actor is ready, done, or blocked; those whose lock is free go on in turn.

        PostgreSQL lets several who wait for one row race for it. So the server processes of those
        who wait are stopped, and go on one by one, in the order in which they began to wait.
        """
        self._await_stops()
        while freed := self._first_freed():
            freed.state = "running"
            self._blocked.remove(freed)
            os.kill(freed.pid or 0, signal.SIGCONT)
            self._await_stops()

    def _await_stops(self) -> None:
        """Wait until nobody runs."""
        patience, since = _PATIENCE_SECONDS, time.monotonic()
        while True:
            with self._moved:
                if self._moved.wait_for(self._is_nobody_running, timeout=patience):
                    return
                running = [each for each in self._actors if each.state == "running"]
                for each in running:
                    if each.thread is not None and not each.thread.is_alive():
                        each.state = "done"
            for each in running:
                self._note_if_blocked(each)
            if time.monotonic() - since > _STUCK_SECONDS:
                raise Stuck(self._where_all_are())
            patience = min(patience * 2, 0.1)

    def _note_if_blocked(self, actor: Actor) -> None:
        """Note that it waits for a lock of somebody who does not move, if that is so."""
        blockers = self._blockers_of([actor]).get(actor.pid, [])
        with self._moved:
            still = {each.pid for each in self._actors if each.state in ("ready", "blocked")}
            if actor.state != "running" or not still.intersection(blockers):
                return
            actor.state = "blocked"
        os.kill(actor.pid or 0, signal.SIGSTOP)
        self._blocked.append(actor)
        self.waits += 1
        self.trace.append(f"{actor.name}: waits")

    def _first_freed(self) -> Actor | None:
        """Return the actor that waited longest for a lock that is now free."""
        blockers = self._blockers_of(self._blocked)
        return next((each for each in self._blocked if not blockers.get(each.pid)), None)

    def _blockers_of(self, actors: Sequence[Actor]) -> dict[int | None, list[int]]:
        pids = [each.pid for each in actors if each.pid is not None]
        if not pids:
            return {}
        asked = "SELECT pid, pg_blocking_pids(pid) FROM unnest(%s::int[]) AS pid"
        return dict(self._monitor.execute(asked, [pids]).fetchall())

    def _break_deadlock(self) -> None:
        """Cancel the last of the statements that wait for each other, as PostgreSQL does.

        One that only waits for those would be tried again for ever: it frees none of them.
        """
        self.deadlocks.append(self._where_all_are())
        blockers = self._blockers_of(self._blocked)
        cycle = [each for each in self._blocked if _waits_for_itself(each.pid, blockers)]
        if not cycle:
            raise Stuck(self._where_all_are())
        last = cycle[-1]
        self._blocked.remove(last)
        last.state = "running"
        os.kill(last.pid or 0, signal.SIGCONT)
        self._monitor.execute("SELECT pg_cancel_backend(%s)", [last.pid])
        self._settle()

    def _is_nobody_running(self) -> bool:
        is_anybody = any(each.state == "running" for each in self._actors)
        return not is_anybody and self._are_hearts_known()

    def _where_all_are(self) -> str:
        return "; ".join(f"{each.name} {each.state} at {each.step}" for each in self._actors)

    def _are_hearts_known(self) -> bool:
        known = {each.thread for each in self._actors}
        return all(thread in known for thread in threading.enumerate() if thread.name == _HEART)

    def _end_hearts(self) -> None:
        for heart in [each for each in self._actors if each.is_heart]:
            while heart.state == "ready":
                self._step(heart)


def _can_go_on(actor: Actor) -> bool:
    return actor.state == "ready" and not actor.is_heart


def _waits_for_itself(pid: int | None, blockers: dict[int | None, list[int]]) -> bool:
    """Tell whether it waits for somebody who waits, perhaps for others who wait, for it."""
    seen, following = set[int](), blockers.get(pid, [])
    while following:
        seen.update(following)
        following = [
            each for one in following for each in blockers.get(one, []) if each not in seen
        ]
    return pid in seen
