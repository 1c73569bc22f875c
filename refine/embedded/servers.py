"""The embedded servers as a whole: for the process that owns them and for those that use them."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from types import TracebackType
from typing import NamedTuple, Self

from refine.embedded import postgres, valkey
from refine.embedded.folders import make_private
from refine.embedded.locks import ServerLock, server_lock
from refine.embedded.processes import POLL_SECONDS
from refine.errors import AlreadyRunning, EmbeddedError

_STARTING_SECONDS = 180  # more than a server gets to become ready
_ENDING_SECONDS = 1
_SILENT_SECONDS = 1


class _Kind(NamedTuple):
    """One of the two servers: its short name, its name for people, and how to run it."""

    name: str
    title: str
    start: Callable[[Path], Popen[bytes]]
    stop: Callable[[Popen[bytes]], None]

    def lock(self, data_dir: Path) -> ServerLock:
        return server_lock(data_dir / f"{self.name}.lock")


# Everybody goes through them in this order and back, so that no two wait for each other.
_POSTGRES = _Kind("postgres", "PostgreSQL", postgres.start, postgres.stop)
_VALKEY = _Kind("valkey", "Valkey", valkey.start, valkey.stop)


class EmbeddedServers:
    """Owns the servers of a data folder within a ``with`` block: starts them, then stops them.

    For ``refine up``, from the main thread. A command that owns them for a short time is given
    ``wait_seconds`` to end; an owner of the same name (``holder``) one second, in case it is just
    ending. Raises AlreadyRunning if they stay owned, EmbeddedError if one cannot run. At the end it
    waits until no other process uses them; Ctrl-C cuts that short.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        postgres: bool = True,
        valkey: bool = True,
        holder: str = "up",
        wait_seconds: float = 10,
    ) -> None:
        self._processes: dict[str, Popen[bytes]] = {}
        self._held = _held(
            data_dir.resolve(),
            _wanted(postgres=postgres, valkey=valkey),
            lambda _kind, lock: _own(lock, holder, wait_seconds),
        )

    @property
    def processes(self) -> dict[str, Popen[bytes]]:
        """The servers' processes by name, ``postgres`` and ``valkey``, for those who watch them."""
        return dict(self._processes)

    def __enter__(self) -> Self:
        self._processes = self._held.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held.__exit__(kind, error, traceback)
        self._processes = {}


def servers_available(
    data_dir: Path, *, postgres: bool, valkey: bool, holder: str
) -> AbstractContextManager[object]:
    """Has the servers run within a ``with`` block: those that run already, else some of its own.

    For every command but ``refine up``, which ``holder`` names; blocks may be nested. Raises
    EmbeddedError if a server cannot run. Servers of its own stop after the block, once no other
    process uses them.
    """
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
) -> Iterator[dict[str, Popen[bytes]]]:
    """Runs the servers that ``owns`` has us own, and counts as user of the others.

    At the end we leave first, then wait for those who use ours, then stop: of two processes that
    each use a server of the other neither waits for ever.
    """
    owned: list[ServerLock] = []
    processes: dict[str, Popen[bytes]] = {}
    with ExitStack() as running, _users_awaited(owned), ExitStack() as using:
        with _failures_told(data_dir):
            for kind in kinds:
                make_private(data_dir)
                lock = kind.lock(data_dir)
                if owns(kind, lock):
                    server = _running(kind, data_dir, lock)
                    processes[kind.name] = running.enter_context(server)
                    owned.append(lock)
                else:
                    using.callback(lock.leave)
        yield processes


@contextmanager
def _failures_told(data_dir: Path) -> Iterator[None]:
    """A folder that cannot be written, a full disk and the like, as an error for a person."""
    try:
        yield
    except OSError as error:
        raise EmbeddedError(f"embedded servers in {data_dir} cannot start: {error}") from error


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
    """True if the server is ours to run, False if it runs and we count among its users.

    Counting comes first: from then on no owner stops the server, so one that is ready stays, and
    one that dies leaves the ownership to us or to another who waits here.
    """
    _until(lock.try_use)
    try:
        owned = _own_unless_ready(kind, lock, holder)
    except BaseException:
        lock.leave()
        raise
    if owned:
        lock.leave()  # an owner needs no place among the users, whom it waits for in the end
    return owned


def _own_unless_ready(kind: _Kind, lock: ServerLock, holder: str) -> bool:
    deadline = time.monotonic() + _STARTING_SECONDS
    while not lock.try_own(holder):
        if lock.is_ready():
            return False
        if time.monotonic() > deadline:
            owner = lock.owner()
            raise EmbeddedError(f"{kind.title} of refine {owner.holder} ({owner.pid}) hangs")
        time.sleep(POLL_SECONDS)
    return True


@contextmanager
def _running(kind: _Kind, data_dir: Path, lock: ServerLock) -> Iterator[Popen[bytes]]:
    """Runs the server that we have just come to own; at the end it is owned no more."""
    try:
        process = kind.start(data_dir)
        try:
            _until(lock.try_mark_ready)
            yield process
        finally:
            kind.stop(process)
    finally:
        lock.disown()


@contextmanager
def _users_awaited(owned: list[ServerLock]) -> Iterator[None]:
    """At the end lets nobody else in, once nobody is in.

    The last server first: who uses it may still come to want the one before.
    """
    try:
        yield
    finally:
        _until(
            lambda: all(lock.try_close() for lock in reversed(owned)),
            waiting_for="another refine command that uses the embedded servers",
        )


def _until(attempt: Callable[[], bool], *, waiting_for: str | None = None) -> None:
    """Tries again and again; says after a second on stderr what it is waiting for, if told."""
    told = time.monotonic() + _SILENT_SECONDS if waiting_for else float("inf")
    while not attempt():
        if time.monotonic() > told:
            sys.stderr.write(f"refine: waiting for {waiting_for}\n")
            told = float("inf")
        time.sleep(POLL_SECONDS)
