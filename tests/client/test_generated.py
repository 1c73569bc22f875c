"""Clients that generators make of the OpenAPI document compile strictly, and do an agent's day.

The generators are not among the project's packages. They are found on the PATH, in an environment
of its own with `openapi-python-client` and `mypy`; and in the folder NODE_FOLDER, where
`npm install openapi-typescript openapi-fetch typescript@5` was run.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from refine.api.document import document
from tests.client.conftest import KEPT, Home
from tests.commands import environment

SOURCES = Path(__file__).with_name("generated")
PYTHON = shutil.which("openapi-python-client")
NODE = Path(os.environ.get("NODE_FOLDER", "/nowhere"), "node_modules")

pytestmark = pytest.mark.nightly


def run(folder: Path, *command: str | Path, **variables: str) -> str:
    """What a command says; it must succeed."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python_client(folder: Path) -> list[str | Path]:
    """Generate and check it; return what runs the day."""
    # what its hook fixes is less strict than what it makes
    (folder / "config.yaml").write_text("package_name_override: refine_api\npost_hooks: []\n")
    given = ("--path", "openapi.json", "--config", "config.yaml")
    said = run(folder, str(PYTHON), "generate", *given, "--meta", "none", "--fail-on-warning")
    assert "Unable" not in said
    python = Path(str(PYTHON)).with_name("python")
    run(folder, python, "-m", "mypy", "--strict", ".")
    return [python, "day.py"]


def typescript_client(folder: Path) -> list[str | Path]:
    """Likewise."""
    (folder / "node_modules").symlink_to(NODE)
    (folder / "package.json").write_text('{"type": "module"}')
    generator, given = NODE / ".bin" / "openapi-typescript", ("openapi.json", "-o", "refine.ts")
    run(folder, generator, *given, "--default-non-nullable=false")  # a default may be left out
    compiled = ("--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom")
    strictly = ("--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes")
    run(folder, NODE / ".bin" / "tsc", *strictly, *compiled, "day.ts")
    return ["node", "day.js"]


@pytest.mark.parametrize(
    "generate",
    [
        pytest.param(
            python_client,
            marks=pytest.mark.skipif(PYTHON is None, reason="openapi-python-client is not here"),
        ),
        pytest.param(
            typescript_client,
            marks=pytest.mark.skipif(not NODE.exists(), reason="NODE_FOLDER has no packages"),
        ),
    ],
)
def test_a_generated_client_compiles_strictly_and_does_an_agents_day(
    home: Home, tmp_path: Path, generate
):
    (tmp_path / "openapi.json").write_text(json.dumps(document()))
    for source in SOURCES.iterdir():
        shutil.copy(source, tmp_path)
    locked = home.memories[0]
    home.lock(locked.id)
    day = generate(tmp_path)

    variables = {"REFINE_URL": home.url, "REFINE_TOKEN": home.token, "LOCKED_ID": str(locked.id)}
    said = json.loads(run(tmp_path, *day, **variables))
    after = home.core
    home.restore(said["edited"])

    assert (said["seen"], said["refused"], said["forgotten"]) == (
        "Anna has a sloop.",
        409,
        "forgotten",
    )
    assert said["edited"] in said["listed"]
    assert after == list(KEPT)
    assert home.core == [*KEPT, "Anna has a cutter."]
    assert home.told == [
        *("memory_constitutional_toggle", "memory_saved", "memory_corrected"),
        *("memory_forgotten", "memory_restored"),
    ]
