"""The wall: what a screen in the office shows, and who may see it."""

from datetime import timedelta

import pytest
from flask import Flask

from refine import clock
from refine.extensions import db
from refine.models import Account, Agent, ApiToken, PeriodicWork
from tests import factories
from tests.web.conftest import Browser, SignedIn, browser_of, person, words_of

pytestmark = pytest.mark.usefixtures("ticking")


@pytest.fixture
def accounts(app: Flask) -> list[Account]:
    """One where all is well, one with an agent over its budget, one with failed sessions."""
    made = [factories.account(name=name, slug=name.lower()) for name in ("Calm", "Full", "Poor")]
    calm, full, poor = (
        factories.agent("roses by the wall", account=each, name="Ada") for each in made
    )
    full.core_token_budget = 1
    factories.ended(poor, "failed", "it failed", error_kind="timeout")
    factories.ended(factories.agent("two", account=made[2]), "declined")
    factories.ended(calm)
    PeriodicWork.note("worker", clock.now())
    db.session.commit()
    return made


def opened(app: Flask, account: Account | None = None) -> tuple[Browser, ApiToken]:
    """A browser that was led to the wall by a link."""
    token, secret = ApiToken.mint(account=account, kind="wall")
    db.session.commit()
    browser = browser_of(app)
    answer = submit(browser, secret)
    assert (answer.status_code, answer.location) == (303, "/wall")
    return browser, token


def submit(browser: Browser, secret: str) -> object:
    browser.csrf_token = None
    page = browser.get("/wall/open").text
    csrf = page.partition('name="csrf_token" value="')[2].partition('"')[0]
    return browser.post("/wall/open", data={"csrf_token": csrf, "token": secret})


def test_a_link_shows_all_accounts_worst_first_with_their_heartbeats(app, accounts):
    browser, _ = opened(app)

    said = words_of(browser.get("/wall").text)

    places = [said.index(name) for name in ("Clock: the last tick", "Poor", "Full", "Calm")]
    assert places == sorted(places)
    assert "Workers: a worker looked" in said
    assert "Poor ✗ 1 agent with a failed session: timeout i 1 agent declined 2 agents" in said
    assert "Full ! 1 agent over budget 1 agent" in said
    assert "Calm ✓ all well 1 agent" in said
    assert 'hx-trigger="every 30s' in browser.get("/wall").text


def test_a_wall_of_one_account_shows_no_other_and_no_names_of_people_or_agents(app, accounts):
    person(account=accounts[2], email="ines@example.org")
    browser, _ = opened(app, accounts[2])

    page = browser.get("/wall").text

    assert "Poor" in page
    for name in ("Full", "Calm", "Ada", "ines@example.org"):
        assert name not in page
    for path in ("/", "/agents", f"/wall?account={accounts[0].slug}"):
        answer = browser.get(path)
        assert answer.status_code == 303 or "Calm" not in answer.text


def test_a_late_slot_and_a_silent_clock_are_red(app, accounts):
    accounts[0].next_due_at = clock.now() - timedelta(hours=3)
    PeriodicWork.note("tick", clock.now() - timedelta(hours=1))
    browser, _ = opened(app)

    page = browser.get("/wall").text

    assert "Calm ✗ a slot was missed" in words_of(page)
    assert "✗ Clock: the last tick was 1 hour ago" in words_of(page)


def test_only_a_valid_wall_token_opens_the_wall(app, accounts, subtests):
    agent = db.session.scalars(db.select(Agent)).first()
    secrets = {
        "an agent's": ApiToken.mint(account=agent.account, agent=agent)[1],
        "a platform's": ApiToken.mint(account=accounts[0])[1],
        "an expired one": ApiToken.mint(
            account=None, kind="wall", expires_at=clock.now() - timedelta(seconds=1)
        )[1],
        "none": "",
        "another": "refine_wall_" + "x" * 43,
    }
    db.session.commit()
    for whose, secret in secrets.items():
        with subtests.test(whose=whose):
            browser = browser_of(app)
            answer = submit(browser, secret)
            assert answer.status_code == 422
            assert "wall=" not in str(answer.headers)
            assert "no valid wall token" in words_of(answer.text)
            browser.set_cookie("wall", secret or "x")
            assert browser.get("/wall").location == "/wall/open"


def test_a_revoked_token_closes_the_wall(app, accounts):
    browser, token = opened(app)
    assert browser.get("/wall").status_code == 200

    token.revoke()
    db.session.commit()

    assert browser.get("/wall").location == "/wall/open"


def test_a_wall_token_opens_nothing_else(app, accounts):
    _, secret = ApiToken.mint(account=accounts[0], kind="wall")
    db.session.commit()

    answers = [
        browser_of(app).get(path, headers={"Authorization": f"Bearer {secret}"})
        for path in ("/api/v1/agents", "/api/v1/context", "/api/v1/usage")
    ]

    assert {answer.status_code for answer in answers} == {401}


def test_the_token_is_in_a_cookie_that_no_script_reads_and_in_no_address(app, accounts):
    _, secret = ApiToken.mint(account=None, kind="wall")
    db.session.commit()

    answer = submit(browser_of(app), secret)

    (cookie,) = [each for each in answer.headers.getlist("Set-Cookie") if secret in each]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert secret not in answer.location + answer.text


def test_users_see_the_wall_of_their_account_and_site_admins_of_all(accounts, signed_in: SignedIn):
    viewer = signed_in(person(account=accounts[1], role="viewer"))
    site_admin = signed_in(person(site_admin=True))

    assert 'href="/?account=full"' in viewer.get("/wall").text
    assert "Poor" not in viewer.get("/wall").text
    assert viewer.get("/wall?account=poor").status_code == 404
    assert "Poor" in site_admin.get("/wall").text
    assert "Calm" not in site_admin.get("/wall?account=poor").text


def test_tokens_of_walls_are_listed_and_revoked_like_others(accounts, signed_in: SignedIn):
    ApiToken.mint(account=None, kind="wall")
    ApiToken.mint(account=accounts[0], kind="wall")
    db.session.commit()
    admin, site_admin = signed_in(person(account=accounts[0])), signed_in(person(site_admin=True))

    assert "all accounts" not in words_of(admin.get("/tokens").text)
    assert "all accounts" in words_of(site_admin.get("/tokens").text)
    first, second = db.session.scalars(db.select(ApiToken.id).order_by(ApiToken.id)).all()
    assert admin.submit(f"/tokens/{first}/revoke").status_code == 404
    for browser, id_ in ((admin, second), (site_admin, first)):
        assert browser.submit(f"/tokens/{id_}/revoke").status_code == 303
    db.session.rollback()
    assert not [each for each in db.session.scalars(db.select(ApiToken)) if each.is_valid]
