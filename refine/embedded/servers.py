"""Both embedded servers, for the process that owns them and for those that use them.

Three byte ranges of a file in the data folder carry one POSIX lock each. The kernel releases them
with the process that holds them, even after ``kill -9``, and a fork does not inherit them:

- OWNER, exclusive: the one process that starts and stops the servers.
- READY, exclusive, held by the owner: the servers answer.
- USERS, shared by the users of the servers; taken exclusively by the owner before it stops them.

So a holder of USERS can wait for the servers or become their owner; nobody stops them meanwhile.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen

from refine.embedded import postgres as postgresql, valkey as valkey_server
from refine.embedded.folders import make_private
from refine.embedded.processes import wait_until
from refine.errors import AlreadyRunning, EmbeddedError

_OWNER, _READY, _USERS = range(3)
_STARTING_SECONDS = 300  # longer than both servers may take to become ready
_SILENT_SECONDS = 1

Processes = dict[str, Popen[bytes]]

# The folders whose servers this process uses: it would be granted each lock again.
_in_use: set[Path] = set()
os.register_at_fork(after_in_child=_in_use.clear)


class _Lock:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def try_take(self, place: int, kind: int = fcntl.LOCK_EX) -> bool:
        try:
            fcntl.lockf(self._file, kind | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):  # POSIX allows either for "held by another"
            return False
        return True

    def try_own(self, holder: str) -> bool:
        if not self.try_take(_OWNER):
            return False
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()} {holder}".encode(), 0)
        return True

    def is_ready(self) -> bool:
        if not self.try_take(_READY, fcntl.LOCK_SH):
            return True
        self.release(_READY)
        return False

    def release(self, place: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)

    def close(self) -> None:
        os.close(self._file)

    def owner(self) -> tuple[int, str]:
        pid, _, holder = os.pread(self._file, 200, 0).decode().partition(" ")
        return int(pid or 0), holder or "command"


@contextmanager
def owned_servers(
    data_dir: Path,
    *,
    postgres: bool = True,
    valkey: bool = True,
    holder: str = "up",
    wait_seconds: float = 3,
) -> Iterator[Processes]:
    """Own the servers until the block ends; yield them, or AlreadyRunning, EmbeddedError."""
    data_dir = data_dir.resolve()
    with _lock_of(data_dir) as lock:
        if not wait_until(lambda: lock.try_own(holder), wait_seconds):
            raise AlreadyRunning(*lock.owner())
        with _running(data_dir, lock, postgres=postgres, valkey=valkey) as processes:
            yield processes


@contextmanager
def servers_available(
    data_dir: Path, *, postgres: bool, valkey: bool, holder: str
) -> Iterator[None]:
    """Use running servers until the block ends, or own them; EmbeddedError if one cannot run."""
    data_dir = data_dir.resolve()
    if data_dir in _in_use or not (postgres or valkey):
        yield
        return
    with _lock_of(data_dir) as lock:
        if _owns_or_joins(lock, holder):
            with _running(data_dir, lock, postgres=postgres, valkey=valkey):
                yield
        else:
            yield


@contextmanager
def _lock_of(data_dir: Path) -> Iterator[_Lock]:
    make_private(data_dir)
    lock = _Lock(data_dir / "servers.lock")
    _in_use.add(data_dir)
    try:
        yield lock
    finally:
        _in_use.discard(data_dir)
        lock.close()


def _owns_or_joins(lock: _Lock, holder: str) -> bool:
    """Return True to own the servers, False to use them; a user first, so no owner stops them."""
    wait_until(lambda: lock.try_take(_USERS, fcntl.LOCK_SH))
    owns = False

    def is_settled() -> bool:
        nonlocal owns
        owns = lock.try_own(holder)
        return owns or lock.is_ready()

    if not wait_until(is_settled, _STARTING_SECONDS):
        pid, other = lock.owner()
        raise EmbeddedError(f"the servers of refine {other} ({pid}) do not become ready")
    if owns:
        lock.release(_USERS)  # an owner is not a user: in the end it waits for them
    return owns


@contextmanager
def _running(data_dir: Path, lock: _Lock, *, postgres: bool, valkey: bool) -> Iterator[Processes]:
    processes: Processes = {}
    with ExitStack() as running:
        try:
            if postgres:
                processes["postgres"] = running.enter_context(postgresql.running(data_dir))
            if valkey:
                processes["valkey"] = running.enter_context(valkey_server.running(data_dir))
        except OSError as error:
            raise EmbeddedError(f"embedded servers in {data_dir} cannot start: {error}") from error
        wait_until(lambda: lock.try_take(_READY))  # unless a user is just looking
        try:
            yield processes
        finally:
            if not wait_until(lambda: lock.try_take(_USERS), _SILENT_SECONDS):
                user = "another refine command that uses the embedded servers"
                sys.stderr.write(f"refine: waiting for {user}\n")
                wait_until(lambda: lock.try_take(_USERS))
