"""The example agent, and every line of the documentation that calls curl, with real processes."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from refine.llm import rehearsal
from tests.commands import Up, environment, eventually, refine, running_up

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "agent.py"
PAGES = [ROOT / "README.md", EXAMPLE.with_name("README.md"), *sorted(ROOT.glob("docs/*.md"))]
BLOCK = re.compile(r"^```(?:console|sh|bash|shell)\n(.*?)^```", re.MULTILINE | re.DOTALL)

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
    named = ("Tern", "--account", "demo", "--model", "rehearsal/gull")
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


def lines_with_curl(page: Path) -> list[str]:
    """What a reader types, from the blocks of a page in which curl is called."""
    blocks = [block for block in BLOCK.findall(page.read_text()) if "curl " in block]
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_every_line_with_curl_stands_in_a_block_that_can_be_run():
    for page in PAGES:
        typed = sum(line.startswith("curl ") for line in lines_with_curl(page))

        assert len(re.findall(r"\bcurl -", page.read_text())) == typed, page.name


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed here")
@pytest.mark.parametrize("text", list(filter(lines_with_curl, PAGES)), ids=lambda text: text.name)
def test_every_line_with_curl_runs_as_it_stands(up, text, tmp_path):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    # the pages name the usual port; each answer is told on stderr
    (tmp_path / ".curlrc").write_text(
        f'silent\nconnect-to = "localhost:8000:127.0.0.1:{up.port}"\n'
        'write-out = "%{stderr}%{response_code} %{content_type}\\n"\n'
    )
    token = refine("token", "add", "--agent", "Wren", environ=up.environ).stdout.strip()
    own = {"CURL_HOME": str(tmp_path), "REFINE_TOKEN": token}
    typed = lines_with_curl(text)

    done = subprocess.run(
        ["sh", "-e"],
        input="\n".join(typed),
        cwd=tmp_path,
        env=environment(up.environ | own),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    answers = [line.split(" ", 1) for line in done.stderr.splitlines()]
    calls = [line for line in typed if line.startswith("curl ")]
    for (status, kind), call in zip(answers, calls, strict=True):
        asked = "text/markdown" if "text/markdown" in call else "application/json"
        assert status.startswith("2"), (call, status)
        assert status == "204" or kind.startswith(asked), (call, kind)
