"""Operations: what Refine stands on, what waits and runs, what failed and why."""

from datetime import timedelta

import pytest
from flask import Flask
from redis import Redis

from refine import clock
from refine.extensions import db
from refine.models import Account, PeriodicWork, RefinementSession, User
from tests import factories
from tests.web.conftest import Browser, SignedIn, person, words_of


@pytest.fixture(autouse=True)
def ticking(app: Flask, redis: Redis) -> None:
    PeriodicWork.note("tick", clock.now())
    db.session.commit()


@pytest.fixture
def account(admin: User) -> Account:
    return admin.account


@pytest.fixture
def site_admins(admin: User, signed_in: SignedIn) -> Browser:
    return signed_in(person(site_admin=True))


def failed(account: Account, kind: str, days: int = 0, status: str = "failed") -> None:
    at = clock.now() - timedelta(days=days)
    session = RefinementSession.queue(factories.agent("one", account=account), "weekly", at=at)
    session.finish(status, f"it was the {kind}", error_kind=kind, at=at)  # type: ignore[arg-type]
    db.session.commit()


def said(browser: Browser, query: str = "") -> str:
    return words_of(browser.get(f"/ops{query}").text)


def test_a_site_admin_sees_all_health_checks(site_admins: Browser) -> None:
    words = said(site_admins)

    for line in (
        "database ✓ PostgreSQL answers",
        "migrations ✓ up to date",
        "keys ✓ REFINE_ENCRYPTION_KEYS holds every key in use",
        "redis ✓ Redis answers",
        "rotation ✓ every data key is wrapped with the first key",
        "schedule ✓ no upcoming slots",
        "queue ✓ 0 sessions waiting",
        "clock ✓ the last tick was",
    ):
        assert line in words


def test_an_admin_sees_only_queue_and_clock(dashboard: Browser) -> None:
    words = said(dashboard)

    assert "queue ✓ 0 sessions waiting" in words
    assert "clock ✓" in words
    assert "database" not in words
    assert "keys" not in words


def test_sessions_waiting_without_a_worker_are_reported(
    dashboard: Browser, account: Account
) -> None:
    RefinementSession.queue(factories.agent("one", account=account, name="Ada"), "manual")
    RefinementSession.queue(factories.agent("one", name="Eve"), "manual")
    db.session.commit()

    words = said(dashboard)

    assert "queue ✗ no worker, and 1 session waiting: start refine worker" in words
    assert "Running and waiting" in words
    assert "Ada ◔ queued" in words
    assert "Eve" not in words


def test_recent_failures_are_counted_by_reason(dashboard: Browser, account: Account) -> None:
    for kind, days in (("timeout", 0), ("timeout", 29), ("timeout", 31), ("worker_lost", 1)):
        failed(account, kind, days)
    failed(account, "timeout", status="incomplete")
    failed(factories.account(), "timeout")

    words = said(dashboard)

    assert "timeout 3 0 0" in words
    assert "worker lost 1 0 0" in words
    assert "✗ failed it was the worker_lost" in words
    assert "◑ incomplete it was the timeout" in words
