"""The structure: no import circle, and short ways for the data."""

import re
from collections.abc import Callable
from pathlib import Path

import grimp
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from refine.extensions import db
from refine.models import AgentMemory, ApiToken, RefinementSession
from refine.tools import RefinementTool
from tests import factories
from tests.api.conftest import files_called

ROOT = Path(__file__).parent.parent / "refine"

# How many files of Refine a thing is done in, at most; 18 are aimed at for the second.
MOST_FILES_TO_SAVE, MOST_FILES_TO_DELETE = 20, 43


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


def test_saving_a_memory_over_the_api_takes_a_short_way(app: Flask, client: FlaskClient) -> None:
    agent = factories.agent("one", "two")
    _, secret = ApiToken.mint(account=agent.account, agent=agent)
    db.session.commit()
    headers = {"Authorization": f"Bearer {secret}"}
    client.get("/api/v1/context", headers=headers)
    memory = {"content": "a third", "memory_type": "core"}

    files = files_of(lambda: client.post("/api/v1/memories", json=memory, headers=headers))

    assert len(files) <= MOST_FILES_TO_SAVE, files


def test_deleting_a_memory_with_the_tool_takes_a_short_way(app: Flask) -> None:
    agent = factories.agent(*(factories.text_of(25) for _ in range(20)))
    tool = RefinementTool(RefinementSession.start(agent))
    db.session.commit()
    id_ = db.session.scalar(select(AgentMemory.id).where(AgentMemory.agent_id == agent.id).limit(1))

    files = files_of(lambda: tool.execute(action="delete", id=id_))

    assert len(files) <= MOST_FILES_TO_DELETE, files


def files_of(work: Callable[[], object]) -> set[str]:
    """The files of Refine of which something is called while it is done."""
    with files_called() as files:
        work()
    return {file for file in files if Path(file).is_relative_to(ROOT)}


def test_the_tests_that_the_documentation_names_are_there() -> None:
    for page in (ROOT.parent / "docs").glob("*.md"):
        named = set(re.findall(r"`(tests/[\w/.]+)`", page.read_text()))

        assert [path for path in sorted(named) if not (ROOT.parent / path).exists()] == [], (
            page.name
        )
