"""Simulations on the tests' database, with the models on a server of their own."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from flask import Flask

from bench.playing import serving
from refine import settings
from refine.settings import Settings


@pytest.fixture
def played(app: Flask) -> Iterator[Settings]:
    """Settings whose provider plays the models."""
    with serving() as url:
        yield replace(settings.current(), openrouter_base_url=url)


@pytest.fixture
def unguard(
    app: Flask, played: Settings, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Settings]:
    """From then on, no edit is refused for what it loses."""

    def changed() -> Settings:
        rules = replace(played, details="count")
        monkeypatch.setitem(app.extensions, "refine.settings", rules)
        return rules

    return changed
