"""The pages of access: asking, the story of a grant, reading under it, its end."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from redis import Redis

from refine.extensions import database_now, db
from refine.jobs.runs import ask_for_access
from refine.models import AccessGrant, Agent, User
from refine.models.agent import configuring
from tests import factories, sql
from tests.web.conftest import (
    HERE,
    Browser,
    SignedIn,
    ended_session,
    links_of,
    person,
    records,
    words_of,
)

PURPOSE = "to see why it declined"
TERMS = {"reason": "failed_session", "purpose": PURPOSE, "duration_minutes": "30"}


@pytest.fixture
def agent(admin: User) -> Agent:
    """An agent with something to say."""
    made = factories.agent(
        "roses by the wall",
        "beans by the fence",
        account=admin.account,
        name="Ada",
        model_id="test/ada",
        system_prompt="You are Ada, a gardener.",
    )
    db.session.commit()
    return made


@pytest.fixture
def grant(agent: Agent, admin: User) -> AccessGrant:
    made = factories.live_grant(agent, admin, purpose=PURPOSE, duration_minutes=30)
    db.session.commit()
    return made


def grants() -> list[AccessGrant]:
    db.session.rollback()
    return list(db.session.scalars(db.select(AccessGrant).order_by(AccessGrant.created_at)))


PAST_ITS_END = "UPDATE access_grants SET expires_at = clock_timestamp()"


def past_its_end() -> None:
    sql.rewrite(PAST_ITS_END)


# -- asking ---------------------------------------------------------------------------------------


def test_a_request_redirects_to_its_page_and_is_queued(
    redis: Redis, dashboard: Browser, agent: Agent
) -> None:
    answer = dashboard.submit(f"/access/new?agent={agent.id}", TERMS)

    (grant,) = grants()
    assert answer.status_code == 303
    assert answer.headers["Location"] == f"/access/{grant.id}"
    assert (grant.status, grant.purpose, grant.duration_minutes) == ("requested", PURPOSE, 30)
    page = dashboard.get(f"/access/{grant.id}").text
    assert 'hx-trigger="every 2s"' in page
    assert "Waiting for a worker" in words_of(page)


def test_the_preview_is_exactly_what_the_agent_is_asked(
    redis: Redis, dashboard: Browser, agent: Agent, model: Any, app: Flask, monkeypatch: Any
) -> None:
    purpose = 'to see why it declined; "quoted" <b>bold</b>\nand on a second line'
    terms = {**TERMS, "purpose": purpose}

    answer = dashboard.submit(f"/access/new?agent={agent.id}", {**terms, "preview": "1"})

    assert answer.status_code == 200
    assert grants() == []
    shown = re.search(r"<pre[^>]*>(.*?)</pre>", answer.text, re.DOTALL)
    assert shown is not None
    settings = replace(app.extensions["refine.settings"], openrouter_base_url=model.base_url)
    monkeypatch.setitem(app.extensions, "refine.settings", settings)
    agent.model_id = "test/model"
    db.session.commit()
    model.say("NO")
    dashboard.submit(f"/access/new?agent={agent.id}", terms)
    ask_for_access(str(grants()[0].id))
    assert html.unescape(shown[1]) == model.requests[0]["messages"][1]["content"]


def test_invalid_requests_are_explained_and_kept_in_the_form(
    dashboard: Browser, agent: Agent
) -> None:
    durations = ("14", "241", "", "an hour", "-30", "30.0", "٣٠", "9" * 40)
    invalid = [
        ("reason", "curiosity", "Reason must be one of"),
        ("reason", "", "Reason must be one of"),
        ("purpose", "too short", "Purpose must have at least 20 characters"),
        ("purpose", "x" * 501, "Purpose has 501 characters"),
        ("purpose", "", "Purpose must not be empty"),
        *(("duration_minutes", each, "Duration must be a whole number") for each in durations),
    ]

    for field, value, problem in invalid:
        answer = dashboard.submit(f"/access/new?agent={agent.id}", {**TERMS, field: value})

        assert answer.status_code == 422, (field, value)
        assert problem in words_of(answer.text)
        assert html.escape({**TERMS, field: value}["purpose"]) in answer.text
    for field in TERMS:
        incomplete = {name: value for name, value in TERMS.items() if name != field}
        answer = dashboard.submit(f"/access/new?agent={agent.id}", incomplete)
        assert answer.status_code == 422, field
    assert grants() == []


def test_a_request_without_a_valid_agent_is_not_found(dashboard: Browser) -> None:
    for query in ("", "?agent=", "?agent=x", "?agent=٣", f"?agent={10**30}"):
        assert dashboard.get(f"/access/new{query}").status_code == 404, query
        assert dashboard.submit(f"/access/new{query}", TERMS).status_code == 404, query


def test_a_second_request_is_refused_with_a_link_to_the_first(
    redis: Redis, dashboard: Browser, agent: Agent
) -> None:
    dashboard.submit(f"/access/new?agent={agent.id}", TERMS)

    answer = dashboard.submit(f"/access/new?agent={agent.id}", TERMS)

    (first,) = grants()
    assert answer.status_code == 409
    assert "You have already asked this agent" in words_of(answer.text)
    assert f'href="/access/{first.id}"' in answer.text


def test_the_form_says_that_a_model_change_bars_access(
    dashboard: Browser, agent: Agent, admin: User
) -> None:
    configuring.configure(agent, user=admin, model_id="test/other")
    db.session.commit()

    page = dashboard.get(f"/access/new?agent={agent.id}")
    answer = dashboard.submit(f"/access/new?agent={agent.id}", TERMS)

    assert (page.status_code, answer.status_code) == (200, 409)
    for said in (page.text, answer.text):
        assert "The name, the model or a prompt of Ada was changed" in words_of(said)
    assert grants() == []


# -- the list and the page of a grant -------------------------------------------------------------


def test_grants_are_listed_with_user_agent_and_state(
    dashboard: Browser, grant: AccessGrant
) -> None:
    said = words_of(dashboard.get("/access").text)

    assert f"{grant.user.email} Ada the agent asked for it 30 ◉ granted" in said


def test_the_list_is_filtered_by_state_and_agent(
    dashboard: Browser, grant: AccessGrant, agent: Agent
) -> None:
    other = factories.agent(account=agent.account, name="Bea")
    factories.grant(other)
    db.session.commit()

    def rows(query: str) -> int:
        return dashboard.get(f"/access{query}").text.count('<a href="/access/') - (
            dashboard.get(f"/access{query}").text.count("Purpose</a>")
        )

    assert rows("") == 2
    assert rows("?status=granted") == rows(f"?agent={other.id}") == rows("?status=requested") == 1
    assert rows("?status=lapsed") == 0
    assert rows("?status=nonsense") == 2
    assert "No requests match" in dashboard.get("/access?status=lapsed").text


def test_the_list_says_how_access_ended(dashboard: Browser, grant: AccessGrant) -> None:
    dashboard.submit(f"/access/{grant.id}/end")

    assert "30 ✓ ended by the user " in words_of(dashboard.get("/access").text)


def test_an_empty_list_explains_how_to_request(dashboard: Browser) -> None:
    page = dashboard.get("/access").text

    assert "No requests yet" in page
    assert "Apply" not in page


def test_an_expired_grant_shows_as_ended_before_the_clock_notes_it(
    dashboard: Browser, grant: AccessGrant
) -> None:
    past_its_end()

    for path in ("/access", "/access?status=ended", f"/access/{grant.id}"):
        said = words_of(dashboard.get(path).text)
        assert "time limit reached" in said.lower()
        assert "◉ granted" not in said
    assert "No requests match" in dashboard.get("/access?status=granted").text


def test_a_page_whose_access_ends_while_it_is_built_is_sealed_and_has_no_banner(
    dashboard: Browser, grant: AccessGrant, agent: Agent
) -> None:
    ledger = f"/agents/{agent.id}/ledger"
    banner = 'aria-label="Access to Ada"'
    assert banner in dashboard.get(ledger).text

    with sql.just_before("FOR SHARE OF access_grants", PAST_ITS_END, by=sql.rewrite):
        page = dashboard.get(ledger)

    assert page.status_code == 200
    assert "roses by the wall" not in page.text
    assert "Contents are sealed" in words_of(page.text)
    assert banner not in page.text


def test_a_demoted_user_is_offered_nothing_to_read(
    dashboard: Browser, grant: AccessGrant, agent: Agent, admin: User
) -> None:
    read = f"/agents/{agent.id}/ledger"
    assert read in dashboard.get(f"/access/{grant.id}").text
    admin.role = "viewer"
    db.session.commit()

    page = dashboard.get(f"/access/{grant.id}")

    assert page.status_code == 200
    assert read not in page.text.partition("<main")[2]


def test_the_memories_of_an_erased_agent_are_listed_sealed_and_the_grant_has_ended(
    dashboard: Browser, grant: AccessGrant, agent: Agent
) -> None:
    factories.erase(agent)
    db.session.commit()

    page = dashboard.get(f"/access/{grant.id}")
    ledger = dashboard.get(f"/agents/{agent.id}/ledger")

    assert "its user or its agent was deactivated or erased" in words_of(page.text)
    assert (page.status_code, ledger.status_code) == (200, 200)
    assert "Contents are sealed" in words_of(ledger.text)


def test_a_request_that_is_no_longer_allowed_does_not_blame_the_agent(
    dashboard: Browser, agent: Agent, admin: User
) -> None:
    grant = factories.grant(agent, user_id=admin.id)
    admin.role = "viewer"
    assert not grant.claim()
    db.session.commit()

    said = words_of(dashboard.get(f"/access/{grant.id}").text)

    assert "The request was no longer allowed; the history says why." in said
    assert "is a viewer" in said
    assert "valid answer" not in said


def test_the_purpose_is_shown_to_its_user_and_to_admins_only(
    dashboard: Browser, grant: AccessGrant, admin: User, signed_in: SignedIn
) -> None:
    path = f"/access/{grant.id}"
    told = {
        "its user": dashboard,
        "another admin": signed_in(person(account=admin.account)),
        "a viewer": signed_in(person(account=admin.account, role="viewer")),
        "a site admin": signed_in(person(site_admin=True)),
    }

    shown = {who: PURPOSE in browser.get(path).text for who, browser in told.items()}

    assert shown == {
        "its user": True,
        "another admin": True,
        "a viewer": False,
        "a site admin": True,
    }


def test_the_history_names_each_step_and_its_actor(
    dashboard: Browser, grant: AccessGrant, agent: Agent, admin: User
) -> None:
    ids = [memory.id for memory in db.session.scalars(agent.ledger.core())]
    dashboard.get(f"/agents/{agent.id}/ledger")
    dashboard.submit(f"/access/{grant.id}/end")

    said = words_of(dashboard.get(f"/access/{grant.id}").text)

    steps = [
        f"access requested {admin.email}",
        "access granted Ada",
        f"content read {admin.email} memories: #{ids[1]}, #{ids[0]}",
        f"access ended {admin.email} ended by the user",
    ]
    places = [said.index(step) for step in steps]
    assert places == sorted(places)


def read_list(browser: Browser, path: str) -> str:
    """The section of what was read."""
    page = browser.get(path).text
    return words_of(page[page.index('aria-labelledby="read"') : page.index('id="history"')])


def test_each_memory_that_was_read_is_listed_once_with_link_and_time(
    dashboard: Browser, grant: AccessGrant, agent: Agent
) -> None:
    first, second = (memory.id for memory in db.session.scalars(agent.ledger.core()))
    session = ended_session(agent)
    deleted = factories.records(agent)[-1]
    db.session.commit()
    for path in (
        f"/agents/{agent.id}/ledger",
        f"/agents/{agent.id}/memories/{first}",
        f"/sessions/{session.id}",
        f"/audit/{deleted.id}",
        f"/agents/{agent.id}/settings",
    ):
        assert dashboard.get(path).status_code == 200

    page = dashboard.get(f"/access/{grant.id}").text
    said = read_list(dashboard, f"/access/{grant.id}")

    assert f"Memory #{first} 2 " in said
    assert f"Memory #{second} 1 " in said
    assert f"Session {str(session.id)[:8]} 1 " in said
    assert f"Record {deleted.id} 1 " in said
    assert "Prompts 1 " in said
    links = links_of(page)
    assert {
        f"/agents/{agent.id}/memories/{first}",
        f"/sessions/{session.id}",
        f"/audit/{deleted.id}",
        f"/agents/{agent.id}/settings",
    } <= set(links)
    assert "roses" not in page


def test_a_long_list_of_what_was_read_has_pages(dashboard: Browser, grant: AccessGrant) -> None:
    grant.record("viewed", what="memories", ids=list(range(1, 61)))
    db.session.commit()

    first = read_list(dashboard, f"/access/{grant.id}")
    older = next(
        link for link in links_of(dashboard.get(f"/access/{grant.id}").text) if "page=" in link
    )

    assert first.count("Memory #") == 50
    assert read_list(dashboard, html.unescape(older)).count("Memory #") == 10


def test_says_so_if_nothing_was_read_under_a_grant(dashboard: Browser, grant: AccessGrant) -> None:
    assert "What was read Nothing yet." in read_list(dashboard, f"/access/{grant.id}")
    dashboard.submit(f"/access/{grant.id}/end")
    assert "What was read Nothing." in read_list(dashboard, f"/access/{grant.id}")


def test_the_history_shows_the_last_records_of_a_long_access(
    dashboard: Browser, grant: AccessGrant
) -> None:
    for _ in range(200):
        grant.record("viewed", what="memories", ids=[1])
    grant.end(user=None)
    db.session.commit()

    page = dashboard.get(f"/access/{grant.id}").text

    assert "revoked by the agent" in words_of(page)


@pytest.mark.parametrize(
    ("end", "said", "may_ask_again"),
    [
        (lambda it: it.fail("the model's server did not answer", "timeout"), "no valid", True),
        (lambda it: it.lapse(), "within 24 hours", True),
        (lambda it: it.settle("NO", agreed=False, generation_id=None), "did not consent", False),
    ],
)
def test_a_request_without_grant_says_why_and_stops_polling(
    dashboard: Browser, agent: Agent, admin: User, end: Any, said: str, may_ask_again: bool
) -> None:
    grant = factories.grant(agent, user_id=admin.id)
    grant.claim()
    db.session.commit()
    assert "Asking " in dashboard.get(f"/access/{grant.id}").text
    end(grant)
    db.session.commit()

    page = dashboard.get(f"/access/{grant.id}").text

    assert said in words_of(page)
    assert "hx-trigger" not in page
    assert ("Ask again" in page) == may_ask_again


def test_pages_tell_how_often_an_agent_was_asked(
    dashboard: Browser, agent: Agent, admin: User
) -> None:
    colleague = person(account=admin.account)
    other = factories.live_grant(agent, colleague)
    mine = factories.grant(agent, user_id=admin.id)
    mine.settle("NO", agreed=False, generation_id=None)
    db.session.commit()

    of_agent = f"{agent.name} was asked 2 times: 1 granted, 1 declined"
    for path, told in (
        (f"/agents/{agent.id}", of_agent),
        (f"/access?agent={agent.id}", of_agent),
        (f"/access/{mine.id}", "1 time: 0 granted, 1 declined"),
        (f"/access/{other.id}", "1 time: 1 granted, 0 declined"),
        (f"/access/new?agent={agent.id}", "1 time: 0 granted, 1 declined"),
    ):
        assert told in words_of(dashboard.get(path).text), path
    asked = dashboard.submit(
        f"/access/new?agent={agent.id}",
        {"reason": "failed_session", "purpose": "x" * 20, "duration_minutes": "15"},
    )
    assert asked.status_code == 409
    assert "can ask again at" in words_of(asked.text)


# -- reading --------------------------------------------------------------------------------------


def test_the_ledger_shows_content_under_a_grant(
    dashboard: Browser, grant: AccessGrant, agent: Agent
) -> None:
    page = dashboard.get(f"/agents/{agent.id}/ledger")

    assert "roses by the wall" in page.text
    (record,) = records("memory_access_viewed")
    assert record.auditable_id == str(grant.id)
    assert record.data["from"] == HERE["from"]


def test_filters_hold_under_a_grant(
    dashboard: Browser, grant: AccessGrant, agent: Agent, admin: User
) -> None:
    first = next(iter(db.session.scalars(agent.ledger.core())))
    first.discard(user=admin)
    db.session.commit()

    pages = {
        kind: dashboard.get(f"/agents/{agent.id}/ledger?kind={kind}").text
        for kind in ("core", "discarded", "constitutional")
    }

    assert [kind for kind, page in pages.items() if "roses by the wall" in page] == ["discarded"]


def test_a_search_finds_content_and_puts_no_words_into_urls(
    dashboard: Browser, grant: AccessGrant, agent: Agent
) -> None:
    answer = dashboard.submit(f"/agents/{agent.id}/ledger", {"search": "ROSES", "kind": "core"})

    assert answer.status_code == 200
    assert "roses by the wall" in answer.text
    assert "beans by the fence" not in answer.text
    assert "?search" not in answer.text


def test_search_results_are_paged(dashboard: Browser, grant: AccessGrant, agent: Agent) -> None:
    for number in range(60):
        factories.memory(agent, f"tulip {number} of them")
    db.session.commit()
    path, asked = f"/agents/{agent.id}/ledger", {"search": "tulip", "kind": "core"}

    first = dashboard.submit(path, asked).text
    after = re.search(r'name="after" value="(\d+)"', first)
    assert after is not None
    second = dashboard.submit(path, {**asked, "after": after[1]}).text

    assert "60 matches, 50 shown." in words_of(first)
    assert (first.count("data-open>tulip"), second.count("data-open>tulip")) == (50, 10)
    assert 'name="after"' not in second


def test_invalid_searches_are_refused(dashboard: Browser, grant: AccessGrant, agent: Agent) -> None:
    for fields in ({"search": ""}, {"search": "x" * 201}, {"search": "roses", "after": "0"}, {}):
        answer = dashboard.submit(f"/agents/{agent.id}/ledger", fields)

        assert answer.status_code == 422, fields
        assert "roses by" not in answer.text


def test_a_search_without_a_grant_redirects_to_the_sealed_list(
    dashboard: Browser, agent: Agent
) -> None:
    answer = dashboard.submit(
        f"/agents/{agent.id}/ledger", {"search": "roses"}, follow_redirects=True
    )

    assert "ask the agent for access" in answer.text
    assert "roses by" not in answer.text


def test_a_grant_opens_records_sessions_and_prompts(
    dashboard: Browser, agent: Agent, admin: User
) -> None:
    more = [factories.memory(agent, factories.text_of(25)) for _ in range(8)]
    session = ended_session(agent, more[0], summary="one plant less")
    record = next(r for r in factories.records(agent) if r.action == "memory_refinement_delete")
    text = more[0].content
    factories.live_grant(agent, admin)
    db.session.commit()

    assert text in dashboard.get(f"/audit/{record.id}").text
    of_session = dashboard.get(f"/sessions/{session.id}").text
    assert "one plant less" in of_session
    assert text in of_session
    assert "You are Ada, a gardener." in dashboard.get(f"/agents/{agent.id}/settings").text
    assert [r.data["what"] for r in records("memory_access_viewed")] == [
        "audit_record",
        "session",
        "prompts",
    ]


def test_account_records_hold_nothing_to_open(dashboard: Browser, grant: AccessGrant) -> None:
    (record,) = records("user_signed_in")

    assert dashboard.get(f"/audit/{record.id}").status_code == 200
    assert records("memory_access_viewed") == []


@pytest.fixture
def no_records(grant: AccessGrant) -> Iterator[None]:
    with sql.refused_views():
        yield


def test_nothing_is_shown_if_reading_cannot_be_recorded(
    dashboard: Browser, agent: Agent, no_records: None
) -> None:
    answers = [
        dashboard.get(f"/agents/{agent.id}/ledger"),
        dashboard.get(f"/agents/{agent.id}/settings"),
        dashboard.submit(f"/agents/{agent.id}/ledger", {"search": "roses"}),
    ]

    assert {answer.status_code for answer in answers} == {503}
    assert not [a for a in answers if "by the wall" in a.text or "gardener" in a.text]


def test_a_page_with_content_is_not_cached_and_redirects_in_time(
    dashboard: Browser, grant: AccessGrant, agent: Agent
) -> None:
    answer = dashboard.get(f"/agents/{agent.id}/ledger")

    assert answer.headers["Cache-Control"] == "no-store, private"
    seconds, where = answer.headers["Refresh"].split("; url=")
    assert 29 * 60 < int(seconds) <= 30 * 60 + 1
    assert where == f"/access/{grant.id}?over=1"
    assert "/static/open.js" in answer.text


def test_a_page_without_content_does_not_redirect(dashboard: Browser, grant: AccessGrant) -> None:
    answer = dashboard.get("/agents")

    assert "Refresh" not in answer.headers
    assert "/static/open.js" not in answer.text


# -- the banner and the end -----------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/agents", "/audit", "/profile", "/nowhere", "/access"])
def test_every_page_shows_a_live_grant(dashboard: Browser, grant: AccessGrant, path: str) -> None:
    page = dashboard.get(path).text

    assert f"<q>{PURPOSE}</q>" in page
    assert f'action="/access/{grant.id}/end"' in page


@pytest.mark.parametrize(
    ("seconds", "words", "is_ending"),
    [
        (1790, "30 minutes left.", False),
        (299, "5 minutes left.", True),
        (59, "1 minute left.", True),
    ],
)
def test_the_banner_says_how_many_minutes_are_left(
    dashboard: Browser, grant: AccessGrant, seconds: int, words: str, is_ending: bool
) -> None:
    grant.expires_at = database_now() + timedelta(seconds=seconds)
    db.session.commit()

    page = dashboard.get("/agents").text

    assert f"{words}</strong>" in page
    assert ('class="access ending"' in page) == is_ending
    assert "/static/left.js" in page


def test_ending_access_clears_the_browsers_cache(
    dashboard: Browser, grant: AccessGrant, agent: Agent
) -> None:
    answer = dashboard.submit(f"/access/{grant.id}/end")

    assert answer.status_code == 303
    assert answer.headers["Clear-Site-Data"] == '"cache"'
    assert "roses by the wall" not in dashboard.get(f"/agents/{agent.id}/ledger").text
    assert PURPOSE not in dashboard.get("/").text
    assert [(g.status, g.end_reason) for g in grants()] == [("ended", "ended_by_user")]


def test_another_admin_can_revoke_a_grant(
    grant: AccessGrant, admin: User, agent: Agent, dashboard: Browser, signed_in: SignedIn
) -> None:
    other = signed_in(person(account=admin.account))
    assert "Revoke" in other.get(f"/access/{grant.id}").text

    other.submit(f"/access/{grant.id}/end")

    assert [g.end_reason for g in grants()] == ["revoked_by_admin"]
    assert "roses by the wall" not in dashboard.get(f"/agents/{agent.id}/ledger").text
    assert "revoked by an admin" in dashboard.get(f"/access/{grant.id}").text


def test_leaving_an_open_page_clears_the_browsers_cache(
    dashboard: Browser, grant: AccessGrant
) -> None:
    assert "Clear-Site-Data" not in dashboard.get(f"/access/{grant.id}").headers

    assert "Clear-Site-Data" in dashboard.get(f"/access/{grant.id}?over=1").headers


def test_signing_out_clears_the_browsers_cache(dashboard: Browser, grant: AccessGrant) -> None:
    answer = dashboard.submit("/sign-out")

    assert answer.headers["Clear-Site-Data"] == '"cache"'
