"""One seed: a world, its actors, the order in which they move, and what must hold afterwards."""

import math
import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

import psycopg
import pytest
from flask import Flask
from sqlalchemy import func, select

from refine import clock
from refine.extensions import db
from refine.jobs import tick
from refine.jobs.queue import redis_connection
from refine.models import AccessGrant, Agent, RefinementSession, chain_verification, schema_version
from refine.running import run_worker
from refine.settings import Settings
from tests import editing, factories
from tests.api.conftest import program_of
from tests.conftest import emptied
from tests.faults.invariants import Before, breaches
from tests.interleaving.actors import Actors, Deed, Fault, forget_heartbeats, parts_of
from tests.interleaving.baton import Baton, Stuck
from tests.interleaving.histories import history_breaches
from tests.interleaving.model import PlayedModel

# So many rounds of the clock and a worker end whatever is left; each begins with lost workers.
_ROUNDS = 12
_ID_SEQUENCES = ("agents", "agent_memories", "audit_logs", "accounts", "users")


@dataclass
class Played:
    """The outcome of a seed: breaches, the order of deeds, and figures."""

    breaches: list[str]
    trace: list[str] = field(repr=False)
    waits: int
    sessions: int


class Stage:
    """Where seeds are played, one after another: an application, its database, and a model."""

    def __init__(self, app: Flask, environ: dict[str, str]) -> None:
        self._app = app
        self._dice: Callable[[], random.Random] = random.Random
        self._model = PlayedModel(lambda: self._dice())
        known = Settings.from_environ({**environ, "OPENROUTER_BASE_URL": self._model.base_url})
        self._settings = replace(known, log_level="CRITICAL")
        self._open = ExitStack()

    def __enter__(self) -> "Stage":
        self._open.enter_context(self._model)
        self._open.enter_context(_nothing_is_timed())
        with self._app.app_context():
            schema_version.require_compatible()
            address = db.engine.url.set(drivername="postgresql")
        said = address.render_as_string(hide_password=False)
        self._monitor = self._open.enter_context(psycopg.connect(said, autocommit=True))
        # the baton finds deadlocks itself; a server process that looks for one must not be stopped
        self._configure("SET deadlock_timeout = '5min'")
        self._open.callback(self._configure, "RESET deadlock_timeout")
        return self

    def _configure(self, setting: str) -> None:
        """Change a setting of the database, for all connections made from now on."""
        self._monitor.execute(f'ALTER DATABASE "{self._monitor.info.dbname}" {setting}')
        with self._app.app_context():
            db.engine.dispose()

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def play(self, seed: int) -> Played:
        """Play one seed in an empty database, and empty it afterwards."""
        before = self._app.extensions["refine.settings"]
        self._app.extensions["refine.settings"] = self._settings
        try:
            with emptied(self._app), _MovableClock() as time:
                return self._played(seed, time)
        finally:
            self._app.extensions["refine.settings"] = before

    def _played(self, seed: int, time: "_MovableClock") -> Played:
        with redis_connection() as connection:
            connection.flushall()
        baton = Baton(db.engine, seed, self._monitor)
        dice_of = _Dice(seed)
        self._dice = lambda: dice_of[f"model of {baton.now}"]
        world = _World(dice_of["world"])
        programs = {agent.id: program_of(self._app, agent) for agent in world.agents}
        befores = [Before.of(agent) for agent in world.agents]
        db.session.rollback()
        actors = Actors(
            self._app, self._settings, baton, programs, world.user_ids, world.texts, time.pass_by
        )
        found: list[str] = []
        parts = [
            (name, partial(_play, found, name, deeds, dice_of[name]))
            for name, deeds in parts_of(actors, dice_of["parts"])
        ]
        try:
            with baton.stepping():
                baton.run(parts)
        except Stuck as stuck:
            # threads of it still wait: nothing can be played in this process any more
            return Played([f"stuck: {stuck}"], baton.trace, baton.waits, 0)
        found += [f"deadlock: {each}" for each in baton.deadlocks]
        found += _brought_to_rest(actors, dice_of["rest"])
        for before in befores:
            found += breaches(before)
            found += history_breaches(before, actors.told)
        sessions = db.session.scalar(select(func.count()).select_from(RefinementSession)) or 0
        return Played(found, baton.trace, baton.waits, sessions)


