from collections.abc import Iterator

import pytest
from flask import Flask

from refine.models.people import user
from tests import factories
from tests.guessing.driving import NotingRequest
from tests.guessing.worlds import Worlds, two_worlds


@pytest.fixture(scope="module")
def built_worlds(migrated_app: Flask, environ: dict[str, str]) -> Iterator[Worlds]:
    with two_worlds(migrated_app, environ) as worlds:
        for side in worlds.sides:
            side.app.request_class = NotingRequest
        yield worlds


@pytest.fixture
def worlds(built_worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> Worlds:
    """Two worlds of which one agent holds the guess, as they were at first."""
    monkeypatch.setattr(user, "_hasher", factories.CHEAP_HASHER)
    monkeypatch.setattr(user, "DUMMY_PASSWORD_HASH", factories.password_hash())
    built_worlds.restore()
    return built_worlds
