"""Who may see and do what: everybody × every route, and every state of a grant × every page.

A route or state that is not listed fails here. The agent keeps a canary in every kind of content.
The operations of the API are in ``tests/api/test_every_operation.py``.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from refine.extensions import db
from refine.models import AccessGrant, User
from refine.models.runs.access.grant import END_REASONS, STATUSES
from refine.web.bulk import digest_of
from tests import factories, sql
from tests.factories import PASSWORD
from tests.web.conftest import Browser, SignedIn, World, browser_of, person
from tests.web.crawling import CANARY, sing


class Answers(NamedTuple):
    """What each of them is answered."""

    nobody: int | str
    viewer: int
    stranger: int
    admin: int
    site_admin: int


OPEN = Answers(200, 200, 200, 200, 200)
PAGE = Answers("sign-in", 200, 200, 200, 200)
OF_ACCOUNT = Answers("sign-in", 200, 404, 200, 200)
OF_SITE = Answers("sign-in", 403, 403, 403, 200)
ADMINS = Answers("sign-in", 403, 200, 200, 200)
ADMINS_OF_ACCOUNT = Answers("sign-in", 403, 404, 200, 200)
ACT = Answers("sign-in", 403, 303, 303, 303)
ACT_IN_ACCOUNT = Answers("sign-in", 403, 404, 303, 303)
# The tests' server sends no mail.
NO_MAIL = Answers(404, 404, 404, 404, 404)
REFUSED = ("sign-in", 403, 404)

READ = {
    "/": PAGE,
    "/access": PAGE,
    "/access/<uuid:grant_id>": OF_ACCOUNT,
    "/access/new": ADMINS_OF_ACCOUNT,
    "/accounts": OF_SITE,
    "/accounts/<int:account_id>/lock": OF_SITE,
    "/agents": PAGE,
    "/agents/<int:agent_id>": OF_ACCOUNT,
    "/agents/<int:agent_id>/erasure": ADMINS_OF_ACCOUNT,
    "/agents/<int:agent_id>/ledger": OF_ACCOUNT,
    "/agents/<int:agent_id>/memories/<int:memory_id>": OF_ACCOUNT,
    "/agents/<int:agent_id>/settings": OF_ACCOUNT,
    "/agents/<int:agent_id>/tasks": OF_ACCOUNT,
    "/agents/many": ADMINS_OF_ACCOUNT,
    "/audit": PAGE,
    "/deliveries": ADMINS,
    "/find": PAGE,
    "/audit/<int:record_id>": OF_ACCOUNT,
    "/audit/export.jsonl": PAGE,
    "/forgotten": NO_MAIL,
    "/healthz": OPEN,
    "/inbox": PAGE,
    "/invitations/<secret>": OPEN,
    "/letter": PAGE,
    "/metrics": OPEN,
    "/ops": PAGE,
    "/profile": PAGE,
    "/profile/confirm": PAGE,
    "/profile/sign-ins": PAGE,
    "/profile/second-factors": PAGE,
    "/readyz": OPEN,
    "/schedule": PAGE,
    "/schedule/retention": ADMINS,
    "/schedule/run": ADMINS,
    "/sessions": PAGE,
    "/sessions/<uuid:session_id>": OF_ACCOUNT,
    "/sessions/<uuid:session_id>/undo": ADMINS_OF_ACCOUNT,
    "/sign-in": Answers(200, 302, 302, 302, 302),
    # without a provider, there is no way to it
    "/sign-in/provider": Answers(404, 404, 404, 404, 404),
    "/sign-in/provider/callback": Answers(404, 404, 404, 404, 404),
    "/sign-in/second-factor": Answers(*["sign-in"] * 5),
    "/static/<path:filename>": OPEN,
    "/tokens": PAGE,
    "/tokens/<int:token_id>/revoke": ADMINS_OF_ACCOUNT,
    "/usage": PAGE,
    "/users": PAGE,
    "/users/<int:user_id>/lock": ADMINS_OF_ACCOUNT,
    "/wall": Answers(303, 200, 200, 200, 200),
    "/wall/open": OPEN,
}

# The pages that show content to the user of a live grant of its agent.
OPENED = {
    "/agents/<int:agent_id>/ledger",
    "/agents/<int:agent_id>/memories/<int:memory_id>",
    "/agents/<int:agent_id>/settings",
    "/audit/<int:record_id>",
    "/sessions/<uuid:session_id>",
}

ACTED = {
    "/access/<uuid:grant_id>/end": ACT_IN_ACCOUNT,
    "/access/new": ACT_IN_ACCOUNT,
    "/accounts": OF_SITE._replace(site_admin=303),
    "/accounts/<int:account_id>/lock": OF_SITE._replace(site_admin=303),
    "/accounts/<int:account_id>/unlock": OF_SITE._replace(site_admin=303),
    "/agents/<int:agent_id>/erasure": ACT_IN_ACCOUNT._replace(site_admin=409),  # the second to ask
    "/agents/<int:agent_id>/erasure/call-off": ACT_IN_ACCOUNT,
    "/agents/<int:agent_id>/ledger": ACT_IN_ACCOUNT,
    "/agents/<int:agent_id>/memories/<int:memory_id>/constitutional": ACT_IN_ACCOUNT,
    "/agents/<int:agent_id>/memories/<int:memory_id>/restore": ACT_IN_ACCOUNT,
    "/agents/<int:agent_id>/pause": ACT_IN_ACCOUNT,
    "/agents/<int:agent_id>/refinement-prompt/clear": ACT_IN_ACCOUNT,
    "/agents/<int:agent_id>/sessions": ACT_IN_ACCOUNT,
    "/agents/<int:agent_id>/settings": ACT_IN_ACCOUNT,
    "/agents/many": ACT_IN_ACCOUNT,
    "/deliveries/<int:delivery_id>/replay": ACT_IN_ACCOUNT,
    "/first-steps/dismissed": ACT,
    "/forgotten": NO_MAIL,
    "/inbox": Answers("sign-in", 303, 303, 303, 303),
    "/invitations/<secret>": Answers(303, 404, 404, 404, 404),
    "/ops/verification/seen": OF_SITE._replace(site_admin=303),
    "/profile/confirm": Answers("sign-in", 303, 303, 303, 303),
    "/passkeys/challenge": OPEN,
    "/profile/password": Answers("sign-in", 303, 303, 303, 303),
    "/profile/sign-ins/<int:sign_in_id>/end": Answers("sign-in", 303, 303, 303, 303),
    "/profile/sign-ins/end": Answers("sign-in", 303, 303, 303, 303),
    "/profile/second-factors/<int:factor_id>/removed": Answers("sign-in", 404, 404, 404, 404),
    "/profile/second-factors/app": PAGE,
    "/profile/second-factors/codes": Answers("sign-in", 409, 409, 409, 409),
    "/profile/second-factors/passkey": Answers("sign-in", 422, 422, 422, 422),
    "/schedule": ACT,
    "/schedule/run": ACT,
    "/sessions/<uuid:session_id>/stop": ACT_IN_ACCOUNT,
    "/sessions/<uuid:session_id>/undo": ACT_IN_ACCOUNT,
    "/sign-in": Answers(422, 422, 422, 422, 422),
    "/sign-in/second-factor": Answers(422, 422, 422, 422, 422),
    "/sign-out": Answers("sign-in", 303, 303, 303, 303),
    "/tokens/<int:token_id>/revoke": ACT_IN_ACCOUNT,
    "/users": ADMINS,
    "/users/<int:user_id>": ACT_IN_ACCOUNT,
    "/users/<int:user_id>/invitation": ADMINS_OF_ACCOUNT,
    # nobody is locked out twice
    "/users/<int:user_id>/lock": ACT_IN_ACCOUNT._replace(site_admin=409),
    "/users/<int:user_id>/sign-ins/end": ACT_IN_ACCOUNT,
    "/users/<int:user_id>/unlock": ACT_IN_ACCOUNT,
    "/users/<int:user_id>/second-factors/reset": ACT_IN_ACCOUNT,
    "/users/second-factor": Answers("sign-in", 403, 403, 403, 403),
    "/views": Answers("sign-in", 303, 303, 303, 303),
    "/views/deleted": Answers("sign-in", 303, 303, 303, 303),
    "/wall/open": Answers(422, 422, 422, 422, 422),
}

# An action that nobody can take twice: who comes later is refused.
ONCE = "/invitations/<secret>"


def form_of(rule: str, who: str, agent_id: int) -> dict[str, Any]:
    """What its form sends."""
    password = {"password": "another battery", "confirm_password": "another battery"}
    forms: dict[str, dict[str, Any]] = {
        "/access/new": {
            "reason": "agent_asked",
            "purpose": "to see why it declined",
            "duration_minutes": "15",
        },
        "/accounts": {"name": f"Account of {who}"},
        "/accounts/<int:account_id>/lock": {"reason": "incident"},
        "/users/<int:user_id>/lock": {"reason": "left"},
        "/agents/<int:agent_id>/memories/<int:memory_id>/constitutional": {"constitutional": "1"},
        "/agents/<int:agent_id>/settings": {"core_token_budget": "4000"},
        "/agents/many": {"digest": digest_of([agent_id])},
        "/invitations/<secret>": password,
        "/profile/confirm": {"current_password": PASSWORD},
        "/profile/password": {"current_password": PASSWORD, **password},
        "/schedule": {"schedule": "0 5 * * 1"},
        "/sign-in": {"email": "eve@example.org", "password": PASSWORD},
        "/users": {"email": f"{who.replace(' ', '')}@example.net", "role": "viewer"},
        "/users/<int:user_id>": {"role": "admin"},
        "/views": {"listing": "agents.listing", "name": "mine", "q": "a"},
        "/views/deleted": {"listing": "agents.listing", "name": "mine"},
    }
    return forms.get(rule, {})


def path_of(rule: str, world: World, who: str = "") -> str:
    """The address of something in the world."""
    values = {
        "<int:agent_id>": world.agent.id,
        "<int:memory_id>": (world.discarded if "restore" in rule else world.memories[0]).id,
        "<uuid:grant_id>": world.grant.id,
        "<uuid:session_id>": (world.live if rule.endswith("/stop") else world.ended).id,
        "<int:record_id>": world.record.id,
        "<int:token_id>": world.token.id,
        "<int:delivery_id>": world.delivery.id,
        "<int:user_id>": world.invited.id,
        "<int:account_id>": world.stranger.account_id,
        "<int:sign_in_id>": 1,
        "<int:factor_id>": 0,
        "<secret>": world.invitation,
        "<path:filename>": "refine.css",
    }
    for name, value in values.items():
        rule = rule.replace(name, str(value))
    chosen = f"agent={world.agent.id}"
    # the site admin comes last, when the account's own has paused the agent
    work = "resume" if who == "site_admin" else "pause"
    queries = {"/access/new": f"?{chosen}", "/agents/many": f"?{chosen}&work={work}"}
    return rule + queries.get(rule, "")


@pytest.fixture
def house(world: World) -> World:
    """An account with one of everything, and an agent that keeps the canary everywhere."""
    song = sing(world.agent)
    world.memories, world.ended, world.record = [song.memory], song.session, song.record
    return world


def whole(answer: TestResponse) -> str:
    return f"{answer.headers}{answer.text}".lower()


def everybody(app: Flask, world: World, signed_in: SignedIn) -> dict[str, Browser]:
    return {
        "nobody": browser_of(app),
        "viewer": signed_in(world.viewer),
        "stranger": signed_in(world.stranger),
        "admin": signed_in(world.admin),
        "site_admin": signed_in(world.site_admin),
    }


def kind_of(answer: TestResponse) -> int | str:
    """Its status; or ``sign-in``, if that is where it leads (a sign-out does, too)."""
    path = answer.headers.get("Location", "").partition("?")[0]
    has_signed_out = "Clear-Site-Data" in answer.headers
    return "sign-in" if path == "/sign-in" and not has_signed_out else answer.status_code


def state_but_traces() -> dict[str, list[str]]:
    """All that is stored, but for the traces of every look: records, counts, the last use."""
    stored = sql.snapshot()
    for trace in ("audit_logs", "chain_heads", "sign_ins", "shared_counts"):
        del stored[trace]
    return stored


def test_every_route_is_listed_here(app):
    routes = {
        (method, rule.rule)
        for rule in app.url_map.iter_rules()
        for method in rule.methods or ()
        if method not in ("HEAD", "OPTIONS") and rule.endpoint.partition(".")[0] != "api"
    }

    assert routes == {("GET", rule) for rule in READ} | {("POST", rule) for rule in ACTED}


def test_everybody_reads_their_own_and_no_content_without_a_grant(app, house, signed_in):
    people = everybody(app, house, signed_in)
    reader = person(account=house.account)
    factories.live_grant(house.agent, reader)
    db.session.commit()
    people["reader"] = signed_in(reader)
    before = state_but_traces()

    for who, browser in people.items():
        answers = {rule: browser.get(path_of(rule, house)) for rule in READ}
        column = "admin" if who == "reader" else who
        assert {rule: kind_of(each) for rule, each in answers.items()} == {
            rule: getattr(READ[rule], column) for rule in READ
        }
        singing = {rule for rule, each in answers.items() if CANARY in whole(each)}
        assert singing == (OPENED if who == "reader" else set()), who
        foreign = (f">{house.agent.name}<", house.admin.email) if who == "stranger" else ()
        assert not [rule for rule in READ if any(n in answers[rule].text for n in foreign)]
    assert state_but_traces() == before


def test_whoever_has_yet_to_give_a_second_factor_is_nobody(app, world):
    factories.app_of(world.site_admin)
    db.session.commit()
    browser = browser_of(app)
    browser.sign_in(world.site_admin.email)
    before = state_but_traces()

    for rules, send in ((READ, browser.get), (ACTED, browser.submit)):
        for rule in rules:
            if rule not in ("/sign-in", "/sign-in/second-factor", ONCE):
                answer = send(path_of(rule, world))
                assert kind_of(answer) == rules[rule].nobody, rule
    assert state_but_traces() == before
    assert browser.get("/sign-in/second-factor").status_code == 200


def test_viewers_are_offered_only_what_they_may_do(world, signed_in):
    browser, offered = signed_in(world.viewer), set()

    for rule in READ:
        forms = browser.get(path_of(rule, world)).text.split('<form method="post"')[1:]
        offered |= {
            form.partition('action="')[2].partition('"')[0]
            for form in forms
            if "<fieldset disabled>" not in form.partition("</form>")[0]
        }

    own = {"/sign-out", "/wall/open", f"/invitations/{world.invitation}"}
    mine = ("confirm", "password", "sign-ins/end", "second-factors/app", "second-factors/passkey")
    assert offered - own == {"/inbox", *(f"/profile/{each}" for each in mine)}


def is_refused(rule: str, who: str) -> bool:
    return getattr(ACTED[rule], who) in REFUSED and rule != ONCE


@pytest.mark.slow
def test_unauthorized_actions_are_refused_and_change_nothing(app, house, signed_in):
    for who, browser in everybody(app, house, signed_in).items():
        browser.token()
        before = sql.without_counts()
        refused = [rule for rule in ACTED if is_refused(rule, who)]

        answers = {
            rule: browser.submit(path_of(rule, house), form_of(rule, who, house.agent.id))
            for rule in refused
        }

        assert {rule: kind_of(each) for rule, each in answers.items()} == {
            rule: getattr(ACTED[rule], who) for rule in refused
        }
        assert not [rule for rule, each in answers.items() if CANARY in whole(each)]
        assert sql.without_counts() == before


@pytest.mark.slow
@pytest.mark.parametrize("rule", ACTED)
def test_authorized_actions_are_accepted_and_show_no_content(app, house, signed_in, rule):
    expected = {
        who: answer for who, answer in ACTED[rule]._asdict().items() if not is_refused(rule, who)
    }

    answers = {
        who: browser.submit(path_of(rule, house, who), form_of(rule, who, house.agent.id))
        for who, browser in everybody(app, house, signed_in).items()
        if who in expected
    }

    assert {who: kind_of(each) for who, each in answers.items()} == expected
    assert not [who for who, each in answers.items() if CANARY in whole(each)]


def test_a_form_without_csrf_token_changes_nothing(world, signed_in):
    browser = signed_in(world.site_admin)
    before = sql.snapshot()

    answers = {
        rule: browser.post(path_of(rule, world), data=form_of(rule, "site_admin", world.agent.id))
        for rule in ACTED
    }

    assert {answer.status_code for answer in answers.values()} == {400}
    assert all("This form is out of date" in answer.text for answer in answers.values())
    assert sql.snapshot() == before


@pytest.mark.parametrize(
    "from_elsewhere",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:8001"},
        {"Origin": "https://localhost"},
    ],
)
def test_requests_of_other_origins_change_nothing_even_with_a_token(
    world, signed_in, from_elsewhere
):
    browser = signed_in(world.site_admin)
    browser.token()
    before = sql.without_counts()

    answers = {
        rule: browser.submit(
            path_of(rule, world),
            form_of(rule, "site_admin", world.agent.id),
            headers=from_elsewhere,
        )
        for rule in ACTED
    }

    assert {answer.status_code for answer in answers.values()} == {403}
    assert sql.without_counts() == before


def test_requests_of_our_own_pages_are_accepted(world, signed_in):
    browser = signed_in(world.admin)

    for headers in (
        *({}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}),
        *({"Origin": "null"}, {"Origin": "http://localhost"}, {"Origin": "http://localhost:8000"}),
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://rewritten.by.a.proxy"},
    ):
        answer = browser.submit("/schedule", {"paused": "1"}, headers=headers)

        assert answer.status_code == 303, headers


def test_missing_and_foreign_things_look_the_same(world, signed_in):
    browser = signed_in(world.stranger)
    rules = [rule for rule in READ if READ[rule] == OF_ACCOUNT]
    nowhere = {
        "<int:agent_id>": 2**63,
        "<int:memory_id>": 2**63,
        "<int:record_id>": 10**30,
        "<uuid:grant_id>": UUID(int=0),
        "<uuid:session_id>": UUID(int=0),
    }

    theirs = [browser.get(path_of(rule, world)) for rule in rules]
    nobodys = [browser.get(re.sub("<.*?>", lambda m: str(nowhere[m[0]]), rule)) for rule in rules]

    assert [answer.status_code for answer in nobodys] == [404] * len(rules)
    # a form's token carries the second in which it was made
    without = [
        [re.sub(r'name="csrf_token" value="[^"]*"', "", answer.text) for answer in answers]
        for answers in (theirs, nobodys)
    ]
    assert without[0] == without[1]


def test_a_memory_of_another_agent_is_not_found(world, signed_in):
    browser = signed_in(world.admin)
    other = world.live.agent_id
    before = state_but_traces()

    answer = browser.submit(
        f"/agents/{other}/memories/{world.memories[0].id}/constitutional", {"constitutional": "1"}
    )

    assert answer.status_code == 404
    assert state_but_traces() == before


# -- whose grant, in which state -------------------------------------------------------------------

Put = Callable[[AccessGrant, User], object]


def _live(grant: AccessGrant) -> None:
    assert grant.claim()
    grant.settle("YES", agreed=True, generation_id="gen-1")


def _declined(grant: AccessGrant, admin: User) -> None:
    assert grant.claim()
    grant.settle("NO", agreed=False, generation_id="gen-1")


def _past_its_end(grant: AccessGrant, admin: User) -> None:
    _live(grant)
    db.session.commit()
    sql.rewrite(f"UPDATE access_grants SET expires_at = clock_timestamp() WHERE id = '{grant.id}'")
    db.session.expire_all()


def _expired(grant: AccessGrant, admin: User) -> None:
    _past_its_end(grant, admin)
    assert grant.end_if_expired()


# A state is a status, and of an ended grant why it ended; and one that no column tells.
STATES: dict[str, Put] = {
    "requested": lambda grant, admin: None,
    "granted": lambda grant, admin: _live(grant),
    "granted, past its end": _past_its_end,
    "declined": _declined,
    "failed": lambda grant, admin: grant.give_up("the model's server did not answer", "timeout"),
    "lapsed": lambda grant, admin: grant.lapse(),
    "ended, expired": _expired,
    "ended, ended_by_user": lambda grant, admin: (_live(grant), grant.end(user=grant.user)),
    "ended, revoked_by_agent": lambda grant, admin: (_live(grant), grant.end(user=None)),
    "ended, revoked_by_admin": lambda grant, admin: (_live(grant), grant.end(user=admin)),
    "ended, no_longer_allowed": lambda grant, admin: (
        _live(grant),
        grant.end_for_good("its user may no longer have access", admin),
    ),
}

# What may become of the user of a grant.
FATES: dict[str, Callable[[User], object]] = {
    "deactivated": lambda user: setattr(user, "active", False),
    "now a viewer": lambda user: setattr(user, "role", "viewer"),
    "now elsewhere": lambda user: setattr(user, "account", factories.account()),
}


def test_every_state_is_in_the_table():
    of_columns = {*STATUSES} - {"ended"} | {f"ended, {reason}" for reason in END_REASONS}

    assert of_columns <= STATES.keys()


def readers(house: World, signed_in: SignedIn) -> dict[str, Browser]:
    """An admin for each state of a grant, and for each fate of its user, signed in before."""
    browsers = {}
    for state in (*STATES, *FATES):
        user = person(account=house.account)
        grant = factories.grant(house.agent, user_id=user.id)
        STATES.get(state, STATES["granted"])(grant, house.admin)
        browsers[state] = signed_in(user)
        FATES.get(state, lambda user: None)(user)
        db.session.commit()
    return browsers


def opened_by(browser: Browser, house: World) -> set[str]:
    """The pages that show this browser the canary."""
    answers = {rule: browser.get(path_of(rule, house), follow_redirects=True) for rule in OPENED}
    ledger = path_of("/agents/<int:agent_id>/ledger", house)
    answers["search"] = browser.submit(ledger, {"search": "a"}, follow_redirects=True)
    return {rule for rule, answer in answers.items() if CANARY in whole(answer)}


@pytest.mark.slow
def test_content_is_shown_only_where_its_agent_agreed(house, signed_in):
    browsers = readers(house, signed_in)

    opened = {state: opened_by(browser, house) for state, browser in browsers.items()}
    other = factories.agent(account=house.account)
    song = sing(other)
    foreign = replace(house, agent=other, memories=[song.memory])
    foreign = replace(foreign, ended=song.session, record=song.record)
    opened["of another agent"] = opened_by(browsers["granted"], foreign)
    house.agent.active = False
    db.session.commit()

    assert opened == {state: set() for state in opened} | {"granted": {*OPENED, "search"}}
    assert opened_by(browsers["granted"], house) == set()
