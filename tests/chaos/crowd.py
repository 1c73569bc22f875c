"""Clients that send a request so slowly that it never ends."""

import socket
import threading
from typing import Self

_OPENING = b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\nX-Slow: "


class Crowd:
    """So many connections; each sends a byte a second, and is opened again when it ends."""

    def __init__(self, port: int, clients: int) -> None:
        self._port, self._clients = port, clients
        self._open: list[socket.socket] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def move_to(self, port: int) -> None:
        """Open new connections to another port from now on."""
        self._port = port

    def _live(self) -> None:
        while not self._over.wait(1):
            self._open = [each for each in self._open if _drips(each)]
            while len(self._open) < self._clients and (opened := self._opened()) is not None:
                self._open.append(opened)
        for each in self._open:
            each.close()

    def _opened(self) -> socket.socket | None:
        try:
            opened = socket.create_connection(("127.0.0.1", self._port), timeout=1)
            opened.setblocking(False)
            opened.send(_OPENING)
        except OSError:
            return None
        return opened


def _drips(connection: socket.socket) -> bool:
    try:
        connection.send(b"x")
    except BlockingIOError:
        return True
    except OSError:
        connection.close()
        return False
    return True
