"""One agent's pages: what they show, and what can be done there."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from flask import Flask
from redis import Redis

from refine import clock
from refine.extensions import db
from refine.jobs.queue import RUNS
from refine.models import Agent, AgentMemory, RefinementSession, User
from refine.models.agent import configuring
from refine.models.ledger.ledger import Composition
from refine.rules.personal import HIDDEN_ID
from tests import editing, factories, sql
from tests.scripted_model import ScriptedModel
from tests.web.conftest import (
    Browser,
    SignedIn,
    actions_of,
    browser_of,
    ended_session,
    links_of,
    person,
    records,
    words_of,
)

WithSettings = Callable[..., Flask]


@pytest.fixture
def agent(admin: User) -> Agent:
    admin.account.slug = "demo"
    owner = factories.agent(account=admin.account, name="Ada", model_id="rehearsal/ada")
    factories.ledger(owner, *[25] * 8)
    db.session.commit()
    return owner


@pytest.fixture
def memory(agent: Agent) -> AgentMemory:
    made = factories.memory(agent, tags=["voice"])
    db.session.commit()
    return made


@pytest.fixture
def viewer(admin: User, signed_in: SignedIn) -> Browser:
    return signed_in(person(account=admin.account, role="viewer"))


def page_of(browser: Browser, agent: Agent, part: str = "") -> str:
    answer = browser.get(f"/agents/{agent.id}{part}")
    assert answer.status_code == 200
    return answer.text


# -- its story -------------------------------------------------------------------------------------


def test_events_are_drawn(dashboard: Browser, agent: Agent) -> None:
    first = db.session.scalars(agent.ledger.core()).first()
    assert first is not None
    session = ended_session(agent, first)

    page = page_of(dashboard, agent)

    assert f'<a href="/sessions/{session.id}" aria-label="' in page
    assert "session ended, 175 tokens" in page
    assert "Removed in the last 30 days 12% of what it held" in words_of(page)
    assert page.count("m-session") == 2  # in the plot, and in its legend
    assert "m-import" not in page


def test_before_an_undone_session_the_plot_shows_what_it_found(
    dashboard: Browser, agent: Agent
) -> None:
    first = db.session.scalars(agent.ledger.core()).first()
    assert first is not None
    session = ended_session(agent, first)
    dashboard.submit(f"/sessions/{session.id}/undo")

    line = re.search(r'class="mass" d="M0 (\S+?)L.* (\S+)"', page_of(dashboard, agent))

    assert line is not None
    assert line[1] == line[2]


def test_a_live_session_replaces_the_button_for_a_new_one(dashboard: Browser, agent: Agent) -> None:
    live = RefinementSession.queue(agent, "manual")
    db.session.commit()

    page = page_of(dashboard, agent)

    assert "Watch the session" in page
    assert f"/sessions/{live.id}" in links_of(page)
    assert f"/agents/{agent.id}/sessions" not in actions_of(page)


def test_an_erased_agent_is_offered_no_change_and_refuses_it_in_words(
    dashboard: Browser, agent: Agent, memory: AgentMemory
) -> None:
    configuring.author(agent, "refinement_prompt", "Go gently.")
    session = factories.session(agent)
    editing.delete(session, memory.id - 1)
    editing.complete(session, "Done.")
    factories.erase(agent)
    db.session.commit()
    here = f"/agents/{agent.id}"
    sent = {"constitutional": "1", "model_id": "rehearsal/eve", "confirm": "1"}

    for part in ("/refinement-prompt/clear", f"/memories/{memory.id}/constitutional", "/settings"):
        answer = dashboard.submit(f"{here}{part}", sent)

        assert answer.status_code == 409
        assert "everything it sealed is erased for good" in words_of(answer.text)
    offered = [actions_of(page_of(dashboard, agent, part)) for part in ("", "/ledger")]
    assert offered == [[], []]
    assert "Import memories…" not in page_of(dashboard, agent)
    assert "Clear refinement prompt" not in page_of(dashboard, agent, "/settings")
    assert "Undo…" not in dashboard.get(f"/sessions/{session.id}").text


# -- memories --------------------------------------------------------------------------------------


@pytest.fixture
def kinds(agent: Agent) -> Composition:
    """A different number of memories of each kind."""
    week_ago = clock.now() - timedelta(days=7, minutes=1)
    for _ in range(2):
        factories.memory(agent, constitutional=True)
    for _ in range(3):
        factories.memory(agent, memory_type="journal")
    for _ in range(4):
        factories.memory(agent, memory_type="journal", created_at=week_ago)
    for _ in range(5):
        factories.memory(agent).discard()
    factories.memory(agent, tags=["voice", "relational"])
    db.session.commit()
    return agent.ledger.composition(clock.now())


def rows_of(page: str) -> int:
    return len(re.findall(r'scope="row"><a [^>]*>#', page))


def test_each_memory_count_matches_the_list_it_links_to(
    dashboard: Browser, agent: Agent, kinds: Composition
) -> None:
    links = [link for link in links_of(page_of(dashboard, agent)) if "/ledger?" in link]

    listed = [rows_of(dashboard.get(link).text) for link in links]

    shown = [kinds.core, kinds.constitutional, kinds.journal_shown, kinds.journal_expired]
    assert listed == [*shown, kinds.discarded] == [11, 2, 3, 4, 5]
    said = words_of(page_of(dashboard, agent))
    assert "Core 11 Constitutional 2 Journal, last week 3 Journal, expired 4" in said
    assert "Discarded 5" in said


def test_the_constitutional_flag_is_set_lifted_and_recorded(
    dashboard: Browser, admin: User, agent: Agent, memory: AgentMemory
) -> None:
    path = f"/agents/{agent.id}/memories/{memory.id}/constitutional"

    back = f"/agents/{agent.id}/ledger?kind=core"
    answer = dashboard.submit(path, {"constitutional": "1", "back": back})
    db.session.refresh(memory)
    is_set = memory.constitutional
    dashboard.submit(path, {"constitutional": "0"})

    db.session.refresh(memory)
    assert answer.headers["Location"] == back
    assert (is_set, memory.constitutional) == (True, False)
    toggles = records("memory_constitutional_toggle")
    assert [record.user_id for record in toggles] == [admin.id] * 2
    assert [record.data["constitutional"] for record in toggles] == [True, False]


def test_a_discarded_memory_is_restored_and_recorded(
    dashboard: Browser, admin: User, agent: Agent, memory: AgentMemory
) -> None:
    memory.discard()
    db.session.commit()

    answer = dashboard.submit(
        f"/agents/{agent.id}/memories/{memory.id}/restore",
        {"back": f"/agents/{agent.id}/ledger?kind=discarded"},
        follow_redirects=True,
    )

    assert f"Memory #{memory.id} was restored to the core memories." in words_of(answer.text)
    assert answer.request.args["kind"] == "discarded"
    db.session.refresh(memory)
    assert not memory.discarded
    (record,) = records("memory_restored")
    assert record.user_id == admin.id


# -- refine now ------------------------------------------------------------------------------------


def test_refine_now_queues_a_session_and_redirects_to_it(
    redis: Redis, dashboard: Browser, admin: User, agent: Agent
) -> None:
    answer = dashboard.submit(f"/agents/{agent.id}/sessions")

    db.session.rollback()
    session = RefinementSession.live_of(agent)
    assert session is not None
    assert (session.trigger, session.user_id) == ("manual", admin.id)
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/sessions/{session.id}")
    assert redis.llen(f"rq:queue:{RUNS}") == 1
    (record,) = records("refinement_queued")
    assert record.user_id == admin.id


def test_refine_now_redirects_to_a_session_that_is_already_live(
    redis: Redis, dashboard: Browser, agent: Agent
) -> None:
    live = RefinementSession.queue(agent, "weekly")
    db.session.commit()

    answer = dashboard.submit(f"/agents/{agent.id}/sessions", follow_redirects=True)

    assert answer.request.path == f"/sessions/{live.id}"
    assert "This agent already has a live session, which is shown here." in answer.text
    assert len(records("refinement_queued")) == 1


# -- settings --------------------------------------------------------------------------------------


def settings(**fields: str) -> dict[str, str]:
    """What the form sends, all boxes as they are at first."""
    usual = {
        "model_id": "rehearsal/ada",
        "core_token_budget": "5000",
        "refinement_threshold": "",
        "has_paused": "1",
        "has_active": "1",
        "active": "1",
    }
    return {**usual, **fields}


def test_settings_are_saved_and_recorded(dashboard: Browser, admin: User, agent: Agent) -> None:
    answer = dashboard.submit(
        f"/agents/{agent.id}/settings",
        settings(core_token_budget="4,000", refinement_threshold=" 0.8 ", paused="1"),
        follow_redirects=True,
    )

    db.session.refresh(agent)
    assert "Saved." in words_of(answer.text)
    assert (agent.core_token_budget, agent.refinement_threshold, agent.paused, agent.active) == (
        4000,
        0.8,
        True,
        True,
    )
    (record,) = records("agent_settings_update")
    assert record.user_id == admin.id
    assert record.data["changes"] == {
        "core_token_budget": [5000, 4000],
        "refinement_threshold": [None, "0.8"],
        "paused": [False, True],
    }


def test_unticked_boxes_are_off(dashboard: Browser, agent: Agent) -> None:
    agent.paused = True
    db.session.commit()
    sent = settings()
    del sent["active"]

    dashboard.submit(f"/agents/{agent.id}/settings", sent)

    db.session.refresh(agent)
    assert (agent.paused, agent.active) == (False, False)


def test_invalid_values_are_explained_kept_in_the_form_and_not_stored(
    dashboard: Browser, agent: Agent
) -> None:
    dashboard.token()
    before = sql.snapshot()
    invalid = [
        ("core_token_budget", "0", "must be a whole number from 1"),
        *(
            ("core_token_budget", value, "must be a whole number")
            for value in ("", "-5", "1.5", "lots", "²", "9" * 30)
        ),
        *(
            ("refinement_threshold", value, "threshold")
            for value in ("0", "1.01", "-0.5", "0.12345", "NaN", "0.75abc")
        ),
        ("model_id", "", "Model must not be empty"),
        ("model_id", "x" * 300, "model"),
        ("model_id", "openrouter/auto", "must name one model"),
    ]

    for field, value, problem in invalid:
        sent = settings(**{"paused": "1", "core_token_budget": "4321", field: value})
        del sent["active"]
        answer = dashboard.submit(f"/agents/{agent.id}/settings", sent)

        assert answer.status_code == 422, (field, value)
        assert problem in words_of(answer.text), (field, value)
        assert f'aria-describedby="wrong-{field}"' in answer.text
        assert f'name="{field}"' in answer.text
        assert f'value="{value}"' in answer.text
        assert 'name="paused" value="1" checked' in answer.text
        assert 'name="active" value="1">' in answer.text
    assert sql.snapshot() == before


def test_a_model_that_is_unknown_or_without_tools_is_set_with_a_warning(
    admin: User, agent: Agent, model: ScriptedModel, with_settings: WithSettings
) -> None:
    model.catalogue = [
        {"id": "test/other", "supported_parameters": ["tools"]},
        {"id": "test/mute", "supported_parameters": ["temperature"]},
    ]
    browser = browser_of(with_settings(OPENROUTER_BASE_URL=model.base_url))
    browser.sign_in(admin.email)

    for wanted, why in {
        "test/unknown": "the provider lists no model 'test/unknown'",
        "test/mute": "the provider lists 'test/mute' without tools",
    }.items():
        answer = browser.submit(
            f"/agents/{agent.id}/settings", settings(model_id=wanted), follow_redirects=True
        )

        warning = f"Saved. Check the model, because sessions may fail: {why}."
        assert warning in words_of(answer.text)
        db.session.refresh(agent)
        assert agent.model_id == wanted


def test_clearing_the_refinement_prompt_is_recorded(
    dashboard: Browser, admin: User, agent: Agent
) -> None:
    configuring.author(agent, "refinement_prompt", "my style")
    db.session.commit()

    answer = dashboard.submit(f"/agents/{agent.id}/refinement-prompt/clear", follow_redirects=True)

    assert "Refinement prompt cleared: sessions now use the default." in words_of(answer.text)
    assert "clear" not in "".join(actions_of(answer.text))
    db.session.refresh(agent)
    assert agent.refinement_prompt is None
    last = records("agent_settings_update")[-1]
    assert (last.user_id, last.sealed["before"]) == (admin.id, "my style")
    assert "my style" not in str(last.data)


def test_no_page_or_export_shows_an_id_that_looks_personal(
    dashboard: Browser, agent: Agent, admin: User
) -> None:
    factories.session(agent)
    agent.record("memory_access_granted", data={"generation_id": "+49 170 1234567"})
    db.session.commit()
    record = factories.records(agent)[-1].id
    session = sql.value("SELECT id FROM refinement_sessions")
    for table in ("agents", "refinement_sessions"):
        sql.rewrite(f"UPDATE {table} SET model_id = 'ada@example.net'")

    pages = [
        dashboard.get(path).text
        for path in (
            *("/agents", f"/agents/{agent.id}", f"/agents/{agent.id}/settings"),
            *(f"/sessions/{session}", f"/audit/{record}", "/audit/export.jsonl"),
        )
    ]

    for page in pages:
        assert "ada@example.net" not in page
        assert "1234567" not in page
        assert "hidden: it looks like" in page
    kept = dashboard.submit(
        f"/agents/{agent.id}/settings", {"model_id": HIDDEN_ID, "core_token_budget": "777"}
    )
    assert kept.status_code == 303
    db.session.expire_all()
    assert (agent.model_id, agent.core_token_budget) == ("ada@example.net", 777)
