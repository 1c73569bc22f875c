"""How many statements a page, an operation of the API and a tool call may send to the database.

However long its lists are: the world has ``MANY`` of everything, so that one row of a list that
costs a statement is found.
"""

import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import time_machine

from refine import clock
from refine.api.routing import OPERATIONS, Operation
from refine.extensions import db
from refine.models import (
    Account,
    Agent,
    ApiToken,
    Invitation,
    MemoryTask,
    RefinementSession,
    User,
    Verification,
    schema_version,
)
from refine.tools import (
    PromoteTool,
    RefinementTool,
    SaveMemoryTool,
    SaveToJournalTool,
    SelfAuthoringTool,
)
from tests import factories
from tests.api.conftest import World as ApiWorld
from tests.api.test_every_operation import ask, path_of, right
from tests.sql import statements_of
from tests.web.conftest import Browser, ended_session, person, signed_in_browser

MANY = 30
MOST_OF_AN_OPERATION, MOST_OF_A_CALL = 34, 14

# How many each page sends, by rule and what the URL asks for: as measured, for the one of two
# people who needs more, an admin who may read a memory and a site admin.
PAGES = {
    "/": 22,
    "/?account=own": 23,
    "/access": 6,
    "/access/<uuid:grant_id>": 9,
    "/access/new?agent=<int:agent_id>": 10,
    "/accounts": 8,
    "/agents": 8,
    "/agents?sort=share": 8,
    "/agents?q=agent&state=never": 8,
    "/accounts/<int:account_id>/lock": 7,
    "/agents/many?work=refine&agent=<int:agent_id>": 7,
    "/agents/<int:agent_id>": 17,
    "/agents/<int:agent_id>/erasure": 6,
    "/agents/<int:agent_id>/ledger": 17,
    "/agents/<int:agent_id>/ledger?kind=discarded": 17,
    "/agents/<int:agent_id>/memories/<int:memory_id>": 17,
    "/agents/<int:agent_id>/settings": 15,
    "/agents/<int:agent_id>/tasks": 7,
    "/audit": 7,
    "/audit?agent=<int:agent_id>": 9,
    "/audit?kind=read&who=user@example.org": 8,
    "/audit?session=<uuid:session_id>": 7,
    "/audit/<int:record_id>": 15,
    "/audit/export.jsonl": 6,
    "/deliveries": 6,
    "/forgotten": 4,
    "/inbox": 6,
    "/find?q=<int:memory_id>": 9,
    "/healthz": 0,
    "/invitations/<secret>": 9,
    "/letter?account=own": 9,
    "/metrics": 7,
    "/ops": 19,
    "/profile": 5,
    "/profile/confirm": 5,
    "/profile/sign-ins": 6,
    "/profile/second-factors": 7,
    "/readyz": 6,
    "/schedule?account=own": 9,
    "/schedule/retention?account=own&months=1": 8,
    "/schedule/run?account=own": 9,
    "/sessions": 6,
    "/sessions?agent=<int:agent_id>": 7,
    "/sessions/<uuid:session_id>": 16,
    "/sessions/<uuid:session_id>/undo": 12,
    "/sign-in": 2,
    "/sign-in/provider": 4,
    "/sign-in/provider/callback": 4,
    "/sign-in/second-factor": 2,
    "/static/<path:filename>": 0,
    "/tokens": 6,
    "/tokens/<int:token_id>/revoke": 7,
    "/usage": 7,
    "/usage?account=own": 8,
    "/usage?by=month": 7,
    "/users": 6,
    "/users/<int:user_id>/lock": 6,
    "/wall": 10,
    "/wall/open": 2,
}


def filled(account: Account, owner: Agent, session: RefinementSession) -> None:
    """Many of everything that pages list."""
    user = db.session.scalars(db.select(User).where(User.account_id == account.id)).first()
    assert user is not None
    Verification.begin("clock", clock.now()).end(clock.now())
    factories.endpoint(account)
    for each in range(MANY):
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


def urls(owner: Agent, session: RefinementSession) -> dict[str, str]:
    """The address of each page, by the rule and what it is asked for."""
    grant = factories.grant(owner)
    values = {
        "<int:agent_id>": owner.id,
        "<int:memory_id>": next(iter(db.session.scalars(owner.ledger.core()))).id,
        "<int:token_id>": ApiToken.mint(account=owner.account)[0].id,
        "<uuid:session_id>": session.id,
        "<uuid:grant_id>": grant.id,
        "<int:record_id>": factories.records(owner)[-1].id,
        "<int:user_id>": person(account=owner.account).id,
        "<int:account_id>": owner.account_id,
        "<secret>": Invitation.issue(person(account=owner.account)),
        "<path:filename>": "refine.css",
    }
    found = {}
    for page in PAGES:
        found[page] = page
        for name, value in values.items():
            found[page] = found[page].replace(name, str(value))
    db.session.commit()
    return found


# Neither mail nor a provider of identities is set.
NOT_SET = ("/forgotten", "/sign-in/provider", "/sign-in/provider/callback")


def see(browser: Browser, url: str) -> None:
    assert browser.get(url).status_code in (200, 302, 303, 403) or url in NOT_SET, url


