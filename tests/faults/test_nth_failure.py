"""After the n-th failure of a call, everything holds: some calls of each operation in the gate.

As SQLite is tested for lack of memory and failing disks: an operation is done again and again, and
each time another call fails.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from flask import Flask

from refine import outages
from refine.extensions import db
from refine.llm import provider
from refine.models import schema_version
from tests.conftest import emptied
from tests.faults.injecting import (
    ANSWER,
    COMMIT,
    DATABASE,
    HTTP_KINDS,
    REDIS_KINDS,
    FaultyModel,
    Kind,
    doors,
    planned,
)
from tests.faults.invariants import left_open
from tests.faults.operations import OPERATIONS, Operation

# How many failures of each sort an operation is put through.
IN_THE_GATE = ((DATABASE, 2), (REDIS_KINDS, 1), (HTTP_KINDS, 1))
AT_COMMITS = [kind for kind in DATABASE if kind.door in (COMMIT, ANSWER)]
NIGHTLY = ((AT_COMMITS, 1_000), (DATABASE, 40), (REDIS_KINDS, 10), (HTTP_KINDS, 10))
Samples = Sequence[tuple[Sequence[Kind], int]]


@dataclass(frozen=True)
class Failure:
    """A call that failed, and what did not hold after it: nothing, if all is well."""

    operation: str
    kind: str
    at: int
    breaches: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.operation}, {self.kind}, call {self.at}: {'; '.join(self.breaches)}"


class Bench:
    """Where operations are done under faults."""

    def __init__(self, app: Flask, environ: dict[str, str], model: FaultyModel) -> None:
        self._app = app
        self._environ = environ
        self._model = model
        self._summaries: dict[str, object] = {}

    def untouched(self, made: type[Operation]) -> Counter[str]:
        """Do it with nothing in its way; return how many calls pass each door."""
        with self._world(made) as operation:
            with planned() as plan:
                operation.run()
            assert operation.fault is None, operation.fault
            operation.recover()
            self._summaries[made.name] = operation.summary()
            assert list(operation.wrong(Kind("nothing", "", None))) == []
            db.session.rollback()
            assert list(operation.again()) == []
        return plan.passed

    def failed(self, made: type[Operation], kind: Kind, at: int) -> "Failure | None":
        """Do it with one call failing, and look what does not hold then; None if none failed."""
        with self._world(made) as operation:
            with planned(kind, at) as plan:
                operation.run()
            if not plan.has_struck:
                return None
            return Failure(made.name, kind.name, at, tuple(self._wrong(operation, kind)))

    def _wrong(self, operation: Operation, kind: Kind) -> Iterator[str]:
        yield from left_open()
        operation.recover()
        yield from operation.wrong(kind)
        if (summary := operation.summary()) != (usual := self._summaries[operation.name]):
            yield f"it came to {summary}, and without the fault to {usual}"
        db.session.rollback()
        yield from operation.again()

    @contextmanager
    def _world(self, made: type[Operation]) -> Iterator[Operation]:
        with emptied(self._app):
            operation = made(self._app, self._environ, self._model)
            operation.begin()
            schema_version.forget()  # else an operation looks at it ten seconds after another did
            try:
                yield operation
            finally:
                db.session.rollback()
                operation.close()


def points(passed: Counter[str], kinds: Sequence[Kind]) -> list[tuple[Kind, int]]:
    """Return every call at each kind's door."""
    return [(kind, at) for kind in kinds for at in range(passed[kind.door])]


@contextmanager
def bench(app: Flask, environ: dict[str, str]) -> Iterator[Bench]:
    """A bench in this application, whose database and Redis are for it alone."""
    settings = app.extensions["refine.settings"]
    with FaultyModel() as model, doors(app), pytest.MonkeyPatch.context() as patch:
        patch.setattr(provider, "_BACKOFF_SECONDS", (0.0,))
        patch.setattr(outages, "PAUSE_SECONDS", 0.0)
        asking = replace(settings, openrouter_base_url=model.base_url)
        patch.setitem(app.extensions, "refine.settings", asking)
        yield Bench(app, environ, model)


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
def test_no_failing_call_loses_anything(benched, redis, made, samples):
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
