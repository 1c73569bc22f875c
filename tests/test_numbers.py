"""Numbers that docs, prompts and docstrings repeat in words: each agrees with its constant."""

import dataclasses
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from refine.jobs.batches import BATCH
from refine.llm.rehearsal.model import MAX_MERGES
from refine.models.agent.configuring import CHANGE_HISTORY_WINDOW
from refine.models.agent.eligibility import DEFAULT_CORE_TOKEN_BUDGET
from refine.models.audit import verification
from refine.models.ledger.row import JOURNAL_SHOWN_FOR
from refine.models.people import guess, invitation, sign_in
from refine.models.runs.access import asking_rules, grant, terms
from refine.models.runs.run import LOST_AFTER
from refine.models.runs.session.state import MAX_MUTATIONS, ROLLING_WINDOW
from refine.models.runs.task import MAX_WAITING
from refine.models.runs.task.scheduling import REFLECTION_SCHEDULE
from refine.models.runs.task.task import MAX_KEPT, TASK_LAPSES_AFTER
from refine.refusals import COUNTED_FOR, RECORDED_AT
from refine.rules import conversation
from refine.rules.content import MAX_CONTENT_CHARACTERS
from refine.rules.keeping import ANSWERS_KEPT_FOR
from refine.rules.pacing import LONGEST_COOLDOWN, MAX_QUIET_SLOTS, RETRY_PAUSES
from refine.rules.schedules import describe_schedule
from refine.rules.threshold import DEFAULT_THRESHOLD
from refine.running.heartbeat import INTERVAL_SECONDS
from refine.running.model_calls import MAX_TOOL_CALLS
from refine.settings import Settings

ROOT = Path(__file__).parent.parent
DEFAULTS = {each.name: each.default for each in dataclasses.fields(Settings)}
DAY, WEEK = timedelta(days=1), timedelta(weeks=1)

