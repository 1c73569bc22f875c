"""After the n-th failure, everything holds."""

import time
from collections.abc import Iterator

import pytest
from flask import Flask
from redis import Redis

from tests.faults.nth_failure import Bench, bench
from tests.faults.operations import OPERATIONS, Operation

pytestmark = pytest.mark.no_cover


@pytest.fixture(scope="module")
def benched(migrated_app: Flask, environ: dict[str, str]) -> Iterator[Bench]:
    with bench(migrated_app, environ) as made:
        yield made


@pytest.mark.parametrize("made", OPERATIONS, ids=lambda made: made.__name__)
def test_try(benched: Bench, redis: Redis, made: type[Operation]) -> None:
    start = time.monotonic()
    passed = benched.untouched(made)
    print(made.name, passed, time.monotonic() - start)
