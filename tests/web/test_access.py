"""The pages of access: asking, the story of a grant, reading under it, its end."""

import html
import re

import pytest

from refine.extensions import db
from refine.models import AccessGrant, Agent, RefinementSession, User
from refine.models.runs.access.asking_rules import AccessScope
from tests import factories, sql
from tests.access.trees import planted, scopes_of
from tests.web.conftest import HERE, person, records, words_of
from tests.web.crawling import crawl

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


# -- asking ---------------------------------------------------------------------------------------


def test_a_request_redirects_to_its_page_and_is_queued(redis, dashboard, agent):
    answer = dashboard.submit(f"/access/new?agent={agent.id}", TERMS)

    (grant,) = grants()
    assert answer.status_code == 303
    assert answer.headers["Location"] == f"/access/{grant.id}"
    assert (grant.status, grant.purpose, grant.duration_minutes) == ("requested", PURPOSE, 30)
    page = dashboard.get(f"/access/{grant.id}").text
    assert 'hx-trigger="every 2s' in page
    assert "Waiting for a worker" in words_of(page)


def test_invalid_requests_are_explained_and_kept_in_the_form(dashboard, agent):
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


def test_a_second_request_is_refused_with_a_link_to_the_first(redis, dashboard, agent):
    dashboard.submit(f"/access/new?agent={agent.id}", TERMS)

    answer = dashboard.submit(f"/access/new?agent={agent.id}", TERMS)

    (first,) = grants()
    assert answer.status_code == 409
    assert "You have already asked this agent" in words_of(answer.text)
    assert f'href="/access/{first.id}"' in answer.text


# -- the list and the page of a grant -------------------------------------------------------------


def test_an_expired_grant_shows_as_ended_before_the_clock_notes_it(dashboard, grant):
    sql.rewrite(PAST_ITS_END)

    for path in ("/access", "/access?status=ended", f"/access/{grant.id}"):
        said = words_of(dashboard.get(path).text)
        assert "time limit reached" in said.lower()
        assert "◉ granted" not in said
    assert "No requests match" in dashboard.get("/access?status=granted").text


def test_a_page_whose_access_ends_while_it_is_built_is_sealed_and_has_no_banner(
    dashboard, grant, agent
):
    ledger = f"/agents/{agent.id}/ledger"
    banner = 'aria-label="Access to Ada"'
    assert banner in dashboard.get(ledger).text

    with sql.just_before("FOR SHARE OF access_grants", PAST_ITS_END, by=sql.rewrite):
        page = dashboard.get(ledger)

    assert page.status_code == 200
    assert "roses by the wall" not in page.text
    assert "Contents are sealed" in words_of(page.text)
    assert banner not in page.text


def test_the_purpose_is_shown_to_its_user_and_to_admins_only(dashboard, grant, admin, signed_in):
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


def test_the_history_names_each_step_and_its_actor(dashboard, grant, agent, admin):
    ids = [memory.id for memory in db.session.scalars(agent.ledger.core())]
    dashboard.get(f"/agents/{agent.id}/ledger")
    dashboard.submit(f"/access/{grant.id}/end")

    said = words_of(dashboard.get(f"/access/{grant.id}").text)

    steps = [
        f"access ended {admin.email} ended by the user",
        f"content read {admin.email} memories: #{ids[1]}, #{ids[0]}",
        "access granted Ada",
        f"access requested {admin.email}",
    ]
    places = [said.index(step) for step in steps]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("end", "said", "may_ask_again"),
    [
        (lambda it: it.give_up("the model's server did not answer", "timeout"), "no valid", True),
        (lambda it: it.lapse(), "within 24 hours", True),
        (lambda it: it.settle("NO", agreed=False, generation_id=None), "did not consent", False),
    ],
)
def test_a_request_without_grant_says_why_and_stops_polling(
    dashboard, agent, admin, end, said, may_ask_again
):
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


# -- reading --------------------------------------------------------------------------------------


def test_the_ledger_shows_content_under_a_grant(dashboard, grant, agent):
    page = dashboard.get(f"/agents/{agent.id}/ledger")

    assert "roses by the wall" in page.text
    (record,) = records("memory_access_viewed")
    assert record.auditable_id == str(grant.id)
    assert record.data["from"] == HERE["from"]


def test_a_search_finds_content_and_puts_no_words_into_urls(dashboard, grant, agent):
    answer = dashboard.submit(f"/agents/{agent.id}/ledger", {"search": "ROSES", "kind": "core"})

    assert answer.status_code == 200
    assert "roses by the wall" in answer.text
    assert "beans by the fence" not in answer.text
    assert "?search" not in answer.text


def test_search_results_are_paged(dashboard, grant, agent):
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


def test_nothing_is_shown_if_reading_cannot_be_recorded(dashboard, agent, grant):
    with sql.refused_views():
        answers = [
            dashboard.get(f"/agents/{agent.id}/ledger"),
            dashboard.get(f"/agents/{agent.id}/settings"),
            dashboard.submit(f"/agents/{agent.id}/ledger", {"search": "roses"}),
        ]

    assert {answer.status_code for answer in answers} == {503}
    assert not [a for a in answers if "by the wall" in a.text or "gardener" in a.text]


def test_a_page_with_content_is_not_cached_and_redirects_in_time(dashboard, grant, agent):
    answer = dashboard.get(f"/agents/{agent.id}/ledger")

    assert answer.headers["Cache-Control"] == "no-store, private"
    seconds, where = answer.headers["Refresh"].split("; url=")
    assert 29 * 60 < int(seconds) <= 30 * 60 + 1
    assert where == f"/access/{grant.id}?over=1"
    assert "/static/open.js" in answer.text


