"""Who owns a server, whether it is ready and who uses it: as the kernel knows it.

Three ranges of one file in the data folder carry a POSIX lock each. All go with the process that
holds them, even at ``kill -9``, and no fork inherits them:

- OWNER, exclusive: the one process that starts and stops the server.
- READY, exclusive, held by the owner: the server answers.
- USERS, shared by those who use the server; taken exclusively by the owner before it stops it.

So whoever holds USERS can wait for the server, or become its owner, and nobody stops it meanwhile.
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
    """The process that owns a server, and which command it is."""

    pid: int
    holder: str


def server_lock(path: Path) -> "ServerLock":
    """The lock on this file, one for the process.

    POSIX locks belong to processes: a second lock of ours would always be granted, and closing a
    second descriptor would drop the first one's. Hence one object, which counts.
    """
    return _locks.setdefault(path, ServerLock(path))


class ServerLock:
    """The lock of one server. Nothing here waits; ``try_…`` returns whether it did it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = threading.RLock()
        self._descriptor: int | None = None
        self._users = 0
        self._owned = self._ready = self._closing = False

    def try_own(self, holder: str) -> bool:
        """Become the owner, unless there is one, in this process or another."""
        with self._guard:
            if self._owned or not self._try(_OWNER, _EXCLUSIVE):
                self._close_if_idle()
                return False
            self._owned = True
            self._write(f"{os.getpid()} {holder}\n")
            return True

    def try_mark_ready(self) -> bool:
        """For the owner: the server answers. Fails while somebody looks whether it does."""
        with self._guard:
            self._ready = self._try(_READY, _EXCLUSIVE)
            return self._ready

    def is_ready(self) -> bool:
        """Whether the server has an owner and answers. Asked by those who use it."""
        with self._guard:
            if self._owned:
                return self._ready
            if not self._try(_READY, _SHARED):
                return True
            self._unlock(_READY)
            return False

    def try_use(self) -> bool:
        """Count as user until ``leave``; fails while the server is being stopped."""
        with self._guard:
            if self._closing or not (self._users or self._try(_USERS, _SHARED)):
                self._close_if_idle()
                return False
            self._users += 1
            return True

    def leave(self) -> None:
        """Count as user no more."""
        with self._guard:
            self._users -= 1
            if not self._users:
                self._unlock(_USERS)
            self._close_if_idle()

    def try_close(self) -> bool:
        """For the owner: let no more users in, once there are none."""
        with self._guard:
            self._closing = not self._users and self._try(_USERS, _EXCLUSIVE)
            return self._closing

    def disown(self) -> None:
        """For the owner, when the server has stopped.

        USERS last: a newcomer who is let in must not find the old owner, or it would trust it.
        """
        with self._guard:
            self._write("")
            self._unlock(_READY)
            self._unlock(_OWNER)
            if not self._users:
                self._unlock(_USERS)
            self._owned = self._ready = self._closing = False
            self._close_if_idle()

    def owner(self) -> Owner:
        """Who owns the server, by its own words; process 0 if it has not said so yet."""
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
        """Closing drops all locks of this process on the file, so only when it holds none."""
        if self._descriptor is not None and not self._owned and not self._users:
            os.close(self._descriptor)
            self._descriptor = None
