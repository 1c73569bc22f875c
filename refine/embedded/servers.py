"""Both embedded servers, for the process that owns them and for those that use them."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

from refine.embedded import postgres, valkey
from refine.embedded.locks import ServerLock, server_lock
from refine.embedded.private_folders import make_private
from refine.embedded.processes import POLL_SECONDS, wait_until
from refine.errors import AlreadyRunning, EmbeddedError

_STARTING_SECONDS = 180  # longer than a server may take to become ready
_ENDING_SECONDS = 1
_SILENT_SECONDS = 1


class _Kind(NamedTuple):
    """One of the two servers: its short name, its name for people, and how to run it."""

    name: str
    title: str
    running: Callable[[Path], AbstractContextManager[Popen[bytes]]]


# everybody takes them in this order and releases them in reverse, which rules out deadlocks
_POSTGRES = _Kind("postgres", "PostgreSQL", postgres.running)
_VALKEY = _Kind("valkey", "Valkey", valkey.running)

Processes = dict[str, Popen[bytes]]


def owned_servers(
    data_dir: Path,
    *,
    postgres: bool = True,
    valkey: bool = True,
    holder: str = "up",
    wait_seconds: float = 10,
) -> AbstractContextManager[Processes]:
    """Own the servers of a data folder in a ``with`` block; it yields their processes by name.

    For ``refine up``, from the main thread. Another owner gets ``wait_seconds`` to end, one of the
    same ``holder`` name a second. Raises AlreadyRunning or EmbeddedError. At the end it waits for
    other users of the servers, unless interrupted.
    """
    return _held(
        data_dir.resolve(),
        _wanted(postgres=postgres, valkey=valkey),
        lambda _kind, lock: _own(lock, holder, wait_seconds),
    )


def servers_available(
    data_dir: Path, *, postgres: bool, valkey: bool, holder: str
) -> AbstractContextManager[Processes]:
    """Use running servers in a ``with`` block, or own them; EmbeddedError if one cannot run."""
    return _held(
        data_dir.resolve(),
        _wanted(postgres=postgres, valkey=valkey),
        lambda kind, lock: _own_or_join(kind, lock, holder),
    )


def _wanted(*, postgres: bool, valkey: bool) -> list[_Kind]:
    return [kind for kind, wanted in ((_POSTGRES, postgres), (_VALKEY, valkey)) if wanted]


@contextmanager
def _held(
    data_dir: Path, kinds: list[_Kind], owns: Callable[[_Kind, ServerLock], bool]
) -> Iterator[Processes]:
    """Run the servers that ``owns`` makes us own, and count as a user of the others.

    At the end we first stop using, then wait for users of ours, then stop ours: so two processes
    that each use a server of the other never wait for each other.
    """
    owned: list[ServerLock] = []
    processes: Processes = {}
    with ExitStack() as running, _waiting_for_users(owned), ExitStack() as using:
        try:
            for kind in kinds:
                make_private(data_dir)
                lock = server_lock(data_dir / f"{kind.name}.lock")
                if owns(kind, lock):
                    server = _running(kind, data_dir, lock)
                    processes[kind.name] = running.enter_context(server)
                    owned.append(lock)
                else:
                    using.callback(lock.leave)
        except OSError as error:
            raise EmbeddedError(f"embedded servers in {data_dir} cannot start: {error}") from error
        yield processes


def _own(lock: ServerLock, holder: str, wait_seconds: float) -> bool:
    began = time.monotonic()
    while not lock.try_own(holder):
        owner = lock.owner()
        patience = min(wait_seconds, _ENDING_SECONDS) if owner.holder == holder else wait_seconds
        if time.monotonic() - began > patience:
            raise AlreadyRunning(owner.pid, owner.holder)
        time.sleep(POLL_SECONDS)
    return True


def _own_or_join(kind: _Kind, lock: ServerLock, holder: str) -> bool:
    """Return True if we own the server, False if it runs and we count as a user.

    We count as a user first: from then on no owner stops the server, and if one dies, we or another
    waiting process become the owner.
    """
    wait_until(lock.try_use)
    is_joined = False
    try:
        is_joined = not _own_unless_ready(kind, lock, holder)
    finally:
        if not is_joined:
            lock.leave()  # an owner is not a user: in the end it waits for them
    return not is_joined


def _own_unless_ready(kind: _Kind, lock: ServerLock, holder: str) -> bool:
    deadline = time.monotonic() + _STARTING_SECONDS
    while not lock.try_own(holder):
        if lock.is_ready():
            return False
        if time.monotonic() > deadline:
            owner = lock.owner()
            raise EmbeddedError(
                f"{kind.title} of refine {owner.holder} ({owner.pid}) does not become ready"
            )
        time.sleep(POLL_SECONDS)
    return True


@contextmanager
def _running(kind: _Kind, data_dir: Path, lock: ServerLock) -> Iterator[Popen[bytes]]:
    """Run the server that we have just come to own; give up ownership at the end."""
    try:
        with kind.running(data_dir) as process:
            wait_until(lock.try_mark_ready)
            yield process
    finally:
        lock.disown()


@contextmanager
def _waiting_for_users(owned: list[ServerLock]) -> Iterator[None]:
    """At the end, wait until nobody uses them, last server first: its users may need the other."""
    try:
        yield
    finally:
        if not wait_until(lambda: _try_close(owned), _SILENT_SECONDS):
            user = "another refine command that uses the embedded servers"
            sys.stderr.write(f"refine: waiting for {user}\n")
            wait_until(lambda: _try_close(owned))


def _try_close(owned: list[ServerLock]) -> bool:
    return all(lock.try_close() for lock in reversed(owned))