# -- the banner and the end -----------------------------------------------------------------------


def test_ending_access_clears_the_browsers_cache(dashboard, grant, agent):
    answer = dashboard.submit(f"/access/{grant.id}/end")

    assert answer.status_code == 303
    assert answer.headers["Clear-Site-Data"] == '"cache"'
    assert "roses by the wall" not in dashboard.get(f"/agents/{agent.id}/ledger").text
    assert PURPOSE not in dashboard.get("/").text
    assert [(g.status, g.end_reason) for g in grants()] == [("ended", "ended_by_user")]


def test_another_admin_can_revoke_a_grant(grant, admin, agent, dashboard, signed_in):
    other = signed_in(person(account=admin.account))
    assert "Revoke" in other.get(f"/access/{grant.id}").text

    other.submit(f"/access/{grant.id}/end")

    assert [g.end_reason for g in grants()] == ["revoked_by_admin"]
    assert "roses by the wall" not in dashboard.get(f"/agents/{agent.id}/ledger").text
    assert "revoked by an admin" in dashboard.get(f"/access/{grant.id}").text


def test_leaving_an_open_page_clears_the_browsers_cache(dashboard, grant):
    assert "Clear-Site-Data" not in dashboard.get(f"/access/{grant.id}").headers

    assert "Clear-Site-Data" in dashboard.get(f"/access/{grant.id}?over=1").headers


# -- less than everything -------------------------------------------------------------------------


def test_a_narrow_grant_opens_no_other_text_on_any_page(dashboard, agent, admin, subtests):
    trees = planted(agent)
    ledger = f"/agents/{agent.id}/ledger"
    linked = [f"/sessions/{each.id}" for each in (trees.first, trees.second)]
    linked += [f"/audit/{record.id}" for record in factories.records(agent)]
    linked += [f"/agents/{agent.id}/memories/{id_}" for id_ in trees.ids.values()]
    for name in ("alder", "the first session", "cedar in the first session"):
        with subtests.test(scope=name):
            scope, opened = scopes_of(trees)[name]
            grant = factories.live_grant(agent, admin, scope=scope)
            db.session.commit()

            pages = [said for _, said in crawl(dashboard)]
            pages += [dashboard.get(url).text for url in linked]
            pages += [dashboard.submit(ledger, {"search": "alder"}, follow_redirects=True).text]

            said = html.unescape("\n".join(pages))
            shown = words_of(re.sub("<(del|ins)>.*?</span>", "", said))
            seen = {name for name, text in trees.texts.items() if text in said or text in shown}
            assert seen <= opened
            assert opened <= seen | {"cedar", "new cedar", "both"}  # shown as a difference
            assert "Search these memories" not in said
            grant.end(user=admin)
            db.session.commit()


def test_access_is_asked_for_from_the_page_of_a_session_or_memory(redis, dashboard, agent):
    trees = planted(agent)
    for page, ask, opens in [
        (
            f"/sessions/{trees.first.id}",
            f"/access/new?agent={agent.id}&session={trees.first.id}",
            "what one session changed, before and after",
        ),
        (
            f"/agents/{agent.id}/memories/{trees.ids['alder']}",
            f"/access/new?agent={agent.id}&memory={trees.ids['alder']}",
            f"memory #{trees.ids['alder']}, as it is and as it was, for the time",
        ),
    ]:
        assert html.escape(ask) in dashboard.get(page).text
        form = dashboard.get(ask).text
        assert opens in words_of(form)
        assert "and nothing else" in words_of(form)
        assert f'action="{html.escape(ask)}"' in form

        dashboard.submit(ask, TERMS)

        made = grants()[-1]
        assert f"/access/new?{ask.partition('?')[2]}" == ask
        assert made.scope.is_narrow
        made.give_up("no answer")
        db.session.commit()


def test_a_form_never_asks_for_more_than_its_url_names(dashboard, agent):
    trees = planted(agent)
    other = factories.agent("not yours", account=agent.account)
    foreign = next(iter(db.session.scalars(other.ledger.core()))).id
    live = RefinementSession.queue(agent, "manual")
    db.session.commit()
    for narrow in (
        "memory=",
        "memory=seven",
        "session=",
        "session=1",
        f"memory={foreign}",
        f"memory={trees.ids['alder']}&session=no",
        f"session={live.id}",
        f"session={factories.ended(other).id}",
    ):
        url = f"/access/new?agent={agent.id}&{narrow}"
        answers = [dashboard.get(url), dashboard.submit(url, TERMS)]
        assert [answer.status_code for answer in answers] == [404, 404], narrow
    assert grants() == []


def test_the_reader_sees_what_the_agent_granted_and_what_that_leaves_shut(dashboard, agent, admin):
    trees = planted(agent)
    alder = trees.ids["alder"]
    grant = factories.grant(agent, user_id=admin.id, duration_minutes=60)
    grant.claim()
    scope = AccessScope(memory_ids=frozenset([alder]))
    grant.settle("YES", agreed=True, generation_id=None, scope=scope, minutes=30)
    db.session.commit()

    page = dashboard.get(f"/access/{grant.id}").text

    said = words_of(page)
    assert f"Ada granted memory #{alder} for 30 minutes." in said
    assert "Everything else stays sealed: other memories, prompts, search." in said
    assert f"You may read memory #{alder} of Ada until" in " ".join(
        re.sub("<[^>]*>", "", page).split()
    )
    assert f'href="/agents/{agent.id}/memories/{alder}">Read memory #{alder}</a>' in page
    assert f"30 minutes, memories #{alder}" in said
    assert f"memory #{alder}" in words_of(dashboard.get("/access").text)
