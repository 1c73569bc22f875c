"""Numbers that docs, prompts and docstrings repeat in words: each agrees with its constant."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from refine.models.agent.agent import CHANGE_HISTORY_WINDOW
from refine.models.clients.idempotency_key import STORED_FOR
from refine.models.ledger.row import JOURNAL_SHOWN_FOR
from refine.models.people import guess, invitation, sign_in
from refine.models.runs.access import grant, terms
from refine.models.runs.run import LOST_AFTER
from refine.models.runs.session.state import MAX_MUTATIONS, ROLLING_WINDOW
from refine.models.runs.task.scheduling import REFLECTION_SCHEDULE
from refine.refusals import COUNTED_FOR, RECORDED_AT
from refine.rules.content import MAX_CONTENT_CHARACTERS
from refine.rules.pacing import RETRY_PAUSES
from refine.rules.schedules import describe_schedule
from refine.rules.threshold import DEFAULT_THRESHOLD
from refine.running.heartbeat import INTERVAL_SECONDS

ROOT = Path(__file__).parent.parent
DAY, WEEK = timedelta(days=1), timedelta(weeks=1)

# The constants and their value, what is said about them, and where.
SAID: list[tuple[Any, str, list[str]]] = [
    (
        ([grant.IDENTITY_CHANGE_WAIT], DAY),
        "[Ff]or 24 hours after",
        ["docs/guide.md", "docs/api.md", "refine/api/agents.py"],
    ),
    (([grant.DECLINE_WAIT], WEEK), "seven days", ["docs/guide.md", "docs/api.md"]),
    (([grant.REQUEST_LAPSES_AFTER], DAY), "within 24 hours", ["docs/architecture.md"]),
    (([invitation.VALID_FOR, sign_in.LASTS_FOR], WEEK), "seven days", ["docs/security.md"]),
    (([sign_in.CONFIRMED_FOR], timedelta(minutes=15)), "15 minutes", ["docs/security.md"]),
    (([STORED_FOR], DAY), "24 hours", ["docs/api.md", "docs/architecture.md"]),
    (
        ([JOURNAL_SHOWN_FOR], WEEK),
        "(last|one|a) week",
        [
            "docs/glossary.md",
            "docs/guide.md",
            "docs/api.md",
            "refine/models/ledger/ledger.py",
            "refine/prompts/consent.md.j2",
            "refine/prompts/extraction.md.j2",
            "refine/prompts/reflection.md.j2",
            "refine/tools/save_memory.py",
            "refine/tools/save_to_journal.py",
            "templates/agent/import.html",
        ],
    ),
    (
        ([ROLLING_WINDOW, CHANGE_HISTORY_WINDOW], timedelta(days=30)),
        "30 days",
        ["docs/guide.md", "docs/glossary.md"],
    ),
    (([DEFAULT_THRESHOLD * 100], 75), r"0\.75", ["docs/guide.md", "docs/glossary.md"]),
    (([MAX_MUTATIONS], 10), "ten changes", ["docs/guide.md"]),
    (([MAX_CONTENT_CHARACTERS], 10_000), "10,000 characters", ["docs/glossary.md"]),
    (
        ([terms.MIN_PURPOSE_CHARACTERS, terms.MAX_PURPOSE_CHARACTERS], [20, 500]),
        "20 to 500 characters",
        ["docs/guide.md"],
    ),
    (
        ([terms.MIN_MINUTES, terms.MAX_MINUTES], [15, 240]),
        "15 minutes to 4 hours",
        ["docs/guide.md"],
    ),
    (
        (list(RETRY_PAUSES), [timedelta(minutes=each) for each in (5, 30, 120)]),
        "5 minutes, 30 minutes (and|or)? ?2 hours|5 minutes, 30 minutes, 2 hours",
        ["docs/guide.md", "docs/operations.md", "docs/architecture.md"],
    ),
    (([LOST_AFTER], timedelta(seconds=35)), "35 seconds", ["docs/architecture.md"]),
    (([INTERVAL_SECONDS], 10), "10 seconds", ["docs/architecture.md", "refine/models/runs/run.py"]),
    (([guess.GUESS_WINDOW], timedelta(minutes=15)), "15 minutes", ["docs/security.md"]),
    (([RECORDED_AT], 10), "[Tt]en within an hour", ["CHANGELOG.md"]),
    (([COUNTED_FOR], timedelta(hours=1)), "within an hour", ["CHANGELOG.md"]),
    (
        ([describe_schedule(REFLECTION_SCHEDULE)], "every day at 03:00"),
        "03:00",
        ["CHANGELOG.md", "docs/guide.md"],
    ),
]


@pytest.mark.parametrize(("value", "words", "places"), SAID, ids=[each[1] for each in SAID])
def test_words_agree_with_their_constants(value: Any, words: str, places: list[str]) -> None:
    constants, expected = value

    assert constants == (expected if isinstance(expected, list) else [expected] * len(constants))
    for place in places:
        assert re.search(words, (ROOT / place).read_text()), f"{place} does not say {words!r}"
