"""A game day: a deploy each minute while sessions run and slow clients hold the web's connections.

``make gameday MINUTES=60``. Its last line is counted from what others saw, not from what the code
says of itself: the model's own log, the audit log, and the receiver of webhooks.
"""

import json
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise, takewhile
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sqlalchemy import func, make_url, select

from refine.extensions import db
from refine.models import Account, Agent, AuditLog, Endpoint, RefinementSession
from refine.models.outbox import Delivery
from refine.models.runs.session.session import END_ACTION, MUTATIONS
from tests.browser.serving import free_port
from tests.chaos.crowd import Crowd
from tests.chaos.fleet import CLOCK, VALKEY, WEB, WORKERS, Fleet, servers_of
from tests.chaos.load import Load
from tests.chaos.pooler import pooled
from tests.chaos.redis_over_tls import redis_over_tls
from tests.chaos.run import (
    ENVIRON,
    await_web,
    broken,
    build,
    calm_down,
    unverified,
    wait_until,
)
from tests.chaos.storm import Storm
from tests.commands import refine
from tests.conftest import environ_of, migrated
from tests.faults.invariants import Before
from tests.interleaving.model import PlayedModel
from tests.receiver import Receiver

AGENTS, SLOW_CLIENTS, DEPLOY_EVERY_SECONDS = 30, 500, 60.0
# How long a model takes for an answer.
_PACE_SECONDS = (2.0, 8.0)
_STOPPING_SECONDS = 30
_DELIVERING_SECONDS = 300
# In OpenRouter's dialect each request names its session.
_ENVIRON = {
    **ENVIRON,
    "REFINE_CONCURRENCY": "10",
    "REFINE_WEBHOOKS_PRIVATE": "1",
    "REFINE_DIALECT": "openrouter",
}
_TOLD = {"updated": "update", "deleted": "delete", "consolidated": "consolidate"}

Edits = Counter[tuple[str, int]]


class HumanModel(PlayedModel):
    """Takes its time; keeps what each session's requests said, and which edits it called for."""

    def __init__(self, dice: Random) -> None:
        super().__init__(lambda: dice)
        self.requests_of: dict[str, list[list[dict[str, Any]]]] = defaultdict(list)
        self.called: Edits = Counter()
        self.instead = self._late

    def _late(self, usual: Any) -> Any:
        time.sleep(self.dice().uniform(*_PACE_SECONDS))
        return usual

    def _play(self, asked: dict[str, Any]) -> None:
        tools = [each["function"]["name"] for each in asked.get("tools", ())]
        if tools == [self.tool]:
            self.requests_of[asked["session_id"]].append(asked["messages"])
        super()._play(asked)

    def calls(self, *arguments: Any, **fields: Any) -> Any:
        for each in arguments:
            ids = {each["id"]} if "id" in each else set(each.get("ids", ()))
            self.called.update((each["action"], id_) for id_ in ids)
        return super().calls(*arguments, **fields)

    @property
    def told(self) -> Edits:
        """The edits that its sessions' last requests say were made."""
        said = [each for requests in self.requests_of.values() for each in requests[-1]]
        results = [json.loads(each["content"]) for each in said if each["role"] == "tool"]
        return Counter(
            (_TOLD[each["type"]], each["id"]) for each in results if each["type"] in _TOLD
        )

    @property
    def forgotten(self) -> list[str]:
        """The requests that did not begin with the one before of their session, word for word.

        Whose worker stopped before the consent was noted is asked again, about what is kept then.
        """
        return [
            f"{session_id}: {len(earlier)} messages, {_alike(earlier, later)} of them repeated"
            for session_id, requests in self.requests_of.items()
            for earlier, later in pairwise(requests)
            if _alike(earlier, later) < len(earlier) and (_is_begun(earlier) or _is_begun(later))
        ]


