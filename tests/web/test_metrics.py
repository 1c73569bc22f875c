"""What Prometheus is told, and who may ask."""

import re
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from refine import __version__, clock
from refine.extensions import db
from refine.models import PeriodicWork, RefinementSession
from refine.models.runs import task as tasks
from refine.models.runs.session.session import EndStatus
from tests import factories

DOCS = Path(__file__).parents[2] / "docs"


def ended(
    status: EndStatus,
    error_kind: str | None = None,
    at: datetime | None = None,
    **fields: object,
) -> RefinementSession:
    session = factories.session()
    for name, value in fields.items():
        setattr(session, name, value)
    session.finish(status, "it ended", error_kind=error_kind, at=at)
    db.session.commit()
    return session


def figures(client: FlaskClient) -> dict[tuple[str, ...], float]:
    """Every sample: its name and the values of its labels, and its figure."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_ended_sessions_are_counted_by_status_and_trigger(client):
    for status in ("completed", "completed", "declined"):
        ended(status)
    factories.session()

    told = figures(client)

    assert told["refine_runs_total", "session", "completed", "manual"] == 2
    assert told["refine_runs_total", "session", "declined", "manual"] == 1
    assert ("refine_runs_total", "session", "running", "manual") not in told


def test_no_names_or_content_are_reported(client):
    owner = factories.agent(*["the canary sings"] * 2, name="Canary", model_id="canary/model")
    RefinementSession.start(owner).finish("completed", "the canary sang")
    db.session.commit()

    answer = client.get("/metrics")

    assert "canary" not in answer.text.lower()


# -- who may ask ----------------------------------------------------------------------------------


def test_only_loopback_is_answered_without_a_token(client):
    forwarded = [{"X-Forwarded-For": "192.0.2.7"}, {"Forwarded": "for=192.0.2.7"}]
    requests: list[tuple[str, dict[str, str], int]] = [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("192.0.2.7", {}, 403),
        *(("127.0.0.1", headers, 403) for headers in forwarded),
    ]

    for address, headers, status in requests:
        answer = client.get("/metrics", headers=headers, environ_base={"REMOTE_ADDR": address})

        assert answer.status_code == status, (address, headers)


def test_only_the_bearer_of_the_token_is_answered(with_settings):
    client = with_settings(REFINE_METRICS_TOKEN="sesame").test_client()
    expected = {"Bearer sesame": 200, "Bearer sesam": 403, "sesame": 403, "": 403}

    answers = {
        authorization: client.get("/metrics", headers={"Authorization": authorization})
        for authorization in expected
    }

    assert {each: answer.status_code for each, answer in answers.items()} == expected
    refused = client.get("/metrics")
    assert refused.status_code == 403
    assert "Metrics need REFINE_METRICS_TOKEN as a bearer token" in refused.text


def test_metrics_are_unavailable_without_the_database(cut_off):
    assert cut_off.get("/metrics").status_code == 503


def test_reflections_and_extractions_are_counted_by_kind_and_outcome(client):
    task = factories.extraction(factories.agent(), "the canary sings")
    task.claim()
    tasks.save(task, "a canary")
    task.cost_usd, task.unpriced_calls = Decimal("0.25"), 2
    task.finish("completed")
    db.session.commit()

    told = figures(client)

    assert told["refine_runs_total", "extraction", "completed", "api"] == 1
    assert told["refine_run_effect_total", "extraction"] == 1
    assert told["refine_run_effect_total", "reflection"] == 0
    assert told["refine_run_cost_usd_total", "extraction"] == 0.25
    assert told["refine_run_unpriced_calls_total", "extraction"] == 2
    assert told["refine_run_unpriced_calls_total", "reflection"] == 0


def test_queued_and_running_sessions_are_reported(client):
    factories.session()
    for minutes in (5, 2):
        at = clock.now() - timedelta(minutes=minutes)
        RefinementSession.queue(factories.agent("a memory"), "manual", at=at)
    db.session.commit()

    told = figures(client)

    assert told["refine_running_sessions",] == 1
    assert told["refine_queued_sessions",] == 2
    assert 300 <= told["refine_queue_age_seconds",] < 330


# -- how long things take --------------------------------------------------------------------------


def test_ended_runs_are_counted_by_how_long_they_took(client):
    at = clock.now()
    for seconds in (0.5, 25, 2_000):
        ended("completed", at=at, started_at=at - timedelta(seconds=seconds))

    told = figures(client)

    by_bound = [
        told["refine_run_seconds_bucket", "session", bound, "completed"]
        for bound in ("1", "20", "30", "900", "+Inf")
    ]
    assert by_bound == [1, 1, 2, 2, 3]
    assert told["refine_run_seconds_count", "session", "completed"] == 3
    assert 2_025 <= told["refine_run_seconds_sum", "session", "completed"] < 2_040


def test_requests_are_counted_by_route_and_status(client):
    before = figures(client).get(("refine_request_seconds_count", "/healthz", "2xx"), 0)

    client.get("/healthz")

    assert figures(client)["refine_request_seconds_count", "/healthz", "2xx"] == before + 1


def test_the_version_is_told(client):
    assert figures(client)["refine_build_info", __version__] == 1


@pytest.mark.parametrize("file", ["grafana.json", "alerts.yaml"])
def test_boards_and_alerts_name_only_metrics_and_labels_that_exist(client, file):
    ended("failed", "worker_lost")
    for work in ("tick", "worker"):
        PeriodicWork.note(work, clock.now())
    db.session.commit()
    client.get("/healthz")
    said = (DOCS / file).read_text()
    families = list(text_string_to_metric_families(client.get("/metrics").text))
    names = {sample.name for family in families for sample in family.samples}
    labels = {label for family in families for sample in family.samples for label in sample.labels}

    assert set(re.findall(r"refine_\w+", said)) <= names
    by = {label for group in re.findall(r"by \(([\w, ]+)\)", said) for label in group.split(", ")}
    assert by | set(re.findall(r"(\w+)=\\?\"", said)) <= labels
