"""A test that hangs fails by itself, alone or beside others, and the rest is still run."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

HEAD = """
import signal, threading, time
import pytest
from tests import time_limit
time_limit.QUICK_SECONDS = time_limit.SLOW_SECONDS = 1
time_limit.GRACE_SECONDS = {grace}

@pytest.fixture
def waiting():
    time.sleep(600)
"""

HANGING = {
    "lock": "def test_lock():\n    threading.Event().wait()",
    "loop": "def test_loop():\n    while True: pass",
    "catching": "def test_catching():\n"
    "    try: time.sleep(600)\n    except Exception: time.sleep(600)",
    "set_up": "def test_set_up(waiting): pass",
    "slow": "@pytest.mark.slow\ndef test_slow(): time.sleep(600)",
}
STUBBORN = "def test_stubborn():\n    signal.alarm(0)\n    time.sleep(600)"
AFTER = "def test_after_them(): pass"


def output_of(folder: Path, grace: int, *tests: str) -> str:
    """What pytest prints of a file with these tests, run by another process."""
    file = folder / "test_hanging.py"
    file.write_text("\n\n".join([HEAD.format(grace=grace), *tests]) + "\n")
    plugins = ["-p", "xdist", "-p", "tests.time_limit", "-p", "no:cacheprovider"]
    places = ["-c", os.devnull, "--rootdir", str(folder), str(file)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "pytest", *plugins, "-n", "1", *places],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    return done.stdout


def test_each_test_that_hangs_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    said = output_of(tmp_path, 600, *HANGING.values(), AFTER)

    assert "4 failed, 1 passed" in said
    assert "1 error" in said  # the one in its set-up
    assert "no end after 1 seconds" in said
    for name in HANGING:
        assert f"test_{name} _" in said
    assert 'test_hanging.py", line' in said  # where it stood


def test_a_test_that_survives_its_failure_takes_its_process_along(tmp_path: Path) -> None:
    said = output_of(tmp_path, 1, STUBBORN, AFTER)

    assert "crashed while running 'test_hanging.py::test_stubborn'" in said
    assert "1 passed" in said
