"""The example agent with real processes: it saves, is refined, and reads a smaller context."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from refine.llm import rehearsal
from tests.commands import Up, eventually, refine, running_up

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent.py"

SAID = [
    "The boathouse key hangs behind the kitchen clock.",
    "Mira takes her tea without milk since the winter in Oslo.",
    "I promised to read the letters aloud on the first of May.",
    "The boathouse key hangs behind the kitchen clock",
    "The ferry at four is the last one that stops at the island.",
    "We agreed to call the grey cat Lieutenant, and not Captain.",
]


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with running_up() as running:
        running.ready()
        yield running


@pytest.mark.slow
def test_the_example_agent_saves_is_refined_and_reads_its_smaller_context(up):
    named = ("Gull", "--account", "demo", "--model", "rehearsal/gull")
    added = refine("agent", "add", *named, environ=up.environ)
    assert added.returncode == 0, added.stderr
    secret = refine("token", "add", "--agent", added.stdout.strip(), environ=up.environ).stdout
    own = requests.Session()
    own.headers["Authorization"] = f"Bearer {secret.strip()}"

    def of_agent(path: str) -> Any:
        return own.get(f"{up.url}/api/v1{path}", timeout=30).json()

    with rehearsal.serving(remembering) as model_url:
        environ = {"REFINE_URL": up.url, "REFINE_TOKEN": secret.strip()}
        environ |= {"MODEL_URL": model_url, "MODEL": "rehearsal/gull"}
        saved = talk(environ, *[f"Remember: {each}" for each in SAID], f"Remember: {SAID[0]}")
        before = of_agent("/context")
        asked = own.post(f"{up.url}/api/v1/sessions", timeout=30)
        eventually(lambda: of_agent("/sessions")["sessions"][0]["ended_at"], seconds=60)
        after = of_agent("/context")
        recalled = talk(environ, "What do you remember?")

    session = of_agent("/sessions")["sessions"][0]
    assert saved == ["I will remember that."] * 6 + ["I remember that already."]
    assert asked.status_code == 202
    assert (session["status"], session["trigger"]) == ("completed", "api")
    assert session["stats"]["consolidated"] == 2
    assert before["context"].count("boathouse") == 2
    assert after["context"].count("The boathouse key") == 1
    assert after["core_tokens"] < before["core_tokens"]
    assert recalled[0] == "I remember:"
    assert sum("boathouse key hangs" in line for line in recalled) == 1
    assert all(any(each in line for line in recalled) for each in SAID[1:3])


def remembering(body: dict[str, Any]) -> dict[str, Any]:
    """A model that saves what follows "Remember:", and repeats its memories when it is asked."""
    system, *_, last = body["messages"]
    message = {"role": "assistant", "content": f"I remember:\n{system['content']}"}
    if last["role"] == "tool":
        existing = json.loads(last["content"]).get("existing")
        said = "I remember that already." if existing else "I will remember that."
        message["content"] = said
    elif last["content"].startswith("Remember: "):
        memory = {"content": last["content"].removeprefix("Remember: "), "memory_type": "core"}
        function = {"name": "save_memory", "arguments": json.dumps(memory)}
        call = {"id": "call_1", "type": "function", "function": function}
        message |= {"content": None, "tool_calls": [call]}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def talk(environ: dict[str, str], *said: str) -> list[str]:
    """The example's answers, one per line."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        input="\n".join(said),
        capture_output=True,
        text=True,
        env=environ,
        timeout=120,
        check=True,
    )
    return done.stdout.splitlines()
