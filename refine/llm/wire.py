"""The sockets of one HTTP exchange; the waiting caller can cut them at any time."""

import socket
import threading
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection


class Wire:
    """The sockets that a thread opened for its exchange.

    A server that drips bytes, or repeats HTTP 100, keeps a thread reading for ever, whatever the
    timeouts of its socket. Cutting the socket ends the thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cut = False
        self._sockets: list[socket.socket] = []

    def session(self) -> requests.Session:
        """Return a session for the calling thread, all of whose sockets belong to this wire."""
        _of_this_thread.set(self)
        http = _Session()
        # a .netrc would replace the bearer token, a proxy would see the ledger
        http.trust_env = False
        for scheme in ("http://", "https://"):
            http.mount(scheme, _Adapter())
        return http

    def cut(self) -> None:
        """End all reading and writing, and refuse new connections."""
        with self._lock:
            self._is_cut = True
            for each in self._sockets:
                with suppress(OSError):  # it has ended
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
            self._sockets.clear()

    def keep(self, opened: socket.socket) -> socket.socket:
        """Return the new socket, which can be cut from now on; OSError if it is too late."""
        with self._lock:
            if self._is_cut:
                opened.close()
                raise ConnectionAbortedError("the request was cancelled")
            # a duplicate, because TLS takes the socket over
            self._sockets.append(opened.dup())
        return opened


_of_this_thread: ContextVar[Wire] = ContextVar("_of_this_thread")


class _Connection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _of_this_thread.get().keep(super()._new_conn())


class _SecureConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _of_this_thread.get().keep(super()._new_conn())


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}


class _Session(requests.Session):
    """Leaves redirects alone: told not to follow one, requests parses it and reads all of it."""

    def get_redirect_target(self, _response: requests.Response) -> None:
        return None
