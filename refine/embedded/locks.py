"""Locks that tell who owns a server, whether it is ready, and who uses it.

Three byte ranges of a file in the data folder carry one POSIX lock each. The kernel releases them
with the process that holds them, even after ``kill -9``, and a fork does not inherit them:

- OWNER, exclusive: the one process that starts and stops the server.
- READY, exclusive, held by the owner: the server answers.
- USERS, shared by the users of the server; taken exclusively by the owner before it stops it.

So a holder of USERS can wait for the server or become its owner, and nobody stops it meanwhile.
"""

import fcntl
import os
import threading
from pathlib import Path
from typing import NamedTuple

_OWNER, _READY, _USERS = range(3)
_EXCLUSIVE, _SHARED = fcntl.LOCK_EX, fcntl.LOCK_SH

_locks: dict[Path, "ServerLock"] = {}
os.register_at_fork(after_in_child=_locks.clear)


class Owner(NamedTuple):
    pid: int
    holder: str


def server_lock(path: Path) -> "ServerLock":
    """Return this process's only lock object for the file.

    POSIX locks belong to a process: it is always granted a second lock, and closing a second
    descriptor releases the locks of the first. So one object counts the users in this process.
    """
    return _locks.setdefault(path, ServerLock(path))


class ServerLock:
    """The lock of one server. Nothing here waits; ``try_…`` returns whether it succeeded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = threading.RLock()
        self._descriptor: int | None = None
        self._users = 0
        self._owned = self._ready = self._closing = False

    def try_own(self, holder: str) -> bool:
        """Become the owner, unless this or another process already is."""
        with self._guard:
            if self._owned or not self._try(_OWNER, _EXCLUSIVE):
                self._close_if_idle()
                return False
            self._owned = True
            self._write(f"{os.getpid()} {holder}\n")
            return True

    def try_mark_ready(self) -> bool:
        """For the owner: the server answers. Fails while another process checks that."""
        with self._guard:
            self._ready = self._try(_READY, _EXCLUSIVE)
            return self._ready

    def is_ready(self) -> bool:
        """Whether the server has an owner and answers; for its users."""
        with self._guard:
            if self._owned:
                return self._ready
            if not self._try(_READY, _SHARED):
                return True
            self._unlock(_READY)
            return False

    def try_use(self) -> bool:
        """Count as a user until ``leave``; fails while the server is being stopped."""
        with self._guard:
            if self._closing or not (self._users or self._try(_USERS, _SHARED)):
                self._close_if_idle()
                return False
            self._users += 1
            return True

    def leave(self) -> None:
        with self._guard:
            self._users -= 1
            if not self._users:
                self._unlock(_USERS)
            self._close_if_idle()

    def try_close(self) -> bool:
        """For the owner: admit no more users, if there are none."""
        with self._guard:
            self._closing = not self._users and self._try(_USERS, _EXCLUSIVE)
            return self._closing

    def disown(self) -> None:
        """For the owner, after the server has stopped."""
        with self._guard:
            self._write("")
            self._unlock(_READY)
            self._unlock(_OWNER)
            # last; otherwise a new user would find the old owner and trust it
            if not self._users:
                self._unlock(_USERS)
            self._owned = self._ready = self._closing = False
            self._close_if_idle()

    def owner(self) -> Owner:
        with self._guard:
            words = os.pread(self._open(), 200, 0).decode(errors="replace").split(maxsplit=1)
            self._close_if_idle()
        if len(words) < 2:
            return Owner(0, "command")
        return Owner(int(words[0]), words[1].strip())

    def _try(self, place: int, kind: int) -> bool:
        try:
            fcntl.lockf(self._open(), kind | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):  # POSIX allows either for "held by another"
            return False
        return True

    def _unlock(self, place: int) -> None:
        fcntl.lockf(self._open(), fcntl.LOCK_UN, 1, place)

    def _write(self, text: str) -> None:
        descriptor = self._open()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._descriptor

    def _close_if_idle(self) -> None:
        """Close the file if this process holds no lock on it: closing releases all of them."""
        if self._descriptor is not None and not self._owned and not self._users:
            os.close(self._descriptor)
            self._descriptor = None
