"""How often Python looks for garbage."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from refine import garbage


@pytest.fixture
def looks() -> Iterator[list[str]]:
    """When the collector looked, while the process is settled."""
    seen, threshold = list[str](), gc.get_threshold()

    def note(phase: str, _info: dict[str, Any]) -> None:
        seen.append(phase)

    garbage.settle()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.set_threshold(*threshold)


def test_the_objects_of_a_page_are_not_looked_at_while_it_is_made(looks: list[str]) -> None:
    made = [[each] for each in range(5_000)]

    assert len(made) == 5_000
    assert looks == []


def test_those_of_many_pages_are(looks: list[str]) -> None:
    made = [[each] for each in range(50_000)]

    assert len(made) == 50_000
    assert looks.count("start") >= 1


def test_what_is_loaded_is_left_alone(looks: list[str]) -> None:
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < gc.get_freeze_count()
