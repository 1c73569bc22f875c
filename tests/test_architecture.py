"""The structure: no import circle, and short ways for the data."""

import re
from collections.abc import Callable
from pathlib import Path

import grimp
from sqlalchemy import select

from refine.extensions import db
from refine.jobs.worker import work
from refine.models import AgentMemory, ApiToken, RefinementSession
from refine.settings import Settings
from refine.tools import RefinementTool
from tests import factories
from tests.api.conftest import files_called
from tests.web.conftest import signed_in_browser

ROOT = Path(__file__).parent.parent / "refine"

# How many files of Refine a thing is done in, at most. Of the second, 5 read what memories say; for
# the third, 55 are aimed at.
MOST_FILES_TO_SAVE, MOST_FILES_TO_DELETE, MOST_FILES_TO_REFINE = 20, 20, 60
# What tells of every request is no part of the way.
LOGGING = {ROOT / "logs.py", ROOT / "request_log.py"}


def test_no_module_imports_itself_through_others():
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


def test_saving_a_memory_over_the_api_takes_a_short_way(app, client):
    agent = factories.agent("one", "two")
    _, secret = ApiToken.mint(account=agent.account, agent=agent)
    db.session.commit()
    headers = {"Authorization": f"Bearer {secret}"}
    client.get("/api/v1/context", headers=headers)
    memory = {"content": "a third", "memory_type": "core"}

    files = files_of(lambda: client.post("/api/v1/memories", json=memory, headers=headers))

    assert len(files) <= MOST_FILES_TO_SAVE, files


def test_deleting_a_memory_with_the_tool_takes_a_short_way(app):
    agent = factories.agent(*(factories.text_of(25) for _ in range(20)))
    tool = RefinementTool(RefinementSession.start(agent))
    db.session.commit()
    id_ = db.session.scalar(select(AgentMemory.id).where(AgentMemory.agent_id == agent.id).limit(1))

    files = files_of(lambda: tool.execute(action="delete", id=id_))

    assert len(files) <= MOST_FILES_TO_DELETE, files


def test_a_session_takes_a_short_way_from_the_button_to_its_end(
    app, environ, redis, model, monkeypatch
):
    scripted = {**environ, "OPENROUTER_BASE_URL": model.base_url}
    monkeypatch.setitem(app.extensions, "refine.settings", Settings.from_environ(scripted))
    model.catalogue = [{"id": "test/model", "supported_parameters": ["tools", "max_tokens"]}]
    agent = factories.agent()
    memory = factories.ledger(agent, *[25] * 20)[0]
    browser = signed_in_browser(app, factories.user(account=agent.account))
    browser.token()
    model.say("YES, gladly.").call("search", query="abcdefg").call("delete", id=memory.id)
    model.call("complete", summary="All is well.")
    button = f"/agents/{agent.id}/sessions"
    db.session.rollback()

    files = files_of(lambda: (browser.submit(button), work(burst=True)))

    ended = db.session.scalars(select(RefinementSession)).one()
    assert (ended.status, ended.mutation_count) == ("completed", 1)
    assert len(files) <= MOST_FILES_TO_REFINE, sorted(files)


def files_of(work: Callable[[], object]) -> set[str]:
    """The files of Refine of which something is called while it is done, but no templates."""
    with files_called() as files:
        work()
    own = {Path(file) for file in files if file.endswith(".py")} - LOGGING
    return {str(file) for file in own if file.is_relative_to(ROOT)}


def test_the_names_in_the_architecture_page_exist():
    page = (ROOT.parent / "docs" / "architecture.md").read_text()
    code = "".join(path.read_text() for path in ROOT.rglob("*.py"))
    known = set(re.findall(r"\w+", code))
    quoted = set(re.findall(r"`(?:\w+\.)?(\w+)`", page))
    names = {each for each in quoted if not (ROOT.parent / each).exists()}

    assert names - known == set()


def test_the_files_that_the_documentation_names_are_there():
    for page in (ROOT.parent / "docs").glob("*.md"):
        named = set(re.findall(r"`((?:tests/[\w/.]+)|[\w/.]+/\w+\.py)`", page.read_text()))

        missing = [
            path
            for path in sorted(named)
            if not (ROOT / path).exists() and not (ROOT.parent / path).exists()
        ]
        assert missing == [], page.name
