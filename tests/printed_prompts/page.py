"""The page: each conversation whole, message by message."""

import re
from collections.abc import Iterator
from pathlib import Path

import time_machine
from flask import Flask
from sqlalchemy import text

from refine import prompts
from refine.extensions import db
from refine.llm.messages import Message
from refine.models import Agent, MemoryTask, RefinementSession
from refine.models.runs.session.duplicates import remove_duplicates
from refine.refinement.prompting import LedgerExcerpt, brief, groups_to_look_at, opening, reading_of
from refine.remembering import task_worker as remembering
from refine.rules.consent import Answer
from refine.rules.second_reading import Case, Stored
from refine.rules.tokens import Room
from refine.running.model_calls import asking_back
from tests import factories
from tests.printed_prompts.agents import NOW, petrel

PAGE = Path(__file__).parent.parent.parent / "docs" / "prompts.md"

INTRODUCTION = (
    "# Prompts\n\n"
    "What an agent's model reads, word for word, in each kind of conversation. `make prompts` "
    "prints this page from the code, and a test fails if it is out of date. The texts are in "
    "`refine/prompts/`.\n\n"
    "A session is one conversation: a line that no other agent has (here all zeros) and the "
    "agent's system prompt, its ledger and the question, its answer, the brief, then tool calls "
    "and their results. Each request repeats the one before. The tools' definitions go along: see "
    "`DEFINITION` in `refine/tools/refinement.py`, `READING` in `refine/refinement/prompting.py`."
)

CONVERSATION = [
    {"role": "user", "name": "Mara", "content": "The Gull is repaired!"},
    {"role": "assistant", "content": "Then you can sail again tomorrow."},
]

LEAK = Stored("2025-12-09", "The Gull leaks at the third plank on port side.")
LEAKS = Stored("2025-12-19", "Third plank of the Gull, port side: it leaks.")
REPAIRED = Stored("2026-03-01", "The Gull is repaired and leaks no more.")
CASES = [
    Case("same", (LEAK, LEAKS), "The Gull leaks at the third plank, port side."),
    Case("outdated", (LEAK,), None, (REPAIRED,)),
]

OWN_LINE = re.compile(r"^[0-9a-f]{32}(?= \(this line)")
PLENTY = 100_000


def printed(app: Flask) -> str:
    """Return the page; the database must be empty."""
    db.session.execute(text("SELECT setval('agent_memories_id_seq', 1, false)"))
    with time_machine.travel(NOW, tick=False):
        account = factories.account(name="Harbour", slug="harbour")
        sections = list(_sections(petrel(app, account)))
    return "\n\n".join([INTRODUCTION, *sections]) + "\n"


def _sections(agent: Agent) -> Iterator[str]:
    yield (
        "## A session: over the budget, asked by hand, after one that was rolled back; "
        "two exact duplicates were removed"
    )
    yield from _session(agent)
    yield "## The rest of a session"
    yield from _message("a reply without a tool call is reminded", prompts.render("reminder"))
    unclear = asking_back(Answer.CONDITION)
    yield from _message("an answer that is not a plain YES or NO is asked back once", unclear)
    yield "## A second reading of two edits, in a conversation of its own"
    yield from _conversation(reading_of(agent, CASES, is_repeated=False))
    yield "## The daily reflection"
    yield from _task(MemoryTask.reflect(agent, "daily"))
    yield "## A conversation to remember"
    yield from _task(MemoryTask.extract(agent, CONVERSATION))
    yield "## A search for a person"
    search = MemoryTask.search_for(agent, "Mara Lind, mara@example.org")
    yield from _conversation(remembering.question(search))
    yield from _message("user, after a YES", prompts.render("data_subject", words=None))


def _session(agent: Agent) -> Iterator[str]:
    session = RefinementSession.queue(agent, "manual")
    session.claim()
    remove_duplicates(session)
    db.session.flush()
    excerpt = LedgerExcerpt.of(agent, room_tokens=PLENTY)
    session.take_snapshot(excerpt.shown_ids)
    yield from _conversation(opening(session, excerpt))
    yield from _message("assistant, for example", "YES.")
    yield from _message("user", brief(session, groups_to_look_at(session)))


def _task(task: MemoryTask) -> Iterator[str]:
    layout = remembering.layout_of(remembering.lines_of(task), task, Room.of(PLENTY))
    assert layout is not None
    yield from _conversation(remembering.opening(task, layout))


def _conversation(messages: list[Message]) -> Iterator[str]:
    for message in messages:
        yield from _message(message["role"], OWN_LINE.sub("0" * 32, message["content"]))


def _message(title: str, content: str, language: str = "text") -> Iterator[str]:
    yield f"**{title}**"
    yield f"````{language}\n{content}\n````"
