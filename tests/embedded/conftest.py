"""Real servers in temporary folders, and helper processes that own them."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refine.embedded import owned_servers
from tests.commands import eventually

from .processes import Script, processes_of


@pytest.fixture(autouse=True)
def short_temporary_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A short temporary directory for sockets whose own path is too long."""
    folder = tempfile.mkdtemp(prefix="refine-t-")
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    shutil.rmtree(folder)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory if there is room: a database of forty megabytes keeps a disk busy."""
    memory = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a private folder
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 1_000_000_000
    folder = tempfile.mkdtemp(prefix="refine-test-", dir=memory if roomy else None)
    yield Path(folder)
    shutil.rmtree(folder)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data folder that does not exist yet."""
    return tmp_path / "data"


@pytest.fixture(scope="session")
def first_start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder after a first start."""
    folder = tmp_path_factory.mktemp("first") / "data"
    with owned_servers(folder):
        pass
    return folder


@pytest.fixture
def used_dir(first_start: Path, data_dir: Path) -> Path:
    """A copy of the folder after a first start, which saves the time of one."""
    subprocess.run(["/usr/bin/env", "cp", "-a", first_start, data_dir], check=True)  # noqa: S603
    return data_dir


@pytest.fixture(autouse=True)
def no_process_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if a process with the folder in its arguments or environment is left."""
    monkeypatch.setenv("REFINE_TEST_RUN", str(tmp_path))
    yield
    eventually(lambda: not processes_of(tmp_path), seconds=10)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    """Start ``script.py`` with these arguments; kill it if the test does not end it."""
    started: list[Script] = []

    def start(name: str, *arguments: object, prefix: tuple[str, ...] = ()) -> Script:
        started.append(Script(name, arguments, prefix))
        return started[-1]

    yield start
    for process in started:
        process.kill()
