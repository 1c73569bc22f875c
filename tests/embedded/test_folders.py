import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from refine.embedded import database_url, kept_secret, redis_url, socket_dir
from refine.errors import EmbeddedError, SettingsError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_addresses_are_in_the_data_folder_and_start_nothing(data_dir):
    assert database_url(data_dir).endswith(f"?host={data_dir}/run&port=5432")
    assert redis_url(data_dir) == f"unix://{data_dir}/run/valkey.sock?db=0"
    assert not data_dir.exists()


def test_relative_paths_and_links_give_the_same_address(data_dir, monkeypatch):
    data_dir.mkdir()
    (data_dir.parent / "link").symlink_to(data_dir)
    monkeypatch.chdir(data_dir.parent)

    assert database_url(Path("data")) == database_url(Path("link")) == database_url(data_dir)


def open_to_others(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)


def a_link(folder: Path) -> None:
    folder.symlink_to(tempfile.mkdtemp())


def of_another_user(folder: Path) -> None:
    if os.geteuid() != 0:
        # the gate runs as root, where this case is never skipped
        pytest.skip("only root can give a folder to somebody else")
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)


@pytest.mark.parametrize("plant", [open_to_others, a_link, of_another_user])
def test_refuses_a_folder_that_somebody_else_could_have_planted(plant):
    plant(socket_dir(Path("/srv/a b")))

    with pytest.raises(EmbeddedError, match="not a private folder"):
        database_url(Path("/srv/a b"))


@pytest.fixture(params=[0o000, 0o022, 0o277])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_secret_is_created_once_and_private_whatever_the_umask(data_dir):
    made = iter(["first", "second"])

    assert kept_secret(data_dir, "key", lambda: next(made)) == "first"
    assert kept_secret(data_dir, "key", lambda: next(made)) == "first"

    assert mode(data_dir) == 0o700
    assert mode(data_dir / "key") == 0o600


def test_an_empty_file_is_refused_and_kept(data_dir):
    data_dir.mkdir()
    (data_dir / "key").touch()

    with pytest.raises(SettingsError, match="is empty"):
        kept_secret(data_dir, "key", lambda: "other")
    assert (data_dir / "key").read_text() == ""


def test_concurrent_processes_get_the_same_secrets(script, data_dir):
    processes = [script("keep_secrets", data_dir, 50) for _ in range(6)]

    seen = [process.end()[1].split() for process in processes]

    assert len(set(seen[0])) == 50
    assert all(secrets == seen[0] for secrets in seen)
    assert {mode(path) for path in data_dir.iterdir()} == {0o600}
