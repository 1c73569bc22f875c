"""Operations: what Refine stands on, what waits and runs, what failed and why."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from flask import Flask
from redis import Redis

from refine import clock
from refine.extensions import db
from refine.jobs.queue import AUTOMATIC, queue
from refine.jobs.worker import RefineWorker
from refine.models import Account, ClockMark, MemoryTask, RefinementSession, User
from tests import factories
from tests.commands import UNUSED_PORT
from tests.web.conftest import Browser, SignedIn, browser_of, person, words_of


@pytest.fixture(autouse=True)
def ticking(app: Flask, redis: Redis) -> None:
    ClockMark.note("tick", clock.now())
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
        "rotation ✓ every data key is under the first key",
        "schedule ✓ no upcoming slots",
        "queue ✓ 0 workers, 0 sessions waiting",
        "clock ✓ the last tick was",
    ):
        assert line in words


def test_an_admin_sees_only_queue_and_clock(dashboard: Browser) -> None:
    words = said(dashboard)

    assert "queue ✓ 0 workers, 0 sessions waiting" in words
    assert "clock ✓" in words
    assert "database" not in words
    assert "keys" not in words


def test_a_stopped_clock_is_reported_with_advice(dashboard: Browser) -> None:
    ClockMark.note("tick", clock.now() - timedelta(hours=3))
    db.session.commit()

    assert "clock ✗ the last tick was 3 hours ago; start refine clock" in said(dashboard)


def test_a_missed_slot_is_reported(site_admins: Browser, account: Account) -> None:
    account.next_due_at = clock.now() - timedelta(hours=2)
    db.session.commit()

    assert "schedule ✗ 1 account with a missed slot" in said(site_admins)


def test_sessions_waiting_without_a_worker_are_reported(
    dashboard: Browser, account: Account
) -> None:
    RefinementSession.queue(factories.agent("one", account=account, name="Ada"), "manual")
    RefinementSession.queue(factories.agent("one", name="Eve"), "manual")
    db.session.commit()

    words = said(dashboard)

    assert "queue ✗ 0 workers, 1 session waiting: start refine worker" in words
    assert "Running and waiting" in words
    assert "Ada ◔ queued" in words
    assert "Eve" not in words


def test_an_unreachable_redis_is_reported(admin: User, with_settings: Callable[..., Flask]) -> None:
    db.session.commit()
    browser = browser_of(with_settings(REDIS_URL=f"redis://127.0.0.1:{UNUSED_PORT}/0"))
    browser.sign_in(admin.email)

    assert "queue ✗ Redis does not answer at REDIS_URL" in said(browser)


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


def test_queued_and_running_tasks_are_listed(dashboard: Browser, account: Account) -> None:
    ada = factories.agent(account=account, name="Ada")
    assert MemoryTask.reflect(ada, "daily").claim()
    factories.extraction(ada, "the canary sings")
    factories.extraction(factories.agent(name="Eve"))
    db.session.commit()

    words = said(dashboard)

    assert "queue ✗ 0 workers, 0 sessions, 1 conversation waiting: start refine worker" in words
    assert "Ada conversation ◔ queued –" in words
    assert "Ada reflection ▶ running 0" in words
    assert "Eve" not in words
    assert "canary" not in words


def test_a_reflection_waiting_without_a_worker_is_reported(
    dashboard: Browser, account: Account
) -> None:
    MemoryTask.reflect(factories.agent(account=account), "daily")
    db.session.commit()

    assert "queue ✗ 0 workers, 0 sessions, 1 reflection waiting:" in said(dashboard)


@pytest.mark.parametrize(("hours", "sign"), [(25, "✗"), (23, "✓")])
def test_conversations_waiting_over_a_day_call_for_more_workers(
    dashboard: Browser, account: Account, redis: Redis, hours: int, sign: str
) -> None:
    at = clock.now() - timedelta(hours=hours)
    factories.extraction(factories.agent(account=account), at=at)
    db.session.commit()
    RefineWorker([queue(AUTOMATIC, redis)], connection=redis).register_birth()

    words = said(dashboard)

    waits = f"queue {sign} 1 worker, 0 sessions, 1 conversation waiting"
    assert waits in words
    assert (f"{waits}, the oldest for 1 day: start more workers" in words) is (hours > 24)


def test_failed_tasks_are_counted_by_reason(dashboard: Browser, account: Account) -> None:
    owner = factories.agent(account=account, name="Ada")
    failed(account, "timeout")
    for kind in ("reflection", "extraction", "extraction"):
        factories.ended_task(
            owner, kind, "failed", reason="it was out of time", error_kind="timeout"
        )
    assert factories.extraction(owner, at=clock.now() - timedelta(days=7)).end_if_lapsed()
    put_off = factories.extraction(owner)
    assert put_off.claim()
    put_off.give_up("the provider is busy", "rate_limited")
    factories.ended_task(factories.agent(), status="failed", error_kind="refused")
    db.session.commit()

    words = said(dashboard)

    assert "timeout 1 1 2" in words
    assert "lapsed 0 0 1" in words
    assert "Ada conversation ✗ failed it was out of time" in words
    assert "Ada conversation ○ skipped it waited for 7 days" in words
    assert "◔ queued the provider is busy; next attempt" in words
    assert "rate limited" not in words
    assert "refused" not in words


def test_the_page_says_if_nothing_failed(dashboard: Browser) -> None:
    words = said(dashboard)

    assert "Running and waiting sessions None." in words
    assert "Failures in the last 30 days None." in words


def test_a_site_admin_can_look_at_one_account(site_admins: Browser, account: Account) -> None:
    failed(account, "timeout")
    failed(factories.account(slug="other"), "worker_lost")

    assert "worker lost 1" in said(site_admins)
    assert "worker lost" not in said(site_admins, "?account=own")
    assert "worker lost 1" in said(site_admins, "?account=other")
