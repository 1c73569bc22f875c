"""However long a list is, its page asks the database equally often."""

from datetime import timedelta

import pytest
import time_machine
from flask import Flask

from refine import clock
from refine.cli.bench.measuring import statements_of
from refine.extensions import db
from refine.models import Account, Agent, ApiToken, Invitation, RefinementSession, User
from refine.tools import RefinementTool
from tests import factories
from tests.web.conftest import Browser, SignedIn, ended_session, person

FEW, MANY = 3, 60


pytestmark = pytest.mark.slow


def filled(account: Account, owner: Agent, session: RefinementSession, number: int) -> None:
    """So many more of everything that pages list."""
    user = db.session.scalars(db.select(User).where(User.account_id == account.id)).first()
    assert user is not None
    for each in range(number):
        at = clock.now() - timedelta(hours=each + 1)
        agent = factories.agent("one", account=account)
        factories.memory(owner).discard(user=user)
        factories.memory(owner, tags=["voice"])
        owner.ledger.remember(f"saved {factories.text_of(9)}", "core", at=at)
        for status in ("failed", "declined", "completed"):
            one = RefinementSession.queue(owner, "weekly", user=user, at=at)
            kind = "timeout" if status == "failed" else None
            one.finish(status, "so it ended", error_kind=kind, at=at)  # type: ignore[arg-type]
        owner.record("refinement_queued", session_id=session.id, user=user)
        RefinementSession.queue(agent, "manual", user=user)
        failed = {"reason": "so it ended", "error_kind": "timeout"}
        kind, status = (("reflection", "completed"), ("extraction", "failed"))[each % 2]
        factories.ended_task(owner, kind, status, at=at, **failed)
        factories.extraction(owner)
        factories.extraction(agent)
        ApiToken.mint(account=account, agent=agent)
        factories.grant(agent)
        Invitation.issue(person(account=account))
        other = factories.account(monthly_cost_cap_usd=0)
        other.next_due_at = clock.now() - timedelta(days=1)
        factories.agent("one", account=other)
    db.session.commit()


@pytest.fixture
def owner(admin: User) -> Agent:
    return factories.agent(*(factories.text_of(20) for _ in range(9)), account=admin.account)


@pytest.fixture
def session(owner: Agent) -> RefinementSession:
    """A session that deleted one memory, and can be undone."""
    started = factories.session(owner)
    tool = RefinementTool(started)
    first = db.session.scalars(owner.ledger.core()).first()
    assert first is not None
    tool.execute(action="delete", id=first.id)
    tool.execute(action="complete", summary="done")
    return started


def test_every_page_needs_as_many_queries_for_60_rows_as_for_3(
    app: Flask, admin: User, owner: Agent, session: RefinementSession, signed_in: SignedIn
) -> None:
    grant = factories.grant(owner)
    pages = [
        "/",
        "/?account=own",
        "/access",
        f"/access/{grant.id}",
        f"/access/{grant.id}/_live",
        f"/access/new?agent={owner.id}",
        "/accounts",
        "/agents",
        "/agents?sort=share",
        "/agents?q=agent&state=never",
        f"/agents/{owner.id}",
        f"/agents/{owner.id}/import",
        f"/agents/{owner.id}/ledger",
        f"/agents/{owner.id}/ledger?kind=discarded",
        f"/agents/{owner.id}/settings",
        f"/agents/{owner.id}/tasks",
        "/audit",
        f"/audit?agent={owner.id}",
        f"/audit?session={session.id}",
        "/audit/export.csv",
        "/audit/export.jsonl",
        "/ops",
        "/profile",
        "/schedule?account=own",
        "/sessions",
        f"/sessions?agent={owner.id}",
        f"/sessions/{session.id}",
        f"/sessions/{session.id}/_live",
        f"/sessions/{session.id}/undo",
        "/tokens",
        "/users",
    ]
    factories.live_grant(owner, admin)
    browsers = {
        "admin": signed_in(admin),
        "site admin": signed_in(
            person(site_admin=True, account=factories.account(slug="a"), email="a@example.org")
        ),
    }

    def counted() -> dict[tuple[str, str], int]:
        return {
            (who, page): statements_of(lambda b=browser, p=page: _seen(b, p))  # type: ignore[misc]
            for who, browser in browsers.items()
            for page in pages
            if not (who == "admin" and page == "/accounts")
        }

    with time_machine.travel(clock.now(), tick=False):  # a sign-in's use is noted by the minute
        filled(admin.account, owner, session, FEW)
        with_few = counted()
        filled(admin.account, owner, session, MANY - FEW)
        with_many = counted()

    assert with_many == with_few
    assert max(with_many.values()) < 30


def test_session_pages_need_as_many_queries_for_five_steps_as_for_one(
    admin: User, signed_in: SignedIn
) -> None:
    def of_session(deletions: int) -> RefinementSession:
        agent = factories.agent(account=admin.account)
        memories = factories.ledger(agent, *[25] * 20)
        return ended_session(agent, *memories[:deletions])

    short, long = of_session(1), of_session(5)
    browser = signed_in(admin)

    def counted(session: RefinementSession) -> list[int]:
        path = f"/sessions/{session.id}"
        pages = (path, f"{path}/undo", f"{path}/undo?and_after=1")
        return [statements_of(lambda p=page: _seen(browser, p)) for page in pages]  # type: ignore[misc]

    assert counted(long) == counted(short)


def _seen(browser: Browser, page: str) -> None:
    assert browser.get(page).status_code == 200, page