def refresh(browser: Browser, url: str, version: str) -> None:
    """Ask as a page does that is left open, and has nothing new to show."""
    known = {"HX-Source": "main#main", "If-None-Match": version}
    assert browser.get(url, headers=known).status_code == 304, url


def test_every_page_is_counted(app):
    rules = {
        rule.rule
        for rule in app.url_map.iter_rules()
        if "GET" in (rule.methods or ()) and not rule.endpoint.startswith("api.")
    }

    assert {page.partition("?")[0] for page in PAGES} == rules


def test_pages_keep_to_the_budget(app, monkeypatch):
    monkeypatch.setattr(schema_version, "_BELIEVED_SECONDS", 3600)  # not looked at meanwhile
    admin = person(account=factories.account(slug="own"))
    owner = factories.agent(*(factories.text_of(20) for _ in range(9)), account=admin.account)
    session = ended_session(owner, *db.session.scalars(owner.ledger.core().limit(1)))
    filled(admin.account, owner, session)
    pages = urls(owner, session)
    factories.live_grant(owner, admin)
    browsers = [
        signed_in_browser(app, admin),
        signed_in_browser(app, person(site_admin=True, account=factories.account(slug="a"))),
    ]

    assert [each.get("/profile").status_code for each in browsers] == [200, 200]
    with time_machine.travel(clock.now(), tick=False):  # a sign-in's use is noted by the minute
        counted = {
            page: max(statements_of(partial(see, each, url)) for each in browsers)
            for page, url in pages.items()
        }

        refreshed = {
            page: statements_of(partial(refresh, browsers[0], page, version))
            for page in ("/", "/agents", "/sessions", "/audit", "/ops")
            for version in [browsers[0].get(page).headers["ETag"]]
        }

    assert {page: count for page, count in counted.items() if count > PAGES[page]} == {}
    assert {page: count for page, count in refreshed.items() if count > PAGES[page]} == {}


@pytest.mark.slow
def test_operations_keep_to_the_budget(app):
    reading = ApiWorld(app)
    listed(reading.agent)

    found = {
        f"{each.method} {each.rule}": statements_of_call(
            each, reading if each.method == "GET" else ApiWorld(app)
        )
        for each in OPERATIONS
    }

    assert {name: count for name, count in found.items() if count > MOST_OF_AN_OPERATION} == {}


def statements_of_call(each: Operation, api: ApiWorld) -> int:
    path = path_of(each, api)
    asker = api.nobody if each.bearer is None else right(each, api)
    asker.get("/context" if each.bearer == "agent" else "/agents")  # notes its use

    def call() -> None:
        assert ask(each, asker, path).status_code < 300

    return statements_of(call)


def listed(agent: Agent) -> None:
    """Many of everything that operations list."""
    for number in range(MANY):
        factories.agent("one", account=agent.account)
        factories.memory(agent, content=f"number {number}")
        factories.memory(agent, memory_type="journal", content=f"entry {number}")
        factories.ended_task(agent, "reflection", "completed")
        factories.grant(agent)
        RefinementSession.queue(agent, "weekly").finish("declined", "so it ended")
    db.session.commit()


def calls_of_session(agent: Agent) -> dict[str, Callable[[], Any]]:
    tool = RefinementTool(factories.session(agent))
    memories = db.session.scalars(agent.ledger.core()).all()
    first, second, third, fourth, fifth, *_ = [memory.id for memory in memories]
    wording, other = f"{memories[0].content}.", memories[3].content
    return {
        "search": lambda: tool.execute(action="search", query="zebra"),
        "protect": lambda: tool.execute(action="protect", id=fifth),
        "update": lambda: tool.execute(action="update", id=first, content=wording),
        "delete": lambda: tool.execute(action="delete", id=second),
        "consolidate": lambda: tool.execute(
            action="consolidate", ids=[third, fourth], content=other
        ),
        "complete": lambda: tool.execute(action="complete", summary="done"),
    }


def calls_between_sessions(agent: Agent) -> dict[str, Callable[[], Any]]:
    saving, authoring = SaveMemoryTool(agent), SelfAuthoringTool(agent)
    entry = factories.entry(agent, "It rained.")
    promoting = PromoteTool(*held(MemoryTask.reflect(agent, "daily")))
    to_journal = SaveToJournalTool(*held(factories.extraction(factories.agent("one"))))
    return {
        "save_memory": lambda: saving.execute(content="said", memory_type="core"),
        "view": lambda: authoring.execute(action="view", field="name"),
        "update a field": lambda: authoring.execute(action="update", field="name", value="Wren"),
        "promote": lambda: promoting.execute(ids=entry.id),
        "save_to_journal": lambda: to_journal.execute(content="said"),
    }


def held(task: MemoryTask) -> tuple[uuid.UUID, uuid.UUID]:
    lease_token = task.claim()
    assert lease_token is not None
    db.session.commit()
    return task.id, lease_token


def test_tool_calls_keep_to_the_budget(app):
    agent = factories.agent(*(factories.text_of(25) for _ in range(MANY)))
    db.session.commit()
    calls = calls_between_sessions(agent) | calls_of_session(agent)

    def carry_out(call: Callable[[], Any]) -> None:
        result = call()
        assert result["type"] != "error", result

    found = {name: statements_of(partial(carry_out, call)) for name, call in calls.items()}

    assert {name: count for name, count in found.items() if count > MOST_OF_A_CALL} == {}