# The constants and their value, what is said about them, and where.
SAID: list[tuple[Any, str, list[str]]] = [
    (
        ([asking_rules.IDENTITY_CHANGE_WAIT], DAY),
        "[Ff]or 24 hours after",
        ["docs/guide.md", "docs/api.md", "refine/api/platform.py"],
    ),
    (
        ([asking_rules.DECLINE_WAIT], WEEK),
        "ask (it )?(again|for access) (for|before) seven days",
        ["docs/guide.md", "docs/api.md", "docs/glossary.md", "docs/security.md", "CHANGELOG.md"],
    ),
    (([BATCH], 100), "first hundred", ["docs/guide.md", "CHANGELOG.md"]),
    (([asking_rules.PASSWORD_LINK_WAIT], DAY), "may not ask for 24 hours", ["docs/security.md"]),
    (
        ([asking_rules.MAX_DECLINES_A_DAY], 10),
        "ten declines within 24 hours",
        ["docs/security.md"],
    ),
    (([grant.REQUEST_LAPSES_AFTER], DAY), "within 24 hours", ["docs/architecture.md"]),
    (
        ([invitation.VALID_FOR], WEEK),
        "work once and expire after 7 days|valid once and for seven days",
        ["docs/security.md", "docs/glossary.md"],
    ),
    (([sign_in.LASTS_FOR], WEEK), "after 7 days at the latest", ["docs/security.md"]),
    (([sign_in.IDLE_FOR], timedelta(hours=12)), "12 hours of inactivity", ["docs/security.md"]),
    (
        ([sign_in.CONFIRMED_FOR], timedelta(minutes=15)),
        "entered in the last 15 minutes|again after 15 minutes",
        ["docs/security.md", "CHANGELOG.md"],
    ),
    (
        ([ANSWERS_KEPT_FOR], DAY),
        "24 hours( the request is carried out|, sealed)",
        ["docs/api.md", "docs/architecture.md"],
    ),
    (
        ([JOURNAL_SHOWN_FOR], WEEK),
        "(last|one|a) week",
        [
            "docs/glossary.md",
            "docs/guide.md",
            "docs/api.md",
            "refine/api/memories.py",
            "refine/api/memories.py",
            "refine/cli/running.py",
            "refine/models/ledger/ledger.py",
            "refine/models/ledger/memory.py",
            "refine/prompts/default_memory_reflection_prompt.md.j2",
            "refine/prompts/consent.md.j2",
            "refine/prompts/extraction.md.j2",
            "refine/prompts/reflection.md.j2",
            "refine/refinement/prompting.py",
            "refine/remembering/task_worker.py",
            "refine/web/ledger.py",
            "refine/tools/save_memory.py",
            "refine/tools/save_to_journal.py",
        ],
    ),
    (
        ([ROLLING_WINDOW, CHANGE_HISTORY_WINDOW], timedelta(days=30)),
        "30 days",
        ["docs/guide.md", "docs/glossary.md"],
    ),
    (([DEFAULT_THRESHOLD * 100], 75), r"0\.75", ["docs/guide.md", "docs/glossary.md"]),
    (
        ([MAX_MUTATIONS, MAX_MERGES], 10),
        "(ten|10) changes",
        ["docs/guide.md", "docs/security.md", "README.md", "CHANGELOG.md"],
    ),
    (([MAX_MUTATIONS], 10), "A session may make ten", ["docs/glossary.md"]),
    (([DEFAULT_CORE_TOKEN_BUDGET], 5_000), "5,000 by default", ["docs/glossary.md"]),
    (([MAX_KEPT["reflection"]], 10), "at most ten, unchanged", ["docs/guide.md"]),
    (([MAX_KEPT["extraction"]], 20), "at most 20 journal memories", ["docs/guide.md"]),
    (([MAX_TOOL_CALLS], 60), "60 tool calls", ["docs/guide.md"]),
    (([verification.IS_LATE_AFTER], timedelta(days=3)), "three days", ["docs/operations.md"]),
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
    (([terms.MAX_MINUTES], 240), "up to four hours", ["docs/security.md"]),
    (
        ([TASK_LAPSES_AFTER["reflection"]], DAY),
        "reflection (after )?1 day",
        ["docs/glossary.md", "docs/architecture.md"],
    ),
    (
        ([TASK_LAPSES_AFTER["extraction"]], WEEK),
        "conversations? (after )?7 days|(unread after|again for) seven days",
        ["docs/glossary.md", "docs/architecture.md", "docs/operations.md", "docs/guide.md"],
    ),
    (([MAX_WAITING], 100), "100 conversations of an agent may be waiting", ["docs/api.md"]),
    (
        (
            [
                conversation.MAX_MESSAGES,
                conversation.MAX_MESSAGE_CHARACTERS,
                conversation.MAX_CONVERSATION_CHARACTERS,
            ],
            [2_000, 50_000, 500_000],
        ),
        "2,000 messages, 50,000 characters per message and 500,000 in total",
        ["docs/api.md"],
    ),
    (
        ([DEFAULTS["cooldown_hours"], LONGEST_COOLDOWN], [24, WEEK]),
        "cool-down of 24 hours that doubles, up to a week",
        ["docs/guide.md"],
    ),
    (
        ([MAX_QUIET_SLOTS], 4),
        "at most four slots|four slots at most",
        [
            "docs/guide.md",
            "CHANGELOG.md",
            "docs/decisions/0007-what-the-clock-leaves-alone.md",
        ],
    ),
    (
        ([DEFAULTS["api_reads_per_minute"], DEFAULTS["api_writes_per_minute"]], [600, 120]),
        "600 reads and 120 writes per minute",
        ["docs/api.md"],
    ),
    (
        ([describe_schedule(DEFAULTS["schedule"])], "on Mondays at 04:00"),
        "Mondays 04:00",
        ["docs/guide.md"],
    ),
    (
        (list(RETRY_PAUSES), [timedelta(minutes=each) for each in (5, 30, 120)]),
        "5 minutes, 30 minutes (and|or)? ?2 hours|5 minutes, 30 minutes, 2 hours",
        ["docs/guide.md", "docs/operations.md", "docs/architecture.md"],
    ),
    (
        ([LOST_AFTER], timedelta(seconds=35)),
        "35 seconds",
        ["docs/architecture.md", "docs/glossary.md"],
    ),
    (([INTERVAL_SECONDS], 10), "10 seconds", ["docs/architecture.md", "refine/models/runs/run.py"]),
    (([guess.GUESS_WINDOW], timedelta(minutes=15)), "within 15 minutes", ["docs/security.md"]),
    (([RECORDED_AT], 10), "[Tt]en within an hour", ["CHANGELOG.md"]),
    (([COUNTED_FOR], timedelta(hours=1)), "within an hour", ["CHANGELOG.md"]),
    (
        ([describe_schedule(REFLECTION_SCHEDULE)], "every day at 03:00"),
        "03:00",
        ["CHANGELOG.md", "docs/guide.md"],
    ),
]


@pytest.mark.parametrize(("value", "words", "places"), SAID, ids=[each[1] for each in SAID])
def test_every_listed_place_repeats_its_constant(value: Any, words: str, places: list[str]) -> None:
    constants, expected = value

    assert constants == (expected if isinstance(expected, list) else [expected] * len(constants))
    for place in places:
        assert re.search(words, (ROOT / place).read_text()), f"{place} does not say {words!r}"


def test_the_operations_page_gives_the_default_of_every_variable() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (.+?) \|", page, re.MULTILINE))
    variables = {
        each.metadata["name"]: each for each in dataclasses.fields(Settings) if each.metadata
    }
    constant = {
        name: each.default
        for name, each in variables.items()
        if each.default not in (None, dataclasses.MISSING)
    }

    assert variables.keys() <= rows.keys()
    assert constant == {
        name: variables[name].metadata["parse"](name, rows[name].strip("`")) for name in constant
    }
