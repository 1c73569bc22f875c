"""Deploys take nothing away: the short form of a game day, three minutes."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.chaos.gameday import play

NOTHING = (
    "sessions that ended other than once: 0, edits lost: 0, messages missing: 0, superfluous: 0"
)


@pytest.mark.nightly
def test_a_deploy_each_minute_takes_nothing_away() -> None:
    # short, because sockets stand in it
    with TemporaryDirectory(prefix="refine-day-") as folder:
        outcome = play(180, 7, Path(folder))

    assert str(outcome) == NOTHING
    assert outcome.breaches == []
    assert outcome.figures["handed back"] > 0
    assert outcome.figures["edits"] > 0