def _alike(earlier: list[dict[str, Any]], later: list[dict[str, Any]]) -> int:
    pairs = zip(earlier, later, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _is_begun(messages: list[dict[str, Any]]) -> bool:
    return any(each["role"] == "assistant" for each in messages)


class Outcome(NamedTuple):
    """The figures of the last line; what else did not hold, and how much went on."""

    ended_other_than_once: int
    edits_lost: int
    messages_missing: int
    superfluous: int
    breaches: list[str]
    figures: dict[str, int]

    def __str__(self) -> str:
        return (
            f"sessions that ended other than once: {self.ended_other_than_once}, "
            f"edits lost: {self.edits_lost}, messages missing: {self.messages_missing}, "
            f"superfluous: {self.superfluous}"
        )


class Releases:
    """The processes of one release after the other; of two, the newer ones start first."""

    def __init__(self, fleet: Fleet) -> None:
        self.number = 0
        self.stuck: list[str] = []
        self._fleet = fleet
        self._names: list[str] = []

    def deploy(self) -> str:
        """Start the next release, stop the one before, and return the address of its web."""
        self.number += 1
        fleet, old = self._fleet, self._names
        fleet.web_port = free_port()
        self._names = [f"{name}.{self.number}" for name in (WEB, *WORKERS, CLOCK)]
        for name in self._names:
            fleet.start(name)
        await_web(fleet, fleet.web_port)
        for name in old:
            fleet.send(name, signal.SIGTERM)
        for name in old:
            if not wait_until(lambda name=name: not fleet.is_running(name), _STOPPING_SECONDS):
                self.stuck.append(f"{name} did not stop")
                fleet.kill(name)
        return f"http://127.0.0.1:{fleet.web_port}"


def play(seconds: float, seed: int, folder: Path) -> Outcome:
    """Let a day pass in this folder."""
    with ExitStack() as stack:
        model = stack.enter_context(HumanModel(Random(seed)))
        receiver = stack.enter_context(Receiver())
        own = {"OPENROUTER_BASE_URL": model.base_url, "PUBLIC_URL": "http://127.0.0.1"}
        redis = stack.enter_context(redis_over_tls(folder))
        environ = {**environ_of(folder), **_ENVIRON, **own, **redis}
        fleet = Fleet(folder, environ, 0, ())
        del fleet.servers[VALKEY]  # that Redis has its place
        stack.enter_context(servers_of(fleet))
        app = stack.enter_context(migrated(environ))
        fleet.environ = {**environ, **stack.enter_context(pooled(folder))}
        tenants, email = build(AGENTS)
        account = db.session.scalars(select(Account).join(Agent)).first()
        Endpoint.add(account, receiver.url, None, by={"by": "tests"})
        db.session.commit()
        befores = [Before.of(agent) for agent in db.session.scalars(select(Agent))]
        db.session.remove()
        releases = Releases(fleet)
        load = Load(tenants, email, releases.deploy(), seed)
        crowd = stack.enter_context(Crowd(fleet.web_port, SLOW_CLIENTS))
        load.start()
        _pass(seconds / 2, releases, load, crowd)
        unrestored = list(_unrestored(environ, folder))
        _pass(seconds / 2, releases, load, crowd)
        load.stop()
        calm_down(Storm(fleet, model))
        _deliver(environ)
        fleet.end()
        found = [*load.faults, *releases.stuck, *unrestored]
        found += [*broken(app, befores, load), *unverified(environ)]
        return _counted(model, receiver, found, {"requests": load.requests})


def _pass(seconds: float, releases: Releases, load: Load, crowd: Crowd) -> None:
    """Deploy each minute."""
    began = time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        time.sleep(min(left, DEPLOY_EVERY_SECONDS))
        load.base_url = releases.deploy()
        crowd.move_to(releases._fleet.web_port)


def _unrestored(environ: dict[str, str], folder: Path) -> Iterator[str]:
    """Restore a backup of this moment into a database of its own, which verifies it."""
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("CREATE DATABASE halfway TEMPLATE template0")
    url = make_url(environ["DATABASE_URL"]).set(database="halfway")
    halfway = {**environ, "DATABASE_URL": url.render_as_string(hide_password=False)}
    file = str(folder / "halfway.zip")
    for command, own in (("backup", environ), ("restore", halfway)):
        done = refine(command, file, environ=own, seconds=240)
        if done.returncode:
            yield f"{command}: {done.stdout}{done.stderr}"


def _deliver(environ: dict[str, str]) -> None:
    """Tick until every webhook was sent."""
    waiting = select(func.count()).where(Delivery.next_at.is_not(None))

    def is_sent() -> bool:
        refine("tick", environ=environ, seconds=120)
        left = db.session.scalar(waiting)
        db.session.rollback()
        return not left

    wait_until(is_sent, _DELIVERING_SECONDS)


# -- what was lost --------------------------------------------------------------------------------


def _counted(
    model: HumanModel, receiver: Receiver, breaches: list[str], figures: dict[str, int]
) -> Outcome:
    ends, recorded = _ends(), _recorded()
    heard: dict[str, set[str]] = defaultdict(set)
    for each in receiver.received:
        said = json.loads(each.body)
        if said["type"] == "session.ended":
            heard[said["data"]["session_id"]].add(each.id)
    missing = [id_ for id_, count in ends.items() if count and not heard[id_]]
    twice = sum(len(ids) - (ends[id_] == 1) for id_, ids in heard.items() if ids)
    uncalled = {key for key in _sources() if key not in model.called}
    unsent = db.session.scalars(select(Delivery).where(Delivery.next_at.is_not(None)))
    breaches += [f"session {id_} ended, and no message said so" for id_ in missing]
    breaches += [f"not continued word for word: session {each}" for each in model.forgotten]
    breaches += [f"{each.kind} still waits: {each.attempts} attempts" for each in unsent]
    handed_back = db.session.scalars(select(RefinementSession.handed_back)).all()
    db.session.rollback()
    return Outcome(
        sum(count != 1 for count in ends.values()),
        (model.told - recorded).total(),
        len(missing) + len(model.forgotten),
        twice + len(uncalled),
        breaches,
        {
            **figures,
            "sessions": len(ends),
            "handed back": sum(handed_back),
            "edits": recorded.total(),
            "messages": len(receiver.received),
        },
    )


def _ends() -> Counter[str]:
    """How often each session ended, by the audit log."""
    found = Counter({str(id_): 0 for id_ in db.session.scalars(select(RefinementSession.id))})
    ended = select(AuditLog).where(AuditLog.action.in_(END_ACTION.values()))
    for record in db.session.scalars(ended):
        if "undone_sessions" not in record.data:
            found[str(record.session_id)] += 1
    return found


def _edits() -> Sequence[AuditLog]:
    return db.session.scalars(select(AuditLog).where(AuditLog.action.in_(MUTATIONS))).all()


def _recorded() -> Edits:
    return Counter((each.data["operation"], int(each.auditable_id)) for each in _edits())


def _sources() -> Iterator[tuple[str, int]]:
    for record in _edits():
        for memory in record.data["memories"]:
            if "before" in memory:
                yield record.data["operation"], memory["id"]


def main() -> int:
    """Play for MINUTES with SEED, print what was lost, and return 1 if anything was."""
    seconds = 60 * float(os.environ.get("MINUTES", "3"))
    with TemporaryDirectory(prefix="refine-day-") as folder:
        outcome = play(seconds, int(os.environ.get("SEED", "7")), Path(folder))
    for breach in outcome.breaches:
        print(breach)
    print(", ".join(f"{name}: {count}" for name, count in outcome.figures.items()))
    print(outcome)
    return int(any(outcome[:4]) or bool(outcome.breaches))


if __name__ == "__main__":
    sys.exit(main())
