import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refine.embedded import kept_secret
from refine.errors import SettingsError

from .processes import Script


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o277])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_secret_is_created_once_and_kept(data_dir: Path) -> None:
    made = iter(["first", "second"])

    assert kept_secret(data_dir, "key", lambda: next(made)) == "first"
    assert kept_secret(data_dir, "key", lambda: next(made)) == "first"


@pytest.mark.usefixtures("umask")
def test_secret_and_folder_are_private_whatever_the_umask(data_dir: Path) -> None:
    kept_secret(data_dir, "key", lambda: "secret")

    assert mode(data_dir) == 0o700
    assert mode(data_dir / "key") == 0o600


def test_an_empty_file_is_refused_and_kept(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "key").touch()

    with pytest.raises(SettingsError, match="is empty"):
        kept_secret(data_dir, "key", lambda: "other")
    assert (data_dir / "key").read_text() == ""


def test_concurrent_processes_get_the_same_secrets(
    script: Callable[..., Script], data_dir: Path
) -> None:
    processes = [script("keep_secret", data_dir, 50) for _ in range(6)]

    seen = [process.end()[1].split() for process in processes]

    assert len(set(seen[0])) == 50
    assert all(secrets == seen[0] for secrets in seen)
    assert {mode(path) for path in data_dir.iterdir()} == {0o600}
