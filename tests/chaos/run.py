"""A whole run: the installation, the storm, the calm after it, and what is known then."""

import itertools
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.fernet import Fernet
from sqlalchemy import select, text

from refine.cli.context import OF_INSTALLATION, in_context
from refine.cli.database import upgrade_database
from refine.embedded import database_url, redis_url
from refine.extensions import db
from refine.models import AccessGrant, MemoryTask, RefinementSession, User
from refine.models.runs import LIVE
from refine.rules.schedules import slots_after
from refine.settings import Settings
from tests.chaos import history, world
from tests.chaos.checker import slots_are_served
from tests.chaos.history import History
from tests.chaos.load import Load
from tests.chaos.plan import CLOCKS, MODEL, WEB, WORKERS, Fault, plan
from tests.chaos.processes import ALL, Fleet, running, wait_until
from tests.chaos.storm import Storm
from tests.chaos.watcher import Watcher
from tests.chaos.world import World

Tell = Callable[[str], None]

_ROOT = Path(__file__).parents[2]
_STARTING_SECONDS = 60
# Whatever was lost at the very end is ended by the clock within two minutes.
_CALMING_SECONDS = 240


@dataclass(frozen=True)
class Options:
    """How long, how much, and which faults; ``apart``: seconds between the clocks.

    ``faults`` are those of the seed unless given; ``names`` are the processes.
    """

    seconds: float
    seed: int
    agents: int = 40
    apart: float = 60.0
    pause_seconds: float = 0.6
    faults: Sequence[Fault] | None = None
    names: tuple[str, ...] = ALL

    @property
    def slot_minutes(self) -> int:
        """How far apart the accounts' slots are."""
        return 3 if self.seconds >= 300 else 1


@dataclass(frozen=True)
class Outcome:
    """What is known after a run, and its figures."""

    history: History
    figures: dict[str, int]


def run(options: Options, folder: Path, tell: Tell) -> Outcome:
    """Let a storm pass over an installation in this folder."""
    environ = _environ(folder, ports := (_free_port(), _free_port()))
    fleet = Fleet(folder, environ, ports, options.seed)
    fleet.ahead, fleet.names = dict(_ahead(options.apart)), options.names
    with running(fleet), _installed(environ):
        built = world.build(options.agents, f"*/{options.slot_minutes} * * * *")
        db.session.remove()
        for name in (MODEL, *options.names):
            fleet.start(name)
        _await_web(fleet)
        return _storm(options, fleet, built, tell)


def _ahead(apart: float) -> Iterator[tuple[str, float]]:
    """Half of the processes are early, half late; web is right."""
    for name, early in zip((*WORKERS, *CLOCKS), itertools.cycle((0.5, -0.5)), strict=False):
        yield name, early * apart


def _storm(options: Options, fleet: Fleet, built: World, tell: Tell) -> Outcome:
    base_url = f"http://127.0.0.1:{fleet.web_port}"
    load = Load(built, base_url, options.seed, options.pause_seconds)
    storm, watcher = Storm(fleet), Watcher(fleet.folder)
    began = time.time()
    watcher.start()
    load.start()

    def progress(passed: float) -> None:
        strikes = sum(storm.done.values())
        asked = f"{load.requests} requests ({load.unanswered} unanswered)"
        done = f"{watcher.ended} sessions ended, {watcher.live} live"
        tell(f"{passed:5.0f} s: {done}; {strikes} faults; {asked}")

    faults = options.faults or plan(options.seed, options.seconds)
    storm.blow(faults, options.seconds, progress)
    ended = time.time()
    storm.abate()
    load.stop()
    slots = _slots(options, began, ended)
    known_slots = {tenant.agent_id: slots for tenant in built.tenants}
    _calm_down(storm, known_slots, ended, tell)
    watcher.stop()
    fleet.end()
    known = _known(fleet, built, load, storm, watcher)
    known.slots = known_slots
    known.clocks_apart_seconds = options.apart
    return Outcome(known, _figures(known, storm, load))


def _slots(options: Options, began: float, ended: float) -> list[float]:
    """The slots that came while the storm lasted, for every process's clock."""
    first = datetime.fromtimestamp(began + options.apart, UTC)
    schedule = f"*/{options.slot_minutes} * * * *"
    slots = (slot.timestamp() for slot in slots_after(schedule, "UTC", first))
    return list(itertools.takewhile(lambda slot: slot < ended, slots))


# -- after the storm ------------------------------------------------------------------------------


def _calm_down(storm: Storm, slots: dict[int, list[float]], ended: float, tell: Tell) -> None:
    """Wait until what was asked for in the storm has come to its end; then nothing more begins."""
    tell("the storm is over")
    db.engine.dispose()

    def is_calm() -> bool:
        storm.mend()
        return not _left(ended) and not _are_due(slots)

    def is_over() -> bool:
        storm.mend()
        return not _left()

    wait_until(is_calm, _CALMING_SECONDS)
    for admin in db.session.scalars(select(User)).all():
        admin.account.configure(user=admin, paused=True)
    db.session.commit()
    wait_until(is_over, _CALMING_SECONDS)
    db.session.remove()


