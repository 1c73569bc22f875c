"""After the n-th failure, everything holds: some calls of each operation; `make failures` does all.

The calls are spread over those of each operation, and over the kinds of fault.
"""

from collections.abc import Iterator, Sequence

import pytest
from flask import Flask
from redis import Redis

from refine.extensions import db
from refine.models import Agent
from tests.faults.injecting import ANSWER, COMMIT, DATABASE, HTTP_KINDS, KINDS, REDIS_KINDS, Kind
from tests.faults.nth_failure import Bench, bench, points
from tests.faults.operations import OPERATIONS, Erasure, Operation

# How many failures of each sort an operation is put through.
IN_THE_GATE = ((DATABASE, 4), (REDIS_KINDS, 1), (HTTP_KINDS, 1))
AT_COMMITS = [kind for kind in DATABASE if kind.door in (COMMIT, ANSWER)]
NIGHTLY = ((AT_COMMITS, 1_000), (DATABASE, 40), (REDIS_KINDS, 10), (HTTP_KINDS, 10))
Samples = Sequence[tuple[Sequence[Kind], int]]


@pytest.fixture(scope="module")
def benched(migrated_app: Flask, environ: dict[str, str]) -> Iterator[Bench]:
    with bench(migrated_app, environ) as made:
        yield made


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(IN_THE_GATE, id="some"),
        pytest.param(NIGHTLY, id="many", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("made", OPERATIONS, ids=lambda made: made.__name__)
def test_nothing_is_lost_whatever_call_fails(
    benched: Bench, redis: Redis, made: type[Operation], samples: Samples
) -> None:
    passed = benched.untouched(made)

    failures = [
        benched.failed(made, kind, at)
        for kinds, count in samples
        for kind, at in spread(points(passed, kinds), count)
    ]

    assert [str(each) for each in failures if each is not None and each.breaches] == []
    assert 2 * sum(each is not None for each in failures) > len(failures)


def spread(found: Sequence[tuple[Kind, int]], count: int) -> list[tuple[Kind, int]]:
    """So many of these, from the first part to the last."""
    return [found[(2 * n + 1) * len(found) // (2 * count)] for n in range(min(count, len(found)))]


class HalfErased(Erasure):
    """An erasure in two transactions, as it must not be."""

    name = "erasure in two transactions"

    def work(self) -> None:
        agent = db.session.get_one(Agent, self.agent_id)
        if agent.is_erased:
            return
        agent.wrapped_key.wrapped, agent.wrapped_key.destroyed_at = None, agent.created_at
        db.session.commit()
        agent.record("agent_erased", data={"by": "command line"})
        db.session.commit()


def test_an_erasure_that_is_half_done_is_found(benched: Bench) -> None:
    passed = benched.untouched(HalfErased)

    failures = [benched.failed(HalfErased, kind, at) for kind, at in points(passed, DATABASE, 9)]

    assert any("destroyed without a record" in str(failure) for failure in failures)


def test_each_kind_of_fault_has_a_name_of_its_own() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
