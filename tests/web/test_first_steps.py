"""The first steps: each is done by what happened, and they can be put away."""

import re

import pytest
from flask import Flask

from refine import demo
from refine.extensions import db
from refine.models import Account, Agent, ApiToken, User
from refine.tools import RefinementTool
from tests import factories
from tests.web.conftest import Browser, SignedIn, browser_of, said

_STEP = re.compile(r"<li><div>.*?</div></li>", re.DOTALL)


@pytest.fixture
def newcomer(app: Flask) -> User:
    """The first admin, with the demo account."""
    user: User = factories.user(account=demo.load_into_empty_database(), site_admin=True)
    db.session.commit()
    return user


def steps(browser: Browser) -> list[str]:
    return _STEP.findall(browser.get("/").text)


def done(browser: Browser, first: int = 4) -> int:
    return sum("done</span>" in step for step in steps(browser)[:first])


def test_each_step_with_the_demo_is_done_by_what_happened(newcomer, signed_in):
    browser, wren = signed_in(newcomer), Agent.named("Wren")
    assert f'action="/agents/{wren.id}/sessions"' in steps(browser)[0]
    assert "Watch: it is asked, agrees, and merges memories that say the same." in said(
        browser, "/"
    )
    session = factories.session(wren)
    tool = RefinementTool(session)
    tool.execute("delete", id=kept_of(wren).id)
    assert done(browser) == 0
    tool.execute("complete", summary="it is tidy")
    page = f"/sessions/{session.id}"
    assert done(browser) == 1
    assert "Next: ask Wren whether you may read." in said(browser, page)

    factories.live_grant(wren, newcomer)
    db.session.commit()
    browser.get(f"/agents/{wren.id}/ledger")
    assert done(browser) == 2
    assert f'href="{page}#contents"' in steps(browser)[2]

    assert "Next: undo the session." in said(browser, page)  # as it was read just now
    assert done(browser) == 3
    assert f"the bar at {session.mass_before:,} tokens again" in said(browser, "/")

    browser.submit(f"{page}/undo")
    assert done(browser) == 4
    assert "Next:" not in said(browser, page)


def kept_of(agent: Agent):
    return next(each for each in db.session.scalars(agent.ledger.core()) if not each.is_locked)


def test_steps_with_own_agents_are_done_by_what_happened(account: Account, with_settings, admin):
    browser = browser_of(with_settings(OPENROUTER_API_KEY=""))
    admin.site_admin = True
    factories.agent("one", account=account, model_id="rehearsal/any")
    db.session.commit()
    browser.sign_in(admin.email)
    assert (len(steps(browser)), done(browser)) == (4, 0)
    assert "not yet" in steps(browser)[3]

    agent = factories.agent("one", account=account)
    ApiToken.mint(account=account)
    db.session.commit()
    assert done(browser) == 2
    assert 'href="/agents"' in steps(browser)[3]

    factories.ended(agent, "declined")
    db.session.commit()
    assert done(browser) == 3
    connected = browser_of(with_settings(OPENROUTER_API_KEY="key"))
    connected.sign_in(admin.email)
    assert steps(connected) == []


def test_who_puts_the_steps_away_sees_them_no_more(newcomer, signed_in: SignedIn):
    colleague = factories.user(account=newcomer.account)
    viewer = factories.user(account=newcomer.account, role="viewer")
    db.session.commit()
    browser = signed_in(newcomer)
    assert len(steps(browser)) == 8

    assert browser.submit("/first-steps/dismissed").location == "/"

    assert steps(browser) == []
    assert len(steps(signed_in(colleague))) == 8
    assert steps(signed_in(viewer)) == []