def _left(before: float | None = None) -> int:
    """How much of what was asked for (before then) has not ended, and waits for no retry."""
    sessions = RefinementSession.is_live
    if before is not None:
        sessions &= RefinementSession.created_at < datetime.fromtimestamp(before, UTC)
    tasks = MemoryTask.status.in_(LIVE) & (MemoryTask.attempt == 1)
    grants = AccessGrant.status == "requested"
    left = sum(
        len(db.session.scalars(select(kind.id).where(condition)).all())
        for kind, condition in (
            (RefinementSession, sessions),
            (MemoryTask, tasks),
            (AccessGrant, grants),
        )
    )
    db.session.commit()
    return left


def _are_due(slots: dict[int, list[float]]) -> bool:
    """Whether an agent still waits for the session of a slot."""
    so_far = History(sessions=history.read_sessions(), slots=slots)
    db.session.rollback()
    return any(slots_are_served(so_far))


def _known(fleet: Fleet, built: World, load: Load, storm: Storm, watcher: Watcher) -> History:
    known = History(
        sessions=history.read_sessions(),
        records=history.read_records(),
        memories=history.read_memories(),
        waited=history.read_waited(),
        asked=history.read_log(fleet.model_log),
        promises=load.promises,
        flags=load.flags,
        saved_once=load.saved_once,
        faults=load.faults,
        locked={id_: text for tenant in built.tenants for id_, text in tenant.locked.items()},
        over_budget={tenant.agent_id for tenant in built.tenants if tenant.is_over_budget},
        troubles=storm.troubles,
        signs=watcher.signs,
        revived=watcher.revived,
        crowded=watcher.crowded,
        audit_exit_code=_verify(fleet),
    )
    db.session.rollback()
    return known


def _verify(fleet: Fleet) -> int:
    with fleet.log_of("verify").open("wb") as output:
        return subprocess.run(
            [sys.executable, "-m", "refine", "audit", "verify"],
            cwd=_ROOT,
            env={**os.environ, **fleet.environ, "PYTHONPATH": str(_ROOT)},
            stdout=output,
            stderr=subprocess.STDOUT,
        ).returncode


def _figures(known: History, storm: Storm, load: Load) -> dict[str, int]:
    def struck(*kinds: str) -> int:
        return sum(n for name, n in storm.done.items() if name.startswith(kinds))

    return {
        "sessions": len(known.sessions),
        "kills": struck("kill"),
        "terminations": struck("terminate"),
        "freezes": struck("freeze"),
        "stops of PostgreSQL": struck("stop"),
        "flushes": struck("flush"),
        "moods of the model": struck("slow", "lying", "flooding", "failing"),
        "processes that ended by themselves": struck("ended"),
        "seconds between the clocks": _seconds_apart(known),
        "slots": sum(map(len, known.slots.values())),
        "promises": len(known.promises),
        "requests": load.requests,
        "model calls": len(known.asked),
    }


def _seconds_apart(known: History) -> int:
    """How far apart the clocks of those were who wrote records."""
    early = [record.early for record in known.records] or [0.0]
    return round(max(early) - min(early))


# -- the installation -----------------------------------------------------------------------------


def _environ(folder: Path, ports: tuple[int, int]) -> dict[str, str]:
    web_port, _ = ports
    return {
        "DATABASE_URL": database_url(folder),
        "REDIS_URL": redis_url(folder),
        "REFINE_DATA_DIR": str(folder),
        "SECRET_KEY": secrets.token_urlsafe(),
        "REFINE_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "OPENROUTER_API_KEY": "none is needed",
        "REFINE_DIALECT": "openrouter",  # in which the model is told of which run it is asked
        "REFINE_MAX_SECONDS": "120",
        "REFINE_ROLLING_FLOOR": "0.2",
        "REFINE_API_READS_PER_MINUTE": "1000000",
        "REFINE_API_WRITES_PER_MINUTE": "1000000",
        "PUBLIC_URL": f"http://127.0.0.1:{web_port}",
    }


@contextmanager
def _installed(environ: dict[str, str]) -> Iterator[None]:
    """With tables, and an application's context.

    The disk need not be waited for: processes die here, and the machine does not.
    """
    kept = {name: text for name, text in os.environ.items() if name not in OF_INSTALLATION}
    with in_context(Settings.from_environ({**kept, **environ})):
        with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ALTER SYSTEM SET fsync = off"))
            connection.execute(text("SELECT pg_reload_conf()"))
        upgrade_database()
        db.session.rollback()
        yield


def _await_web(fleet: Fleet) -> None:
    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", fleet.web_port)) == 0

    if not wait_until(answers, _STARTING_SECONDS):
        raise TimeoutError(f"web does not answer; see {fleet.log_of(WEB)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
