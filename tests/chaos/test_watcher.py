"""The watcher notes what tables no longer tell."""

import uuid
from pathlib import Path

import pytest

from tests.chaos.watcher import Watcher

ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
AGENT = 7


@pytest.fixture
def watcher(tmp_path: Path) -> Watcher:
    return Watcher(tmp_path)


def test_the_last_sign_of_life_is_the_last_change_that_was_seen(watcher: Watcher) -> None:
    watcher.note([(ONE, AGENT, "queued", 10.0)])
    watcher.note([(ONE, AGENT, "running 10:00:20", 20.0)])
    watcher.note([(ONE, AGENT, "running 10:00:20", 30.0)])

    assert watcher.signs[ONE].at == 20.0


def test_a_session_that_ended_and_is_live_again_is_noted(watcher: Watcher) -> None:
    watcher.note([(ONE, AGENT, "running", 10.0)])
    watcher.note([])
    assert not watcher.revived

    watcher.note([(ONE, AGENT, "running", 30.0)])

    assert watcher.revived == {ONE}


def test_an_agent_with_two_live_sessions_is_noted(watcher: Watcher) -> None:
    watcher.note([(ONE, AGENT, "running", 10.0)])
    assert not watcher.crowded

    watcher.note([(ONE, AGENT, "running", 20.0), (OTHER, AGENT, "queued", 20.0)])

    assert watcher.crowded == {AGENT}
