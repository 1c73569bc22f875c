"""A process that crashes leaves no copy of its memory behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import environment

ROOT = Path(__file__).parent.parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="a limit of the system is asked for"),
]


@pytest.mark.parametrize(
    "loads",
    ["from refine.cli import main; main(['keys', 'new'])", "import app"],
    ids=["refine", "app"],
)
def test_a_process_and_its_children_are_not_dumpable(environ, loads):
    ask = "__import__('ctypes').CDLL(None).prctl(3, 0, 0, 0, 0)"  # PR_GET_DUMPABLE
    limit = "max(__import__('resource').getrlimit(__import__('resource').RLIMIT_CORE))"
    code = (
        "import os, sys\ntry: " + loads + "\nexcept SystemExit: pass\n"
        f"if os.fork() == 0: os._exit({ask} or {limit})\n"
        f"sys.exit(1 if {ask} or {limit} or os.wait()[1] else 77)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(environ), capture_output=True
    )

    assert done.returncode == 77, done.stderr.decode()
