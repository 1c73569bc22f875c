"""The package: what it holds, and that it runs where there is no copy of the sources."""

import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import requests

from tests.commands import environment, eventually
from tests.supply.locked import ROOT

pytestmark = pytest.mark.slow

PACKAGES = ("refine", "refine_client")
BESIDE_THEM = ("bench", "migrations", "static", "templates")
# What a build leaves behind is not copied.
_LEFT_OUT = "__pycache__"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("packages")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        timeout=120,
    )
    (sdist,) = folder.glob("*.tar.gz")
    building = ("-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder)
    subprocess.run([sys.executable, *building, sdist], check=True, timeout=120)
    return folder


def wheel_in(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def files_in(*folders: str) -> Iterator[str]:
    for folder in folders:
        for file in (ROOT / folder, *(ROOT / folder).rglob("*")):
            if file.is_file() and _LEFT_OUT not in file.parts:
                yield file.relative_to(ROOT).as_posix()


def test_the_wheel_has_every_file_that_it_reads(packages):
    wanted = {*files_in(*PACKAGES), *(f"refine/_root/{file}" for file in files_in(*BESIDE_THEM))}

    with zipfile.ZipFile(wheel_in(packages)) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}

    assert packed == wanted


def test_the_same_sources_make_the_same_wheel(packages, tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)

    assert wheel_in(tmp_path).read_bytes() == wheel_in(packages).read_bytes()


@pytest.fixture
def installed(packages: Path) -> Iterator[Path]:
    """An empty folder beside an environment with the wheel, where this checkout is not found."""
    with TemporaryDirectory(prefix="refine-wheel-") as folder:
        environment_ = Path(folder) / "venv"
        venv.create(environment_, symlinks=True)
        site = next(environment_.glob("lib/python*/site-packages"))
        # what the lock pins is installed here already; the editable Refine beside it is not seen
        (site / "pinned.pth").write_text(sysconfig.get_path("purelib"))
        installing = ("-m", "pip", "--python", environment_ / "bin" / "python", "install", "-q")
        wheel = wheel_in(packages)
        subprocess.run(
            [sys.executable, *installing, "--no-deps", "--no-index", wheel], check=True, timeout=120
        )
        empty = Path(folder) / "empty"
        empty.mkdir()
        yield empty


def test_the_wheel_alone_starts_runs_a_session_and_verifies(installed):
    refine = str(installed.parent / "venv" / "bin" / "refine")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = environment({"PORT": str(port)})

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [refine, *arguments],
            cwd=installed,
            env=own,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with (installed.parent / "said").open("w") as said:
        up = subprocess.Popen([refine, "up"], cwd=installed, env=own, stdout=said, stderr=said)
    try:
        eventually(lambda: "is ready" in (installed.parent / "said").read_text())
        page = requests.get(f"http://127.0.0.1:{port}/sign-in", timeout=10)
        style = re.search(r'href="(/static/[^"]+\.css[^"]*)"', page.text)
        assert style is not None
        assert requests.get(f"http://127.0.0.1:{port}{style[1]}", timeout=10).ok
        session, verified = run("run", "Wren"), run("audit", "verify")
        helped = run("evaluate", "--help")
    finally:
        up.send_signal(signal.SIGTERM)
        code = up.wait(60)

    assert "completed" in session
    assert verified.startswith("verified: ")
    assert "MODEL" in helped
    assert code == 0
    assert os.listdir(installed) == [".refine"]
