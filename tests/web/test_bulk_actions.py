"""Bulk actions on agents: the page that asks for confirmation, and what comes of it."""

import re
from urllib.parse import urlencode

import pytest
from sqlalchemy import select

from refine.extensions import db
from refine.jobs import batches
from refine.jobs.batches import Work
from refine.models import Account, Agent, RefinementSession
from tests import factories
from tests.web.conftest import Browser, records, words_of


@pytest.fixture
def agents(account: Account) -> list[Agent]:
    """Three of which the last is paused."""
    made = [
        factories.agent("a memory", account=account, name=name, core_token_budget=100)
        for name in ("Ada", "Bo", "Cy")
    ]
    made[-1].paused = True
    db.session.commit()
    return made


def ids_of(*agents: Agent) -> str:
    return ",".join(str(agent.id) for agent in agents)


def asked(browser: Browser, work: Work, *agents: Agent) -> str:
    """What the page says that asks."""
    ticked = "".join(f"&agent={agent.id}" for agent in agents)
    answer = browser.get(f"/agents/many?work={work}{ticked}")
    assert answer.status_code == 200
    return words_of(answer.text)


def done(browser: Browser, work: Work, *agents: Agent, **fields: str) -> str:
    """What the list says after the question was answered."""
    form = {"work": work, "who": "page", "on_page": ids_of(*agents), **fields}
    answer = browser.submit("/agents/many", {**form, "digest": digest_of(browser, **form)})
    assert answer.status_code == 303, words_of(answer.text)
    return words_of(browser.get(answer.headers["Location"]).text)


def digest_of(browser: Browser, **form: str) -> str:
    """What the page that asks lets its form send of the agents it is for."""
    page = browser.get(f"/agents/many?{urlencode(form)}").text
    (found,) = re.findall(r'name="digest" value="(\w+)"', page)
    return str(found)


def sessions_of(*agents: Agent) -> list[str]:
    db.session.rollback()
    wanted = RefinementSession.agent_id.in_([agent.id for agent in agents])
    return list(db.session.scalars(select(RefinementSession.trigger).where(wanted)))


# -- the question ----------------------------------------------------------------------------------


def test_the_confirmation_names_affected_and_left_out_agents(dashboard, agents):
    said = asked(dashboard, "pause", *agents)

    assert "Pause 2 agents?" in said
    assert "Ada , Bo" in said
    assert "Already paused 1 Cy" in said


# -- what comes of it ------------------------------------------------------------------------------


def test_many_are_paused_and_resumed_with_a_record_each(dashboard, agents):
    said = done(dashboard, "pause", *agents)

    assert "2 agents paused." in said
    db.session.rollback()
    assert [agent.paused for agent in agents] == [True] * 3
    changes = [record.data["changes"] for record in records("agent_settings_update")]
    assert changes == [{"paused": [False, True]}] * 2

    said = done(dashboard, "resume", *agents)

    assert "3 agents resumed." in said
    db.session.rollback()
    assert [agent.paused for agent in agents] == [False] * 3


@pytest.mark.parametrize("who", ["page", "all"])
def test_it_asks_again_if_as_many_agents_are_others_meanwhile(dashboard, agents, who):
    form = {"work": "pause", "who": who, "on_page": ids_of(*agents)}
    form["digest"] = digest_of(dashboard, **form)
    agents[0].paused, agents[2].paused = True, False
    db.session.commit()

    answer = dashboard.submit("/agents/many", form)

    assert answer.status_code == 409
    assert "The agents have changed in the meantime; check them and confirm again." in words_of(
        answer.text
    )
    assert records("agent_settings_update") == []


def test_all_of_a_filter_are_chosen(dashboard, agents, monkeypatch):
    monkeypatch.setattr(batches, "BATCH", 1)
    form = {"work": "pause", "who": "all", "state": "never", "q": "test/"}
    assert "Pause 2 agents?" in words_of(dashboard.get(f"/agents/many?{urlencode(form)}").text)

    digest = digest_of(dashboard, **form)
    answer = dashboard.submit("/agents/many", {**form, "digest": digest})

    assert answer.headers["Location"] == "/agents?q=test/&state=never"
    assert "2 agents paused." in words_of(dashboard.get("/agents").text)
    db.session.rollback()
    assert [agent.paused for agent in agents] == [True] * 3


def test_many_are_refined_by_hand_and_paused_ones_too(dashboard, agents):
    said = done(dashboard, "refine", *agents)

    assert "3 agents asked for a session." in said
    assert sessions_of(*agents) == ["manual"] * 3


# -- of ticked agents ------------------------------------------------------------------------------


def test_what_costs_nothing_is_done_at_once_and_all_else_is_asked(dashboard, agents):
    for agent in agents[:2]:
        factories.ended(agent, "failed")
    db.session.commit()
    ticked = {"agent": [str(agent.id) for agent in agents]}

    at_once = dashboard.submit("/agents/many", {"work": "acknowledge", **ticked})
    refined = dashboard.submit("/agents/many", {"work": "refine", **ticked})

    done = "2 agents acknowledged; 1 agent skipped: no need of attention."
    assert done in words_of(dashboard.get(at_once.location).text)
    assert "Refine 3 agents?" in words_of(dashboard.get(refined.location).text)
    assert sessions_of(*agents) == ["weekly"] * 2


def test_all_of_one_cause_are_put_aside_after_a_question(dashboard, agents):
    for agent, error_kind in zip(agents, ("timeout", "timeout", "worker_lost"), strict=True):
        factories.ended(agent, "failed", error_kind=error_kind)
    db.session.commit()
    form = {"work": "acknowledge", "who": "all", "cause": "failed:timeout", "back": "/"}

    asked = dashboard.submit("/agents/many", form).location
    said = words_of(dashboard.get(asked).text)
    answer = dashboard.submit("/agents/many", {**form, "digest": digest_of(dashboard, **form)})

    assert "Acknowledge 2 agents?" in said
    assert "until something happens again" in said
    assert answer.location == "/"
    overview = words_of(dashboard.get("/").text)
    assert "2 agents acknowledged." in overview
    assert "1 agent with a failed session: worker lost" in overview


def test_too_many_agents_are_not_ticked_one_by_one(dashboard, agents):
    form = {"work": "acknowledge", "agent": list(map(str, range(1, 252)))}

    assert dashboard.submit("/agents/many", form).status_code == 400
