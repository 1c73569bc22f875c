"""Operations: what Refine stands on, what waits and runs, what failed and why."""

from datetime import timedelta

import pytest

from refine import clock
from refine.extensions import db
from refine.models import Account, RefinementSession
from tests import factories
from tests.web.conftest import said

pytestmark = pytest.mark.usefixtures("ticking")


def failed(account: Account, kind: str, days: int = 0, status: str = "failed") -> None:
    at = clock.now() - timedelta(days=days)
    agent = factories.agent("one", account=account)
    factories.ended(agent, status, f"it was the {kind}", error_kind=kind, at=at)
    db.session.commit()


def test_a_site_admin_sees_all_health_checks(site_admins):
    words = said(site_admins, "/ops")

    for line in (
        "database ✓ PostgreSQL answers",
        "migrations ✓ up to date",
        "keys ✓ REFINE_ENCRYPTION_KEYS holds every key in use",
        "redis ✓ Redis answers",
        "rotation ✓ every data key is wrapped with the first key",
        "schedule ✓ no runs ahead",
        "verification ! nothing has been verified yet",
        "queue ✓ 0 sessions waiting",
        "clock ✓ the last tick was",
    ):
        assert line in words


def test_an_admin_sees_only_queue_and_clock(dashboard):
    words = said(dashboard, "/ops")

    assert "queue ✓ 0 sessions waiting" in words
    assert "clock ✓" in words
    assert "database" not in words
    assert "keys" not in words


def test_sessions_waiting_without_a_worker_are_reported(dashboard, account):
    RefinementSession.queue(factories.agent("one", account=account, name="Ada"), "manual")
    RefinementSession.queue(factories.agent("one", name="Eve"), "manual")
    db.session.commit()

    words = said(dashboard, "/ops")

    assert "queue ✗ no worker, and 1 session waiting; start refine worker" in words
    assert "Running and waiting" in words
    assert "Ada ◔ queued" in words
    assert "Eve" not in words


def test_recent_failures_are_counted_by_reason(dashboard, account):
    for kind, days in (("timeout", 0), ("timeout", 29), ("timeout", 31), ("worker_lost", 1)):
        failed(account, kind, days)
    failed(account, "timeout", status="incomplete")
    failed(factories.account(), "timeout")

    words = said(dashboard, "/ops")

    assert "timeout 3 0 0" in words
    assert "worker lost 1 0 0" in words
    assert "✗ failed it was the worker_lost" in words
    assert "◑ incomplete it was the timeout" in words
