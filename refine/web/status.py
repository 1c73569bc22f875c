"""Liveness and readiness for load balancers, and metrics for Prometheus, all from the database."""

import hmac
import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any

from flask import Response, abort, jsonify, request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from refine import __version__, clock, refusals, request_log, settings
from refine.extensions import db
from refine.health import checks, clock_check, verification_check
from refine.models import PeriodicWork, Verification
from refine.models.runs.task import KINDS
from refine.models.runs.workload import RUN_SECONDS, Workload, ended_runs
from refine.web import scope

pages = scope.area("status")


@pages.get("/healthz")
@scope.public
def healthz() -> Response:
    return jsonify(status="ok")


@pages.get("/readyz")
@scope.public
def readyz() -> tuple[Response, int]:
    """Answer 200 if all that Refine needs is available, or 503; /ops alone says what is wrong."""
    found = checks()
    ready = all(check.is_ok for check in found)
    found += [clock_check(), verification_check()] if ready else []
    wrong = {check.name: check.text for check in found if not check.is_ok}
    if "verification" in wrong:
        wrong["verification"] = "see /ops"
    status = "unavailable" if not ready else "degraded" if wrong else "ok"
    states = {check.name: wrong.get(check.name, "ok") for check in found}
    return jsonify(status=status, **states), 200 if ready else 503


@pages.get("/metrics")
@scope.public
def metrics() -> Response:
    """Report figures to bearers of REFINE_METRICS_TOKEN, or only to loopback if none is set."""
    if not _may_read():
        abort(403, "Metrics need REFINE_METRICS_TOKEN as a bearer token; without one, loopback.")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures())
    try:
        return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
    except SQLAlchemyError:
        db.session.rollback()
        abort(503)


def _may_read() -> bool:
    token = settings.current().metrics_token
    if token is not None:
        given = request.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())
    # behind a proxy on this machine, every request seems to come from it
    is_forwarded = any(name in request.headers for name in ("Forwarded", "X-Forwarded-For"))
    return not is_forwarded and ipaddress.ip_address(request.remote_addr or "::").is_loopback


# The sums over ended runs of each kind.
_SUMS = {
    "prompt_tokens": "Prompt tokens",
    "cached_tokens": "Cached prompt tokens",
    "completion_tokens": "Completion tokens",
    "cost_usd": "Known cost",
    "unpriced_calls": "Model calls of unknown cost",
    "effect": "Tokens that sessions saved, memories that other runs added",
}
_Figure = tuple[tuple[str, ...], float | int]
# Labels, counts by bound and beyond, and the sum.
_Durations = tuple[tuple[str, ...], Sequence[float], float]


class _Figures(Collector):
    def collect(self) -> Iterator[Metric]:
        yield from _ended(ended_runs())
        yield from _present(clock.now())
        refused: list[_Figure] = [((kind,), count) for kind, count in refusals.totals().items()]
        yield _counters("refusals", "Refused requests and wrong passwords", ["kind"], refused)
        said = "How long this web server took for requests"
        took = request_log.durations().totals()
        yield _histogram("request_seconds", said, ["route", "status"], request_log.BOUNDS, took)
        version = GaugeMetricFamily("refine_build_info", "1, for its version", labels=["version"])
        version.add_metric([__version__], 1)
        yield version


def _ended(sums: Sequence[Any]) -> Iterator[Metric]:
    ended, faults = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    slots, seconds = Counter[tuple[str, str, int]](), Counter[tuple[str, str]]()
    for each in sums:
        ended[each.kind, each.status, each.trigger] += each.runs
        slots[each.kind, each.status, each.slot] += each.runs
        seconds[each.kind, each.status] += each.seconds
        if each.error_kind:
            faults[each.kind, each.error_kind] += each.runs
    by = ["kind", "status", "trigger"]
    yield _counters("runs", "Ended sessions, reflections and extractions", by, ended.items())
    yield _counters("run_faults", "Those ended by an error", ["kind", "error"], faults.items())
    took = [
        (of, [slots[*of, slot] for slot in range(len(RUN_SECONDS) + 1)], sum_)
        for of, sum_ in seconds.items()
    ]
    said = "How long workers had ended runs"
    yield _histogram("run_seconds", said, ["kind", "status"], RUN_SECONDS, took)
    for name, text in _SUMS.items():
        of_each: list[_Figure] = [
            ((kind,), float(sum(getattr(each, name) for each in sums if each.kind == kind)))
            for kind in ("session", *KINDS)
        ]
        yield _counters(f"run_{name}", f"{text}, of ended runs", ["kind"], of_each)


def _present(at: datetime) -> Iterator[Metric]:
    load, (alarm, last) = Workload.at(at), Verification.watch()
    oldest = min(load.sessions_since or at, load.tasks_since or at)
    figures: list[tuple[str, str, float]] = [
        ("queued_sessions", "Sessions waiting for a worker", load.sessions),
        ("running_sessions", "Running sessions", load.sessions_running),
        ("queued_reflections", "Reflections waiting for a worker", load.reflections),
        ("queued_extractions", "Conversations waiting for a worker", load.conversations),
        ("running_tasks", "Running reflections and extractions", load.tasks_running),
        ("queue_age_seconds", "How long the oldest run has waited", (at - oldest).total_seconds()),
        ("verification_failed", "1 while verification has failed or is late", alarm is not None),
    ]
    if last is not None and last.ended_at is not None:
        age = (at - last.ended_at).total_seconds()
        figures.append(("verification_age_seconds", "Since the last verification ended", age))
    if (seen := PeriodicWork.age("worker")) is not None:
        said = "Since a worker last looked for runs"
        figures.append(("worker_age_seconds", said, seen.total_seconds()))
    if (since := PeriodicWork.age("tick")) is not None:
        figures.append(("tick_age_seconds", "Since the last tick", since.total_seconds()))
    for name, text, figure in figures:
        yield GaugeMetricFamily(f"refine_{name}", text, value=figure)


def _counters(name: str, text: str, labels: list[str], figures: Iterable[_Figure]) -> Metric:
    family = CounterMetricFamily(f"refine_{name}", text, labels=labels)
    for values, figure in figures:
        family.add_metric(values, figure)
    return family


def _histogram(
    name: str,
    text: str,
    labels: list[str],
    bounds: Sequence[float],
    durations: Iterable[_Durations],
) -> Metric:
    family = HistogramMetricFamily(f"refine_{name}", text, labels=labels)
    names = [*map(str, bounds), "+Inf"]
    for values, counts, sum_ in durations:
        family.add_metric(values, list(zip(names, accumulate(counts), strict=True)), sum_)
    return family
