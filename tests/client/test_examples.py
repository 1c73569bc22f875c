"""The examples of the adapters, as processes against a served Refine."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refine.llm import rehearsal
from tests import factories
from tests.client.conftest import KEPT, Home
from tests.client.test_anthropic import message
from tests.commands import environment

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(home: Home, name: str, *arguments: str, stdin: str = "", **variables: str) -> str:
    """What an example prints."""
    own = {"REFINE_URL": home.url, "REFINE_TOKEN": home.token, "MODEL": "test/model"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment({**own, **variables}),
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_claude_saves_a_file(home):
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if "tool_result" in str(body["messages"]):
            return message({"type": "text", "text": "I will remember that."})
        create = {"command": "create", "path": "/memories/anna.md", "file_text": "Anna sails"}
        return message({"type": "tool_use", "id": "1", "name": "memory", "input": create})

    with rehearsal.serving(answer) as url:
        variables = {
            "ANTHROPIC_API_KEY": "of a test",
            "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
        }
        said = run(home, "anthropic_agent.py", "Remember: Anna sails", **variables)

    assert said == "I will remember that.\n"
    assert home.core == [*KEPT, "[anna.md] Anna sails"]


@pytest.mark.slow
def test_the_store_finds_what_was_put(home):
    put = run(home, "langgraph_agent.py", "food", "Bo likes rye bread")
    found = run(home, "langgraph_agent.py", "Which bread does Bo like?")

    assert (put, found) == ("", "food: Bo likes rye bread\n")
    assert home.core == [*KEPT, "[users/bo/food] Bo likes rye bread"]


@pytest.mark.slow
def test_the_conversation_is_handed_over(home, model):
    model.say("Hello Anna").say("Enjoy the wind")
    variables = {"OPENAI_API_KEY": "of a test", "OPENAI_BASE_URL": model.base_url}

    said = run(home, "openai_agent.py", stdin="My name is Anna\nI sail\n", **variables)

    assert said == "Hello Anna\nEnjoy the wind\n"
    assert KEPT[0] in str(model.requests[0]["messages"][0])
    (waiting,) = factories.live_tasks(home.agent)
    assert waiting.kind == "extraction"
