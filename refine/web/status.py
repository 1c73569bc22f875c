"""Liveness and readiness for load balancers, and metrics for Prometheus, all from the database."""

import hmac
import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from flask import Blueprint, Response, abort, jsonify, request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from refine import clock, refusals, settings
from refine.errors import Unreachable
from refine.extensions import db
from refine.health import Check, checks, clock_check, look_for_workers, verification_check
from refine.models import ClockMark, Verification
from refine.models.runs import WORKER_LOST
from refine.models.runs.task import KINDS
from refine.models.runs.workload import EndedRuns, Workload, ended_runs
from refine.web.scope import public

pages = Blueprint("status", __name__)


@pages.get("/healthz")
@public
def healthz() -> Response:
    return jsonify(status="ok")


@pages.get("/readyz")
@public
def readyz() -> tuple[Response, int]:
    """Answer 200 if all that Refine needs is available, or 503.

    A stopped clock and a verification that alarms are ``degraded``; /ops alone says what is wrong.
    """
    found = checks()
    ready = all(check.is_ok for check in found)
    if ready:
        verified = Check("verification", None if verification_check().is_ok else "see /ops")
        found += [clock_check(), verified]
    is_well = all(check.is_ok for check in found)
    status = "unavailable" if not ready else "ok" if is_well else "degraded"
    states = {check.name: check.problem or check.warning or "ok" for check in found}
    return jsonify(status=status, **states), 200 if ready else 503


_Labels = tuple[str, ...]
_TASKS: list[_Labels] = [(kind,) for kind in KINDS]


@pages.get("/metrics")
@public
def metrics() -> Response:
    """Report sessions, tokens, cost, and the ages of queue and tick; no names, no content.

    Answers bearers of REFINE_METRICS_TOKEN, or only loopback if none is set; 503 without a
    database.
    """
    if not _may_read():
        abort(403)
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


class _Figures(Collector):
    def collect(self) -> Iterator[Metric]:
        """Read every family of metrics from the database."""
        ended, at = ended_runs(), clock.now()
        yield from _sessions([each for each in ended if each.kind == "session"])
        yield from _tasks([each for each in ended if each.kind != "session"])
        yield from _waiting(at)
        yield from _verification(at)
        yield from _workers_and_clock()
        refused: dict[_Labels, int] = {(kind,): count for kind, count in refusals.totals().items()}
        yield _counter("refusals", "Refused requests and wrong passwords", refused, ("kind",))


def _sessions(sums: Sequence[EndedRuns]) -> Iterator[Metric]:
    ended, faults = Counter[_Labels](), Counter[_Labels]()
    for each in sums:
        ended[each.status, each.trigger] += each.runs
        if each.error_kind:
            faults[each.error_kind,] += each.runs
    tokens: dict[_Labels, int] = {
        ("prompt",): sum(each.prompt_tokens for each in sums),
        ("cached",): sum(each.cached_tokens for each in sums),
        ("completion",): sum(each.completion_tokens for each in sums),
        ("removed",): sum(each.effect for each in sums),
    }
    cost = float(sum(each.cost_usd for each in sums))
    unpriced = sum(each.unpriced_calls for each in sums)
    by_end, by_kind, unknown = ("status", "trigger"), ("kind",), "of sessions whose cost is unknown"
    yield _counter("sessions", "Ended sessions by status and trigger", ended, by_end)
    yield _counter("session_faults", "Sessions ended by an error, by its kind", faults, by_kind)
    yield _counter("session_tokens", "Tokens of all sessions, by kind", tokens, by_kind)
    yield _counter("session_cost_usd", "Cost of all sessions", {(): cost})
    yield _counter("session_unpriced_calls", f"Model calls {unknown}", {(): unpriced})
    lost = faults[WORKER_LOST,]
    yield _counter("sessions_lost", "Sessions whose worker was lost", {(): lost})


def _tasks(sums: Sequence[EndedRuns]) -> Iterator[Metric]:
    ended = Counter[_Labels]()
    kept, cost, unpriced = (dict.fromkeys(_TASKS, 0.0) for _ in range(3))
    for each in sums:
        ended[each.kind, each.status] += each.runs
        kept[each.kind,] += each.effect
        cost[each.kind,] += float(each.cost_usd)
        unpriced[each.kind,] += each.unpriced_calls
    of, by_kind = "reflections and extractions", ("kind",)
    yield _counter("memory_tasks", f"Ended {of} by kind and status", ended, ("kind", "status"))
    yield _counter("memory_task_memories", f"Memories added by {of}", kept, by_kind)
    yield _counter("memory_task_cost_usd", f"Cost of {of}", cost, by_kind)
    unknown = f"Model calls of {of} whose cost is unknown"
    yield _counter("memory_task_unpriced_calls", unknown, unpriced, by_kind)


def _waiting(at: datetime) -> Iterator[Metric]:
    load, of = Workload.at(at), "reflections and extractions"
    queued = {"reflection": load.reflections, "extraction": load.conversations}
    tasks_age = (at - (load.tasks_since or at)).total_seconds()
    age = (at - (load.sessions_since or at)).total_seconds()
    yield _gauges("queued_memory_tasks", f"Waiting {of}", "kind", queued)
    yield _gauge("running_memory_tasks", f"Running {of}", load.tasks_running)
    yield _gauge("memory_task_queue_age_seconds", f"Longest wait of {of} that are due", tasks_age)
    yield _gauge("queued_sessions", "Sessions waiting for a worker", load.sessions)
    yield _gauge("running_sessions", "Running sessions", load.sessions_running)
    yield _gauge("queue_age_seconds", "How long the oldest queued session has waited", age)


def _verification(at: datetime) -> Iterator[Metric]:
    alarm, last = Verification.watch()
    alarms = "1 while a verification has failed or is overdue"
    yield _gauge("verification_failed", alarms, alarm is not None)
    if last is not None and last.ended_at is not None:
        age = (at - last.ended_at).total_seconds()
        yield _gauge("verification_age_seconds", "Time since the last verification ended", age)


def _workers_and_clock() -> Iterator[Metric]:
    if not isinstance(found := look_for_workers(), Unreachable):
        workers = sum(each.serves_runs for each in found)
        yield _gauge("workers", "Workers that sent a heartbeat just now", workers)
    if (age := ClockMark.age("tick")) is not None:
        yield _gauge("tick_age_seconds", "Time since the clock last ticked", age.total_seconds())


def _counter(
    name: str, text: str, figures: Mapping[_Labels, float], labels: Sequence[str] = ()
) -> Metric:
    family = CounterMetricFamily(f"refine_{name}", text, labels=labels)
    for values, figure in figures.items():
        family.add_metric(values, figure)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"refine_{name}", text, value=value)


def _gauges(name: str, text: str, label: str, figures: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"refine_{name}", text, labels=[label])
    for value, figure in figures.items():
        family.add_metric([value], figure)
    return family
