"""One line for each request and how long it took, under an id that its answer carries."""

import re
import time
import uuid
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from mmap import mmap
from threading import Lock

import structlog
from flask import Flask, Response, current_app, g, request

ID_HEADER = "X-Request-ID"
_WELL_FORMED = re.compile(r"[\w.:+/=-]{8,128}", re.ASCII)

# What machines ask for all the time.
_QUIET = {"static", "status.healthz", "status.readyz", "status.metrics"}
# Anybody can make up others.
_METHODS = ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS")
OTHER = "other"

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_STATUSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
_KEY = "refine.request_seconds"

_log = structlog.get_logger(__name__)


def register(app: Flask) -> None:
    """Call it before other hooks: what is registered first sees the answer last."""
    app.before_request(_begin)
    app.after_request(_end)
    app.teardown_request(_forget)


def share_durations(app: Flask, processes: int) -> None:
    """Prepare to count; call it once all routes are known, and before forks."""
    app.extensions[_KEY] = Durations(map(str, app.url_map.iter_rules()), processes)


def durations(app: Flask | None = None) -> "Durations":
    found: Durations = (app or current_app).extensions[_KEY]
    return found


def note(**ids: int | None) -> None:
    """Let all log lines of this request carry these ids."""
    structlog.contextvars.bind_contextvars(**ids)


def _begin() -> None:
    given = request.headers.get(ID_HEADER, "")
    g.request_id = given if _WELL_FORMED.fullmatch(given) else uuid.uuid4().hex
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=g.request_id)
    g.began = time.perf_counter()


def _end(answer: Response) -> Response:
    seconds = time.perf_counter() - g.began
    status, (method, route) = answer.status_code, asked()
    answer.headers[ID_HEADER] = g.request_id
    durations().add(route, f"{status // 100}xx", seconds)
    facts = {"method": method, "route": route, "status": status}
    log = _log.debug if request.endpoint in _QUIET else _log.info
    log("request", **facts, milliseconds=round(seconds * 1000, 1))
    return answer


def _forget(_fault: BaseException | None) -> None:
    structlog.contextvars.clear_contextvars()


def asked() -> tuple[str, str]:
    """Return method and route; no path, which may hold a link's secret."""
    method = request.method if request.method in _METHODS else OTHER
    return method, str(request.url_rule or OTHER)


class Durations:
    """Counts of durations in memory that forks share: each process adds to a part of its own."""

    def __init__(self, routes: Iterator[str], processes: int) -> None:
        labels = [(route, status) for route in (OTHER, *routes) for status in _STATUSES]
        self._rows = {label: number for number, label in enumerate(dict.fromkeys(labels))}
        # up to each bound, beyond, and the sum
        self._width = len(BOUNDS) + 2
        self._part = len(self._rows) * self._width
        self._figures = memoryview(mmap(-1, processes * self._part * 8)).cast("d")
        self._lock = Lock()
        self.process = 0

    def add(self, route: str, status: str, seconds: float) -> None:
        row = self._rows.get((route, status), self._rows[OTHER, status])
        start = self.process * self._part + row * self._width
        with self._lock:
            self._figures[start + bisect_left(BOUNDS, seconds)] += 1
            self._figures[start + self._width - 1] += seconds

    def totals(self) -> Iterator[tuple[tuple[str, str], Sequence[float], float]]:
        """Yield the counts by bound, and the sum, of all processes."""
        for label, row in self._rows.items():
            starts = range(row * self._width, len(self._figures), self._part)
            parts = [self._figures[start : start + self._width] for start in starts]
            *counts, total = map(sum, zip(*parts, strict=True))
            if any(counts):
                yield label, counts, total
