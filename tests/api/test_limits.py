"""Rate limits of tokens."""

import re
from collections.abc import Iterator

import pytest
from flask import Flask
from redis import Redis

from refine import create_app
from refine.extensions import db
from refine.settings import Settings
from tests import factories
from tests.api.conftest import Program, bearing, program_of

LIMITS = {"REFINE_API_READS_PER_MINUTE": "3", "REFINE_API_WRITES_PER_MINUTE": "2"}
NEW = {"content": "said", "memory_type": "journal"}


def limited(environ: dict[str, str], **variables: str) -> Iterator[Flask]:
    app = create_app(Settings.from_environ({**environ, **LIMITS, **variables}))
    yield app
    with app.app_context():
        db.engine.dispose()


@pytest.fixture
def slow(app: Flask, environ: dict[str, str], redis: Redis) -> Iterator[Flask]:
    """The same application, with low limits."""
    yield from limited(environ)


def new_program(app: Flask) -> Program:
    return program_of(app, factories.agent("a memory"))


def reads(program: Program, times: int) -> list[int]:
    return [program.get("/tools").status_code for _ in range(times)]


def test_counts_reads_and_writes_separately(slow):
    program = new_program(slow)

    writes = [program.post("/memories", json=NEW).status_code for _ in range(3)]

    assert writes == [201, 201, 429]
    assert reads(program, 4) == [200, 200, 200, 429]
    assert len(program.get("/memories").json.get("memories", [])) == 0


def test_processes_share_their_counters(slow, environ):
    program = new_program(slow)
    assert reads(program, 2) == [200, 200]

    for other in limited(environ):
        assert reads(bearing(other, program.secret), 2) == [200, 429]


def test_each_process_counts_alone_without_redis(app, environ):
    for alone in limited(environ, REDIS_URL="redis://127.0.0.1:1/0"):
        assert reads(new_program(alone), 4) == [200, 200, 200, 429]


def test_stores_no_token_in_redis(slow, redis):
    program = new_program(slow)
    reads(program, 1)

    keys = [key.decode() for key in redis.scan_iter()]

    assert len(keys) > 0
    assert all(re.fullmatch(r"refine-limits:\S*", key) for key in keys)
    assert program.secret is not None
    assert not any(program.secret[-20:] in key for key in keys)
