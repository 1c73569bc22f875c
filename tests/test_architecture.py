"""The structure: no import circle, and short ways for the data."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import grimp
import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from refine.extensions import db
from refine.models import AgentMemory, ApiToken, RefinementSession
from refine.tools import RefinementTool
from tests import factories

ROOT = Path(__file__).parent.parent / "refine"

# The rooms of the house from the top floor down, as pyproject.toml has the layers.
FLOORS = (
    *("application.py", "api", "tools"),
    *("models/runs", "models/clients", "models/agent", "models/ledger", "models/people"),
    *("models/audit", "models"),
    *(
        "faults.py",
        "headers.py",
        "outages.py",
        "extensions",
        "sealing.py",
        "settings.py",
        "rules",
        "clock.py",
    ),
)

MAX_ROOMS = 8
# Memories ask their owner for its key, its chain and its lock.
MAX_TURNS = 7


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("refine")
    finished = {"refine"}  # create_app() reaches up when it is called, and not before

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"a circle: {' -> '.join([*path, module])}"
        if module not in finished:
            for imported in graph.find_modules_directly_imported_by(module):
                visit(imported, (*path, module))
            finished.add(module)

    for module in sorted(graph.modules - {"refine"}):
        visit(module, ())


def test_every_record_takes_the_way_that_adds_where_its_user_is() -> None:
    direct = [
        str(file.relative_to(ROOT))
        for file in ROOT.rglob("*.py")
        if "AuditLog.record(" in file.read_text()
    ]

    of_no_user = {"models/audit/verification.py", "models/audit/record.py"}
    assert set(direct) - of_no_user == {"models/people/recording.py"}


def test_saving_a_memory_over_the_api_takes_a_short_way(app: Flask, client: FlaskClient) -> None:
    agent = factories.agent("one", "two")
    _, secret = ApiToken.mint(account=agent.account, agent=agent)
    db.session.commit()
    headers = {"Authorization": f"Bearer {secret}"}
    client.get("/api/v1/context", headers=headers)
    memory = {"content": "a third", "memory_type": "core"}

    calls = traced(lambda: client.post("/api/v1/memories", json=memory, headers=headers))

    assert len(rooms(calls)) <= MAX_ROOMS, rooms(calls)
    assert len(turns(calls)) <= MAX_TURNS, turns(calls)


def test_deleting_a_memory_with_the_tool_takes_a_short_way(app: Flask) -> None:
    agent = factories.agent(*(factories.text_of(25) for _ in range(20)))
    tool = RefinementTool(RefinementSession.start(agent))
    db.session.commit()
    id_ = db.session.scalar(select(AgentMemory.id).where(AgentMemory.agent_id == agent.id).limit(1))

    calls = traced(lambda: tool.execute(action="delete", id=id_))

    assert len(rooms(calls)) <= MAX_ROOMS, rooms(calls)
    assert len(turns(calls)) <= MAX_TURNS, turns(calls)


Calls = list[tuple[str | None, str]]


def traced(work: Callable[[], object]) -> Calls:
    """The calls between files of Refine while something is done: (caller, called)."""
    calls: Calls = []

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and (called := file_of(frame)) is not None:
            caller = frame.f_back
            while caller is not None and file_of(caller) is None:
                caller = caller.f_back
            calls.append((file_of(caller) if caller is not None else None, called))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    assert calls
    return calls


def file_of(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else None


def rooms(calls: Calls) -> set[str]:
    return {called.partition("/")[0] for _, called in calls}


def turns(calls: Calls) -> list[tuple[str, str]]:
    """The calls from a lower floor back to a higher one, but for a flush that calls listeners."""
    return [
        (caller, called)
        for caller, called in calls
        if caller not in (None, "extensions/__init__.py") and floor(caller) > floor(called)
    ]


def floor(file: str) -> int:
    parts = file.split("/")
    room = "/".join(parts[:2]) if parts[0] == "models" and len(parts) > 2 else parts[0]
    if room not in FLOORS:
        pytest.fail(f"{room} has no floor; add it to FLOORS")
    return FLOORS.index(room)


def test_the_tests_that_the_documentation_names_are_there() -> None:
    for page in (ROOT.parent / "docs").glob("*.md"):
        named = set(re.findall(r"`(tests/[\w/.]+)`", page.read_text()))

        assert [path for path in sorted(named) if not (ROOT.parent / path).exists()] == [], (
            page.name
        )
