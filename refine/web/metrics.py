"""Prometheus metrics, all from the database, so that every process reports the same."""

import hmac
import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator

from flask import Blueprint, Response, abort, request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from refine import clock, settings
from refine.extensions import db
from refine.models import ClockMark, MemoryTask, RefinementSession
from refine.models.runs.session import totals as session_totals
from refine.models.runs.session.totals import SessionSums
from refine.models.runs.task import KINDS
from refine.models.runs.task import totals as task_totals
from refine.web.scope import public

pages = Blueprint("metrics", __name__)


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
        sums = session_totals.sums()
        yield _sessions(sums)
        yield _faults(sums)
        yield _tokens(sums)
        yield CounterMetricFamily(
            "refine_session_cost_usd",
            "Cost of all sessions",
            value=float(sum(each.cost_usd for each in sums)),
        )
        yield CounterMetricFamily(
            "refine_sessions_lost",
            "Sessions whose worker was lost",
            value=sum(each.sessions for each in sums if each.error_kind == "worker_lost"),
        )
        yield from _tasks()
        yield from _ages()


def _sessions(sums: Iterable[SessionSums]) -> Metric:
    family = CounterMetricFamily(
        "refine_sessions", "Ended sessions by status and trigger", labels=["status", "trigger"]
    )
    counts: Counter[tuple[str, str]] = Counter()
    for each in sums:
        counts[each.status, each.trigger] += each.sessions
    for labels, count in counts.items():
        family.add_metric(labels, count)
    return family


def _faults(sums: Iterable[SessionSums]) -> Metric:
    family = CounterMetricFamily(
        "refine_session_faults", "Sessions that ended with an error, by its kind", labels=["kind"]
    )
    counts: Counter[str] = Counter()
    for each in sums:
        if each.error_kind is not None:
            counts[each.error_kind] += each.sessions
    for kind, count in counts.items():
        family.add_metric([kind], count)
    return family


def _tokens(sums: Iterable[SessionSums]) -> Metric:
    family = CounterMetricFamily(
        "refine_session_tokens", "Tokens of all sessions, by kind", labels=["kind"]
    )
    for kind in ("prompt", "cached", "completion", "removed"):
        family.add_metric([kind], sum(getattr(each, f"{kind}_tokens") for each in sums))
    return family


def _tasks() -> Iterator[Metric]:
    ended = CounterMetricFamily(
        "refine_memory_tasks",
        "Ended reflections and extractions by kind and status",
        labels=["kind", "status"],
    )
    kept = CounterMetricFamily(
        "refine_memory_task_memories",
        "Memories promoted or saved by reflections and extractions",
        labels=["kind"],
    )
    cost = CounterMetricFamily(
        "refine_memory_task_cost_usd", "Cost of reflections and extractions", labels=["kind"]
    )
    tallies = task_totals.sums()
    for tally in tallies:
        ended.add_metric([tally.kind, tally.status], tally.tasks)
    for kind in KINDS:
        mine = [tally for tally in tallies if tally.kind == kind]
        kept.add_metric([kind], sum(tally.memories_kept for tally in mine))
        cost.add_metric([kind], float(sum(tally.cost_usd for tally in mine)))
    yield from (ended, kept, cost)
    yield from _waiting_tasks()


def _waiting_tasks() -> Iterator[Metric]:
    now = clock.now()
    backlog = task_totals.backlog(now)
    queued = GaugeMetricFamily(
        "refine_queued_memory_tasks",
        "Reflections and extractions waiting for a worker",
        labels=["kind"],
    )
    queued.add_metric(["reflection"], backlog.reflections)
    queued.add_metric(["extraction"], backlog.conversations)
    yield queued
    yield GaugeMetricFamily(
        "refine_running_memory_tasks",
        "Reflections and extractions that are running",
        value=MemoryTask.running(),
    )
    yield GaugeMetricFamily(
        "refine_memory_task_queue_age_seconds",
        "How long the oldest waiting reflection or extraction has been due",
        value=(now - backlog.since).total_seconds() if backlog.since is not None else 0,
    )


def _ages() -> Iterator[Metric]:
    waiting, since = session_totals.waiting()
    yield GaugeMetricFamily(
        "refine_queued_sessions", "Sessions waiting for a worker", value=waiting
    )
    yield GaugeMetricFamily(
        "refine_running_sessions", "Running sessions", value=RefinementSession.running()
    )
    yield GaugeMetricFamily(
        "refine_queue_age_seconds",
        "How long the oldest queued session has waited",
        value=(clock.now() - since).total_seconds() if since is not None else 0,
    )
    age = ClockMark.age("tick")
    if age is not None:
        yield GaugeMetricFamily(
            "refine_tick_age_seconds", "Time since the clock last ticked", value=age.total_seconds()
        )