class _Dice(dict[str, random.Random]):
    """For each name, dice of its own: whose turn it is does not change what others throw."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def __missing__(self, name: str) -> random.Random:
        self[name] = random.Random(f"{self._seed} {name}")  # noqa: S311
        return self[name]


class _World:
    """One or two agents, some of whose memories are copies or constitutional."""

    def __init__(self, dice: random.Random) -> None:
        account = factories.account()
        self.user_ids = [factories.user(account=account).id for _ in range(2)]
        self.agents = [self._agent(dice, account) for _ in range(dice.choice([1, 1, 2]))]
        self.texts = [each.content for agent in self.agents for each in _kept(agent)][:6]
        db.session.commit()

    def _agent(self, dice: random.Random, account: object) -> Agent:
        agent = factories.agent(account=account)
        memories = factories.ledger(agent, *[25] * dice.randint(6, 10))
        for _ in range(dice.randint(0, 2)):
            factories.memory(agent, dice.choice(memories).content)
        memories[0].set_constitutional(True)
        db.session.commit()
        if dice.random() < 0.5:
            _earlier_session(agent)
        if dice.random() < 0.7:
            RefinementSession.queue(agent, "manual")
            db.session.commit()
        return agent


def _kept(agent: Agent) -> Sequence[object]:
    return db.session.scalars(agent.ledger.core()).all()


def _earlier_session(agent: Agent) -> None:
    session = RefinementSession.start(agent)
    ids = [memory.id for memory in _kept(agent) if not memory.constitutional]
    editing.delete(session, ids[0])
    editing.update(session, ids[1], factories.text_of(20))
    editing.protect(session, ids[2])
    editing.complete(session, "Done.")
    db.session.commit()


def _play(found: list[str], name: str, deeds: Sequence[Deed], dice: random.Random) -> None:
    """Do these deeds in order; whatever they raise is a breach."""
    for deed in deeds:
        try:
            deed(dice)
        except Fault as fault:
            found.append(f"{name}: {fault}")
        except Exception as fault:  # nothing may be raised, whatever it is
            found.append(f"{name}: {_described(fault)}")


def _described(fault: BaseException) -> str:
    """The exception and its place, without its message, which may be content."""
    frames = traceback.extract_tb(fault.__traceback__)
    ours = [each for each in frames if "/refine/" in each.filename][-2:]
    where = " < ".join(f"{each.filename.rsplit('/', 1)[-1]}:{each.lineno}" for each in ours)
    state = getattr(getattr(fault, "orig", None), "sqlstate", None)
    return f"{type(fault).__name__} {state or ''} at {where}"


def _brought_to_rest(actors: Actors, dice: random.Random) -> list[str]:
    """Let the clock and a worker end all runs, undisturbed."""
    found: list[str] = []
    for _ in range(_ROUNDS):
        db.session.rollback()
        forget_heartbeats()
        _play(found, "last ticks", [actors.tick, actors.work], dice)
        if not _live():
            return found
    return [*found, f"{_live()} runs never came to an end"]


def _live() -> int:
    db.session.rollback()
    kinds = (RefinementSession, AccessGrant)
    return sum(
        db.session.scalar(select(func.count()).select_from(kind).where(kind.is_live)) or 0
        for kind in kinds
    )


class _MovableClock:
    """The application's clock, which can be put forward."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)
        self._open = ExitStack()

    def __enter__(self) -> "_MovableClock":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def pass_by(self, time: timedelta) -> None:
        """Put it forward."""
        self._ahead += time
        self._open.enter_context(clock.ahead(self._ahead))


@contextmanager
def _nothing_is_timed() -> Iterator[None]:
    """Let hearts beat whenever they are given the baton, and nothing else depend on time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_worker, "INTERVAL_SECONDS", 0.0)
        patch.setattr(run_worker, "RETRY_SECONDS", 0.0)
        # a step of a tick may take as long as others need meanwhile
        patch.setattr(tick, "LONGEST_STEP_SECONDS", math.inf)
        # verification accepts what is dated before the clock was put forward
        patch.setattr(chain_verification, "MAX_STEP_BACK", timedelta.max)
        yield
