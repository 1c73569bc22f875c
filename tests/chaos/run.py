"""A whole run: the installation, the storm, the calm after it, and what did not hold then."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from flask import Flask
from sqlalchemy import func, select, true

from refine.extensions import db
from refine.models import Account, Agent, AgentMemory, ApiToken, MemoryTask, RefinementSession
from refine.models.runs.run import Run
from tests import factories
from tests.browser.serving import free_port
from tests.chaos.fleet import PROCESSES, WEB, Fleet, servers_of
from tests.chaos.load import Load, Promise, Tenant
from tests.chaos.storm import Fault, Storm
from tests.commands import refine
from tests.conftest import environ_of, migrated
from tests.faults.invariants import Before, breaches
from tests.interleaving.model import PlayedModel

# A machine that is busy with others is no failure.
_STARTING_SECONDS = 300
# Whatever was lost at the very end is ended by the clock within two minutes.
_CALMING_SECONDS = 240
_STORED = {
    "memory": AgentMemory,
    "session": RefinementSession,
    "undo": RefinementSession,
    "conversation": MemoryTask,
}
ENVIRON = {
    "REFINE_CONCURRENCY": "4",
    "REFINE_MAX_SECONDS": "120",
    "REFINE_ROLLING_FLOOR": "0.2",
    "REFINE_API_READS_PER_MINUTE": "1000000",
    "REFINE_API_WRITES_PER_MINUTE": "1000000",
}


@dataclass(frozen=True)
class Options:
    """How long, how much, and which faults; ``names`` are the processes."""

    seconds: float
    seed: int
    agents: int
    faults: Sequence[Fault]
    names: tuple[str, ...] = PROCESSES


@dataclass(frozen=True)
class Outcome:
    """What did not hold after a run, and its figures."""

    breaches: list[str]
    figures: dict[str, int]


def run(options: Options, folder: Path) -> Outcome:
    """Let a storm pass over an installation in this folder."""
    dice, port = Random(options.seed), free_port()
    with PlayedModel(lambda: dice) as model:
        url = f"http://127.0.0.1:{port}"
        own = {"OPENROUTER_BASE_URL": model.base_url, "PUBLIC_URL": url}
        environ = {**environ_of(folder), **ENVIRON, **own}
        fleet = Fleet(folder, environ, port, options.names)
        with servers_of(fleet), migrated(environ) as app:
            tenants, email = build(options.agents)
            befores = [Before.of(agent) for agent in db.session.scalars(select(Agent))]
            db.session.remove()
            for name in options.names:
                fleet.start(name)
            await_web(fleet, port)
            load, storm = Load(tenants, email, url, options.seed), Storm(fleet, model)
            load.start()
            storm.blow(options.faults, options.seconds)
            storm.abate()
            load.stop()
            calm_down(storm)
            fleet.end()
            found = [*load.faults, *broken(app, befores, load), *unverified(environ)]
            return Outcome(found, _figures(storm, load))


def build(agents: int) -> tuple[list[Tenant], str]:
    """Agents of an account whose slot comes each minute; every third is over its budget."""
    account = factories.account(schedule="* * * * *")
    admin = factories.user(account=account)
    tenants = [_tenant(account, is_over=number % 3 == 0) for number in range(agents)]
    db.session.commit()
    return tenants, admin.email


def _tenant(account: Account, *, is_over: bool) -> Tenant:
    budget = 100 if is_over else 100_000
    agent = factories.agent(account=account, core_token_budget=budget, refinement_threshold=0.5)
    free = factories.ledger(agent, *[20] * 14)
    factories.memory(agent, free[0].content)  # an exact duplicate
    factories.ledger(agent, 20, 20, constitutional=True)
    _, token = ApiToken.mint(account=account, agent=agent)
    return Tenant(agent.id, token, free[-1].id)


def calm_down(storm: Storm) -> None:
    """Wait until conversations were read; then pause the account, and wait for its sessions."""

    def is_calm(*kinds: type[Run]) -> bool:
        storm.mend()
        return not any(map(_live, kinds))

    db.engine.dispose()
    wait_until(lambda: is_calm(MemoryTask), _CALMING_SECONDS)
    for account in db.session.scalars(select(Account)):
        account.paused = True
    db.session.commit()
    wait_until(lambda: is_calm(MemoryTask, RefinementSession), _CALMING_SECONDS)
    db.session.remove()


def _live(kind: type[Run]) -> list[str]:
    """The runs that have not ended, and wait for no retry."""
    first = kind.attempt == 1 if kind is MemoryTask else true()
    left = db.session.scalars(select(kind).where(kind.is_live, first))
    found = [f"{kind.__name__} {run.id} is {run.status}" for run in left]
    db.session.rollback()
    return found


# -- what holds then ------------------------------------------------------------------------------


def broken(app: Flask, befores: Sequence[Before], load: Load) -> Iterator[str]:
    """Every agent is as its records say, and every promise was kept, once."""
    for before in befores:
        yield from (f"agent {before.agent_id}: {each}" for each in breaches(before))
    yield from (*_live(MemoryTask), *_live(RefinementSession))
    for promise in load.promises:
        if (problem := _problem_of(promise)) is not None:
            yield f"{promise}: {problem}"
    contents = [(each.agent_id, each.content) for each in db.session.scalars(select(AgentMemory))]
    for saved in load.saved:
        if contents.count(saved) > 1:
            yield f"agent {saved[0]}: one request saved {contents.count(saved)} memories"
    db.session.rollback()


def _problem_of(promise: Promise) -> str | None:
    kind = _STORED[promise.kind]
    id_ = int(promise.id) if kind is AgentMemory else promise.id
    stored = db.session.scalars(select(kind).where(kind.id == id_)).one_or_none()
    if stored is None:
        return "it is gone"
    if promise.kind == "undo" and stored.undone_at is None:
        return "it is not undone"
    return None


def unverified(environ: dict[str, str]) -> Iterator[str]:
    done = refine("audit", "verify", environ=environ, seconds=120)
    if done.returncode:
        yield f"audit verify: {done.stdout}{done.stderr}"


def _figures(storm: Storm, load: Load) -> dict[str, int]:
    sessions = db.session.scalar(select(func.count()).select_from(RefinementSession)) or 0
    db.session.rollback()
    asked = {"requests": load.requests, "promises": len(load.promises)}
    return {"sessions": sessions, **asked, **storm.done}


# -- help -----------------------------------------------------------------------------------------


def await_web(fleet: Fleet, port: int) -> None:
    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    if not wait_until(answers, _STARTING_SECONDS):
        raise TimeoutError(f"web does not answer; see {fleet.log_of(WEB)}")


def wait_until(is_so: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.5)
    return True
