"""What one edit through the tool costs, and a session of ten."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any, Self

from bench.measuring import Benchmark, Figure, timed
from bench.plain_edits import PlainEdits
from bench.world import World, texts
from refine.extensions import db
from refine.models import MAX_MUTATIONS, Agent, AgentMemory, RefinementSession
from refine.tools import RefinementTool

AT_MOST_TIMES = 2.0

_MUTATIONS = ("delete", "update", "consolidate")
_RESULTS = {
    "delete": "deleted",
    "update": "updated",
    "consolidate": "consolidated",
    "protect": "protected",
    "complete": "refinement_complete",
}
_TEN = [_MUTATIONS[number % len(_MUTATIONS)] for number in range(MAX_MUTATIONS)]
# Different from each other, and from those of every ledger.
_new_texts = iter(texts(1_000, first=1_000_000))

# The number of sessions; each measures every action three times.
_SESSIONS = 3


class Unexpected(Exception):
    """The tool answered something else than the benchmark needs."""


class _Session:
    """A running session of an agent, and the calls that it can still make."""

    def __init__(self, agent_id: int) -> None:
        agent = db.session.get_one(Agent, agent_id)
        session = RefinementSession.start(agent)
        self._tool = RefinementTool(session)
        unlocked = agent.ledger.core().where(~AgentMemory.is_locked)
        self._ids = [memory.id for memory in db.session.scalars(unlocked)]
        self._session = session
        db.session.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Leave no session behind after an error."""
        if kind is not None:
            db.session.rollback()
            self._session.give_up("the benchmark failed")
            db.session.commit()

    def call(self, action: str) -> Callable[[], None]:
        """Return what carries out such a call on memories that were not touched yet."""
        params = self._params(action)

        def call() -> None:
            result = self._tool.execute(action=action, **params)
            if result["type"] != _RESULTS[action]:
                raise Unexpected(f"{action}: {result['type']}, {result.get('error', '')}")

        return call

    def _params(self, action: str) -> dict[str, Any]:
        if action == "complete":
            return {"summary": "measured"}
        if action == "consolidate":
            return {"ids": [self._ids.pop(), self._ids.pop()], "content": next(_new_texts)}
        params: dict[str, Any] = {"id": self._ids.pop()}
        return {**params, "content": next(_new_texts)} if action == "update" else params


def whole_session(agent_id: int) -> None:
    """Carry out a session of ten mutations and the completion."""
    with _Session(agent_id) as session:
        for action in (*_TEN, "complete"):
            session.call(action)()


def benchmarks(world: World) -> list[Benchmark]:
    """Return those of the edits, at both sizes of ledgers."""
    agents = iter(world.tidied_ids)

    def smaller() -> int:
        return next(agents)

    def larger() -> int:
        return world.large_id

    small, large = world.size.ledgers
    repetitions = _SESSIONS if world.size.repetitions > 1 else 1
    return [
        benchmark
        for memories, agent_id in ((small, smaller), (large, larger))
        for benchmark in (
            Benchmark(
                f"edits, ledger of {memories:,}",
                partial(_single, world, memories, agent_id, repetitions),
            ),
            Benchmark(
                f"a session of ten, ledger of {memories:,}",
                partial(_whole, world, memories, agent_id, repetitions),
            ),
        )
    ]


def _single(
    world: World, memories: int, agent_id: Callable[[], int], sessions: int
) -> Iterator[Figure]:
    """Measure each action, in turn with its floor; the first edit of a session is a warm-up."""
    actions = (*_MUTATIONS, "protect")
    taken: dict[str, list[tuple[float, float]]] = {action: [] for action in actions}
    with closing(PlainEdits(world)) as plain:
        floor = timed(plain.edit)
        for _ in range(sessions):
            with _Session(agent_id()) as session:
                session.call("delete")()
                floor()
                for _ in range((MAX_MUTATIONS - 1) // len(_MUTATIONS)):
                    for action in actions:
                        taken[action].append((timed(session.call(action))(), floor()))
                session.call("complete")()
    for action in actions:
        ours, floors = zip(*taken[action], strict=True)
        yield Figure(
            f"{action}, ledger of {memories:,}",
            statistics.median(ours),
            statistics.median(floors),
            at_most_times=AT_MOST_TIMES,
        )


def _whole(
    world: World, memories: int, agent_id: Callable[[], int], sessions: int
) -> Iterator[Figure]:
    """Measure ten mutations and the completion, against as many floors."""
    ours, floors = [], []
    for _ in range(sessions):
        with closing(PlainEdits(world)) as plain, _Session(agent_id()) as session:
            calls = [session.call(action) for action in (*_TEN, "complete")]
            pairs = [(timed(call)(), timed(plain.edit)()) for call in calls]
        ours.append(sum(pair[0] for pair in pairs))
        floors.append(sum(pair[1] for pair in pairs))
    yield Figure(
        f"ten edits and complete, ledger of {memories:,}",
        statistics.median(ours),
        statistics.median(floors),
        at_most_times=AT_MOST_TIMES,
    )
