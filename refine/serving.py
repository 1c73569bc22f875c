"""The web server: waitress, within limits, in processes that share what they have loaded.

One thread of a process reads all requests and writes all answers, so a slow client holds up nobody;
a request is worked on once it has arrived whole, and is kept in memory alone until then.
"""

import errno
import resource
import signal
import socket
import time
from collections.abc import Mapping
from typing import Any
from wsgiref.types import WSGIApplication

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from refine import stopping
from refine.errors import Refused

# A process answers so many requests at the same time.
THREADS = 8
# It closes the oldest connections beyond that; each takes a file descriptor.
CONNECTIONS = 2_000
# Or beyond what it holds of requests that have not arrived whole, and answers not yet taken.
HELD_BYTES = 128 * 1024 * 1024
# No operation accepts so much.
BODY_BYTES = HELD_BYTES // 4
# What is being answered at a stop is finished within this time.
STOP_SECONDS = 8.0

_FILES = CONNECTIONS + 500
_ACCEPTED_AT_ONCE = 100
_BACKLOG = 1024
_WAKE_SECONDS = 0.5
# Looking at many connections takes a millisecond: what several of them send is read at once.
_MANY, _PAUSE_SECONDS = 100, 0.005
# waitress writes anything larger to the disk.
_NEVER = 1 << 40

_LIMITS = {
    "inbuf_overflow": _NEVER,
    "outbuf_overflow": _NEVER,
    "max_request_body_size": BODY_BYTES,
    "max_request_header_size": 64 * 1024,
    "channel_timeout": 75,  # longer than load balancers keep a connection: they must close first
    "cleanup_interval": 1,
    "connection_limit": 2 * CONNECTIONS,  # it would refuse new ones; there is room before
    "clear_untrusted_proxy_headers": False,  # the application knows how many proxies to believe
    "ident": None,
}


class _Listener(TcpWSGIServer):  # type: ignore[misc]
    """Takes many new connections at once, and never refuses one: it closes older ones instead."""

    def handle_accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            before = len(self._map)
            super().handle_accept()
            if len(self._map) == before:
                break
        if len(self._map) > CONNECTIONS:
            _make_room(_channels(self._map))

    def maintenance(self, now: float) -> None:
        super().maintenance(now)
        _make_room(_channels(self._map))


def bound_sockets(host: str | None, port: int) -> list[socket.socket]:
    """Listen at the port of this host, or of all addresses; Refused if that is not possible."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    for family, *_, address in sorted(found):  # IPv4 first: IPv6 may be turned off
        try:
            bound.append(socket.create_server(address, family=family, backlog=_BACKLOG))
        except OSError as error:
            if bound and error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                continue
            raise Refused(
                f"port {port} cannot be used ({error.strerror}); set PORT to another number"
            ) from None
    return bound


def serve(app: WSGIApplication, sockets: list[socket.socket], prefix: str) -> None:
    """Answer until SIGTERM or SIGINT, then finish what is being answered.

    ``prefix``: what a proxy leaves in front of paths; it becomes the SCRIPT_NAME.
    """
    _allow_files()
    open_ = _listen(app, sockets, prefix)
    with stopping.handle_stop_signals(signal.SIGTERM, signal.SIGINT):
        while not stopping.stop_requested():
            _step(open_)
    for listener in [each for each in open_.values() if each.accepting]:
        wasyncore.dispatcher.close(listener)
    deadline = time.monotonic() + STOP_SECONDS
    while any(map(_is_answered, _channels(open_))) and time.monotonic() < deadline:
        _step(open_)


def _listen(app: WSGIApplication, sockets: list[socket.socket], prefix: str) -> dict[int, Any]:
    """Return all that is open, by file descriptor."""
    open_: dict[int, Any] = {}
    limits = Adjustments(url_prefix=prefix, **_LIMITS)
    threads = ThreadedTaskDispatcher()
    threads.set_thread_count(THREADS)
    for each in sockets:
        info = each.family, each.type, each.proto, each.getsockname()
        _Listener(app, open_, True, each, threads, limits, info, False)
    return open_


def _step(open_: dict[int, Any]) -> None:
    if len(open_) > _MANY:
        time.sleep(_PAUSE_SECONDS)
    wasyncore.loop(_WAKE_SECONDS, use_poll=True, map=open_, count=1)


def _make_room(channels: list[HTTPChannel]) -> None:
    """Close connections beyond the limits, the oldest of those that wait for their client first."""
    waiting = [channel for channel in channels if not channel.requests]
    waiting.sort(key=lambda channel: channel.creation_time, reverse=True)
    surplus = len(channels) - CONNECTIONS
    held = sum(map(_held_bytes, waiting))
    while waiting and (surplus > 0 or held > HELD_BYTES):
        oldest = waiting.pop()
        surplus -= 1
        held -= _held_bytes(oldest)
        oldest.handle_close()


def _channels(open_: Mapping[int, Any]) -> list[HTTPChannel]:
    return [each for each in open_.values() if isinstance(each, HTTPChannel)]


def _held_bytes(channel: HTTPChannel) -> int:
    unread = channel.request.body_bytes_received if channel.request is not None else 0
    return int(unread + channel.total_outbufs_len)


def _is_answered(channel: HTTPChannel) -> bool:
    return bool(channel.requests or channel.total_outbufs_len)


def _allow_files() -> None:
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != files < _FILES:
        allowed = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
