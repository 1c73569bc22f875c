"""What answers tell the script that changes pages in place."""

import re
from datetime import timedelta

import pytest
import time_machine
from werkzeug.test import TestResponse

from refine import clock
from refine.extensions import db
from refine.models import Agent, AgentMemory, User
from refine.models.agent import configuring
from refine.models.people.sign_in import IDLE_FOR
from tests import factories
from tests.web.conftest import Browser, records, words_of

TEXT = "I kept the blue door key in the third drawer."


@pytest.fixture
def agent(admin: User) -> Agent:
    made = factories.agent(TEXT, account=admin.account, name="Ada")
    db.session.commit()
    return made


@pytest.fixture
def memory(agent: Agent) -> AgentMemory:
    return db.session.scalars(db.select(AgentMemory).filter_by(agent_id=agent.id)).one()


def asked_from(page: str) -> dict[str, str]:
    return {"HX-Request": "true", "HX-Current-URL": f"http://localhost{page}"}


def refresh(browser: Browser, page: TestResponse) -> TestResponse:
    """Ask as a page does by itself, which knows what it shows."""
    version = {"HX-Source": "main#main", "If-None-Match": page.headers["ETag"]}
    return browser.get(page.request.path, headers=asked_from(page.request.path) | version)


@pytest.mark.parametrize("path", ["/", "/agents", "/sign-in", "/agents/999"])
def test_every_page_says_that_it_is_ours(dashboard, path):
    assert dashboard.get(path).headers["Refine-Page"] == "1"


def test_a_form_that_leads_back_to_its_page_redirects_there(dashboard, agent, memory):
    page = f"/agents/{agent.id}/ledger"
    action = f"/agents/{agent.id}/memories/{memory.id}/constitutional"

    answer = dashboard.submit(action, {"constitutional": "1"}, headers=asked_from(page))

    assert answer.status_code == 303
    assert answer.location.startswith(page)
    assert "HX-Redirect" not in answer.headers


def test_a_form_that_leads_to_another_page_sends_the_browser_with_its_message(dashboard, agent):
    factories.session(agent)
    page = f"/agents/{agent.id}"

    answer = dashboard.submit(f"{page}/sessions", headers=asked_from(page))

    assert answer.status_code == 200
    assert answer.text == ""
    assert "already has a live session" in dashboard.get(answer.headers["HX-Redirect"]).text


@pytest.mark.parametrize("path", ["/", "/agents", "/sessions", "/audit", "/ops"])
def test_a_refresh_is_answered_with_the_time_alone_until_something_changes(
    dashboard, agent, admin, path
):
    factories.live_grant(agent, admin)  # the banner says how many seconds are left
    db.session.commit()
    at = clock.now()
    with time_machine.travel(at, tick=False):
        page = dashboard.get(path)
    with time_machine.travel(at + timedelta(seconds=1), tick=False):
        same = refresh(dashboard, page)
        factories.session(agent)
        db.session.commit()
        other = refresh(dashboard, page)

    assert f"data-version={page.headers['ETag']}" in page.text
    assert (same.status_code, same.text) == (304, "")
    assert same.headers["Refine-As-Of"] > page.headers["Refine-As-Of"]
    assert other.status_code == 200
    assert same.headers["Refine-As-Of"] in other.text


def test_a_refresh_is_no_use_of_the_sign_in_and_takes_no_message(dashboard, agent):
    dashboard.submit(f"/agents/{agent.id}/pause", {"paused": "1"})
    page, at = dashboard.get("/sessions"), clock.now()
    dashboard.submit(f"/agents/{agent.id}/pause", {"paused": "0"})

    with time_machine.travel(at + IDLE_FOR - timedelta(minutes=5), tick=False):
        refresh(dashboard, page)
        assert "Ada" in words_of(dashboard.get("/agents", headers={"HX-Source": "main#main"}).text)
    with time_machine.travel(at + IDLE_FOR + timedelta(minutes=5), tick=False):
        assert dashboard.get("/sessions").location == "/sign-in?next=/sessions"
    assert "Resumed" in words_of(dashboard.get("/sessions").text)


@pytest.fixture
def readable(agent: Agent, admin: User) -> str:
    """The page of a ledger that the admin may read."""
    factories.live_grant(agent, admin)
    db.session.commit()
    return f"/agents/{agent.id}/ledger"


def test_content_is_never_put_into_a_page_and_counts_as_read_once_the_browser_is_sent_to_it(
    dashboard, readable
):
    answer = dashboard.get(f"{readable}?kind=core", headers=asked_from(readable))

    assert answer.text == ""
    assert answer.headers["HX-Redirect"] == f"{readable}?kind=core"
    assert records("memory_access_viewed") == []
    assert TEXT in dashboard.get(answer.headers["HX-Redirect"]).text
    assert len(records("memory_access_viewed")) == 1


def test_an_end_of_access_on_another_page_still_clears_the_cache(dashboard, agent, admin):
    grant = factories.live_grant(agent, admin)
    db.session.commit()

    answer = dashboard.submit(f"/access/{grant.id}/end", headers=asked_from("/agents"))

    assert answer.headers["HX-Redirect"] == f"/access/{grant.id}"
    assert answer.headers["Clear-Site-Data"] == '"cache"'
    assert "Location" not in answer.headers


_FORM = re.compile(r'<form method="post" action="([^"]*)" id="([^"]*)"(.*?)</form>', re.DOTALL)
_FIELD = re.compile(r'<(?:input|select|textarea)[^>]* name="([^"]*)"')


def test_no_control_of_a_page_with_content_works_in_place(dashboard, agent, admin):
    sealed = dashboard.get(f"/agents/{agent.id}/ledger").text
    factories.live_grant(agent, admin)
    db.session.commit()

    opened = dashboard.get(f"/agents/{agent.id}/ledger").text

    assert "hx-boost" in sealed
    assert "hx-boost" not in opened


def forms_of(page: str) -> list[tuple[str, tuple[str, list[str]]]]:
    """The forms of a page that act, by their ids: where each is sent, and with which fields."""
    return [(id_, (action, _FIELD.findall(inner))) for action, id_, inner in _FORM.findall(page)]


def test_no_action_takes_anothers_form_when_a_page_refreshes(world, signed_in):
    dashboard, live = signed_in(world.site_admin), world.live
    waiting = factories.grant(live.agent, user_id=world.admin.id)
    world.account.request_sweep(user=world.admin)
    db.session.commit()
    pages = ["/", "/sessions", f"/sessions/{live.id}", f"/agents/{live.agent_id}", "/ops"]
    pages += ["/access", f"/access/{waiting.id}", f"/schedule?account={world.account.slug}"]

    before = {path: dashboard.get(path).text for path in pages}
    live.give_up("the provider cannot be reached")
    configuring.configure(world.agent, user=world.admin, paused=True, core_token_budget=1)
    waiting.give_up("the provider cannot be reached")
    db.session.commit()

    for path, page in before.items():
        assert 'hx-trigger="every ' in page, path
        forms, later = forms_of(page), forms_of(dashboard.get(path).text)
        assert len(dict(later)) == len(later), path
        assert {**dict(forms), **dict(later)} == {**dict(later), **dict(forms)}, path
