"""Who is shown content where: user × agent × state of the grant × page, every cell of it.

In one family of cells content is shown: to the user of a live grant, of its agent, on the pages
that are about what it keeps. The table is made from the states and routes that there are, so that
a new one is in it, or fails here.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import AccessGrant, Agent, User
from refine.models.runs.access import END_REASONS, STATUSES
from tests import factories, sql
from tests.web.conftest import Browser, browser_of, ended_session, person, signed_in_browser

# What each agent keeps to itself, in every memory, prompt and summary.
CANARIES = {"its agent": "goldfinch", "another agent": "nightingale"}

Put = Callable[[AccessGrant, User], object]


def live(grant: AccessGrant) -> None:
    assert grant.claim()
    grant.settle("YES", agreed=True, generation_id="gen-1")


def _granted(grant: AccessGrant, admin: User) -> None:
    live(grant)


def _declined(grant: AccessGrant, admin: User) -> None:
    assert grant.claim()
    grant.settle("NO", agreed=False, generation_id="gen-1")


def _ended_by_user(grant: AccessGrant, admin: User) -> None:
    live(grant)
    assert grant.end(user=grant.user)


def _revoked_by_agent(grant: AccessGrant, admin: User) -> None:
    live(grant)
    assert grant.end(user=None)


def _revoked_by_admin(grant: AccessGrant, admin: User) -> None:
    live(grant)
    assert grant.end(user=admin)


def _past_its_end(grant: AccessGrant, admin: User) -> None:
    live(grant)
    db.session.commit()
    sql.rewrite(f"UPDATE access_grants SET expires_at = clock_timestamp() WHERE id = '{grant.id}'")
    db.session.expire_all()


def _expired(grant: AccessGrant, admin: User) -> None:
    _past_its_end(grant, admin)
    assert grant.end_if_expired()


# A state is a status, and of an ended grant why it ended; and two that no column tells.
STATES: dict[str, Put | None] = {
    "none": None,
    "requested": lambda grant, admin: None,
    "granted": _granted,
    "granted, past its end": _past_its_end,
    "granted, agent not active": lambda grant, admin: (
        live(grant),
        setattr(grant.agent, "active", False),
    ),
    "declined": _declined,
    "failed": lambda grant, admin: grant.fail("the model's server did not answer", "timeout"),
    "lapsed": lambda grant, admin: grant.lapse(),
    "ended, expired": _expired,
    "ended, ended_by_user": _ended_by_user,
    "ended, revoked_by_agent": _revoked_by_agent,
    "ended, revoked_by_admin": _revoked_by_admin,
    "ended, no_longer_allowed": lambda grant, admin: (
        live(grant),
        grant.end_for_good("its user may no longer have access", admin),
    ),
}

# Whoever has a grant of their own in that state; what became of them since.
OWNERS: dict[str, Callable[[User], object]] = {
    "its user": lambda user: None,
    "its user, deactivated": lambda user: setattr(user, "active", False),
    "its user, now a viewer": lambda user: setattr(user, "role", "viewer"),
    "its user, now elsewhere": lambda user: setattr(user, "account", factories.account()),
}
OTHERS = ("another admin", "a viewer", "an admin elsewhere", "a site admin", "nobody")

# The states in which everybody asks about both agents.
LIVE_OR_NONE = ("none", "granted")

# What is asked of each page that shows content to whom it may, and of all that never do.
OPEN_PAGES = (
    "/agents/<int:agent_id>/ledger",
    "/agents/<int:agent_id>/memories/<int:memory_id>",
    "/agents/<int:agent_id>/settings",
    "/audit/<int:record_id>",
    "/sessions/<uuid:session_id>",
    "SEARCH /agents/<int:agent_id>/ledger",
)
SEALED_PAGES = (
    "/",
    "/access",
    "/access/<uuid:grant_id>",
    "/access/new",
    "/agents",
    "/agents/<int:agent_id>",
    "/agents/<int:agent_id>/tasks",
    "/agents/many",
    "/audit",
    "/audit/export.csv",
    "/audit/export.jsonl",
    "/find",
    "/schedule/run",
    "/sessions",
    "/sessions/compare",
    "/sessions/<uuid:session_id>/undo",
    "/usage",
    "/usage/export.csv",
)
# These are about no agent.
NO_AGENTS = {
    *(
        "/accounts",
        "/healthz",
        "/invitations/<secret>",
        "/metrics",
        "/ops",
        "/profile",
        "/profile/confirm",
    ),
    *("/readyz", "/schedule", "/sign-in", "/static/<path:filename>", "/tokens", "/users"),
    "/tokens/<int:token_id>/revoke",
}


class Told(NamedTuple):
    """An agent with something of its own in every place that there is."""

    agent: Agent
    agent_id: int  # without a look at the database, whose transactions may not idle
    memory_id: int
    record_id: int
    session_id: object
    grant_id: object


def told(admin: User, canary: str) -> Told:
    agent = factories.agent(
        account=admin.account,
        model_id="test/ada",
        system_prompt=f"the {canary} sings",
        refinement_prompt=f"as the {canary} would",
    )
    memories = [factories.memory(agent, f"the {canary} {factories.text_of(25)}") for _ in range(8)]
    session = ended_session(agent, memories[0], summary=f"one {canary} less")
    factories.ended_task(agent)
    factories.extraction(agent, f"the {canary} sings")
    deleted = next(r for r in factories.records(agent) if r.action == "memory_refinement_delete")
    return Told(agent, agent.id, memories[1].id, deleted.id, session.id, factories.grant(agent).id)


def visited(browser: Browser, page: str, about: Told) -> str:
    """All that comes back for a page about an agent."""
    path = page.removeprefix("SEARCH ")
    for name, value in (
        ("<int:agent_id>", about.agent_id),
        ("<int:memory_id>", about.memory_id),
        ("<int:record_id>", about.record_id),
        ("<uuid:session_id>", about.session_id),
        ("<uuid:grant_id>", about.grant_id),
    ):
        path = path.replace(name, str(value))
    if page.startswith("SEARCH "):
        answer = browser.submit(path, {"search": "the"}, follow_redirects=True)
    else:
        answer = browser.get(f"{path}?agent={about.agent_id}&work=budget", follow_redirects=True)
    return f"{answer.headers}{answer.text}"


def browsers(
    app: Flask, admin: User, agent: Agent, put: Put | None
) -> Iterator[tuple[str, Browser]]:
    """Everybody, signed in before what became of them since."""
    people = {
        **{who: person(account=admin.account) for who in OWNERS},
        "another admin": admin,
        "a viewer": person(account=admin.account, role="viewer"),
        "an admin elsewhere": person(),
        "a site admin": person(site_admin=True),
    }
    for who in OWNERS:
        if put is not None:
            grant = factories.grant(agent, user_id=people[who].id)
            put(grant, admin)
            db.session.commit()
            agent.active = True
    db.session.commit()
    signed_in = {who: signed_in_browser(app, user) for who, user in people.items()}
    for who, change in OWNERS.items():
        change(people[who])
    db.session.commit()
    yield "nobody", browser_of(app)
    yield from signed_in.items()


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_content_is_shown_only_where_its_agent_agreed(app: Flask, admin: User, state: str) -> None:
    about = {which: told(admin, canary) for which, canary in CANARIES.items()}
    agent = about["its agent"].agent
    people = dict(browsers(app, admin, agent, STATES[state]))
    agent.active = state != "granted, agent not active"
    db.session.commit()

    # whoever has no grant, and an agent that was not asked, see no state but a live grant's
    is_live = state in LIVE_OR_NONE
    asking = people if is_live else {who: people[who] for who in OWNERS}
    agents = CANARIES if is_live else ("its agent",)
    shown = {
        (who, which, page)
        for (who, browser), which, page in itertools.product(
            asking.items(), agents, OPEN_PAGES + SEALED_PAGES
        )
        if any(canary in visited(browser, page, about[which]) for canary in CANARIES.values())
    }

    allowed = {("its user", "its agent", page) for page in OPEN_PAGES}
    assert shown == (allowed if state == "granted" else set())
    assert people.keys() == {*OWNERS, *OTHERS}


def test_every_state_is_in_the_table() -> None:
    of_columns = {*STATUSES} - {"ended"} | {f"ended, {reason}" for reason in END_REASONS}

    assert of_columns <= STATES.keys()


def test_every_page_is_in_the_table(app: Flask) -> None:
    pages = {
        rule.rule
        for rule in app.url_map.iter_rules()
        if "GET" in (rule.methods or ()) and not rule.rule.startswith("/api/")
    }

    asked = {page for page in OPEN_PAGES + SEALED_PAGES if not page.startswith("SEARCH ")}
    assert asked | NO_AGENTS == pages
