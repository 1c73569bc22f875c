"""`refine up` starts everything with one command, and leaves nothing running."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from refine import application, create_app
from refine.settings import Settings
from tests.commands import Up, children_of, eventually, is_alive, refine, running_up
from tests.embedded.processes import processes_of

PROCESSES = ("web", "worker", "clock")


def process_called(name: str, parent: int) -> int:
    """The process of that name that `refine up` has started."""
    (pid,) = [
        pid for pid in children_of(parent) if Path(f"/proc/{pid}/comm").read_text() == f"{name}\n"
    ]
    return pid


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with running_up() as running:
        yield running


def test_forks_get_the_application_that_was_built_for_them(environ, monkeypatch):
    monkeypatch.setattr(application, "_built", {})
    settings = Settings.from_environ(environ)
    application.build_for_forks(settings)

    built = create_app(Settings.from_environ(environ))
    other = create_app(Settings.from_environ({**environ, "PORT": "8001"}))

    assert built is create_app(settings)
    assert other is not built


@pytest.mark.slow
def test_a_killed_worker_leaves_the_dashboard_up_and_is_started_again(up):
    up.ready()
    supervisor = up.process.pid
    web, worker, clock = (process_called(f"refine {name}", supervisor) for name in PROCESSES)

    os.kill(worker, signal.SIGKILL)
    eventually(lambda: not is_alive(worker))
    answer = requests.get(f"{up.url}/sign-in", timeout=10)
    ran = refine("run", "Halyard", "--enqueue", environ=up.environ)
    session = re.search(r"[0-9a-f-]{36}", ran.stdout)

    assert answer.status_code == 200
    assert session is not None
    eventually(lambda: any(session[0] in line and '"status": "' in line for line in up.said))
    assert any("worker was killed by SIGKILL; starting it again in 2 s" in said for said in up.said)
    assert is_alive(web)
    assert is_alive(clock)
    assert process_called("refine worker", supervisor) != worker


@pytest.mark.slow
def test_one_command_starts_serves_and_stops_everything(up):
    line = up.ready()

    answer = requests.get(f"http://127.0.0.1:{up.port}/readyz", timeout=10)
    ran = refine("run", "Halyard", "--enqueue", environ=up.environ)
    listed = refine("agent", "list", "--account", "demo", environ=up.environ)
    again = refine("up", environ=up.environ)
    taken = refine("up", environ={**up.environ, "REFINE_DATA_DIR": f"{up.folder}/other"})
    code = up.end()

    assert re.search(
        rf"refine is ready: http://localhost:{up.port} - "
        r"sign in as admin@localhost with the password \S{16}\n?$",
        line,
    )
    assert answer.json()["status"] == "ok"
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Halyard" in listed.stdout
    assert again.returncode == 1
    assert re.fullmatch(
        rf"refine: refine up already runs .* it answers at http://localhost:{up.port}\n",
        again.stderr,
    )
    assert taken.returncode == 1
    assert f"refine: port {up.port} cannot be used" in taken.stderr
    assert code == 0
    assert processes_of(up.folder) == []
