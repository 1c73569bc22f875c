import os
import tempfile
from pathlib import Path

import pytest

from refine.embedded import database_url, redis_url, socket_dir
from refine.errors import EmbeddedError


def folder_of_length(base: Path, length: int) -> Path:
    return base / ("x" * (length - len(str(base)) - 1))


def test_addresses_are_in_the_data_folder_and_start_nothing(data_dir: Path) -> None:
    assert database_url(data_dir).endswith(f"?host={data_dir}/run&port=5432")
    assert redis_url(data_dir) == f"unix://{data_dir}/run/valkey.sock?db=0"
    assert not data_dir.exists()


def test_relative_paths_and_links_give_the_same_address(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir.mkdir()
    (data_dir.parent / "link").symlink_to(data_dir)
    monkeypatch.chdir(data_dir.parent)

    assert database_url(Path("data")) == database_url(Path("link")) == database_url(data_dir)


def test_a_path_that_is_too_long_is_replaced() -> None:
    rest = len("/run/.s.PGSQL.5432")
    fits = folder_of_length(Path("/srv"), 103 - rest)
    too_long = folder_of_length(Path("/srv"), 104 - rest)

    assert socket_dir(fits) == fits / "run"
    assert socket_dir(too_long).parent == Path(tempfile.gettempdir())


@pytest.mark.parametrize("name", ["a space", "a'quote", 'a"quote', "ümlaut", "50%", "a?b", "a&b"])
def test_a_path_that_needs_quoting_is_replaced(name: str) -> None:
    folder = socket_dir(Path("/srv") / name)

    assert folder.parent == Path(tempfile.gettempdir())
    assert folder.name.startswith(f"refine-{os.geteuid()}-")


def test_a_temporary_directory_that_is_too_long_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/srv/" + "x" * 100)

    assert socket_dir(Path("/srv/a b")).parent == Path("/tmp")  # noqa: S108


def test_refuses_a_folder_that_others_may_enter() -> None:
    planted = socket_dir(Path("/srv/a b"))
    planted.mkdir()
    planted.chmod(0o755)

    with pytest.raises(EmbeddedError, match="not a private folder"):
        database_url(Path("/srv/a b"))


def test_refuses_a_link_instead_of_the_folder(tmp_path: Path) -> None:
    socket_dir(Path("/srv/a b")).symlink_to(tmp_path)

    with pytest.raises(EmbeddedError, match="not a private folder"):
        redis_url(Path("/srv/a b"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_refuses_a_folder_of_another_user() -> None:
    planted = socket_dir(Path("/srv/a b"))
    planted.mkdir(mode=0o700)
    os.chown(planted, 65534, 65534)

    with pytest.raises(EmbeddedError, match="not a private folder"):
        database_url(Path("/srv/a b"))
