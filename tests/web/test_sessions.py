"""Sessions: the list, each one's page while it runs and after, stop and undo."""

import re
from datetime import timedelta
from typing import Any

import pytest

from refine import clock
from refine.extensions import db
from refine.models import Agent, AgentMemory, RefinementSession, User
from refine.models.runs.session.judging import CAUSES
from refine.tools import RefinementTool
from refine.web import lists
from tests import factories, sql
from tests.web.conftest import Browser, actions_of, ended_session, links_of, records, words_of


@pytest.fixture
def agent(admin: User) -> Agent:
    return factories.agent(account=admin.account, name="Ada", model_id="test/ada")


@pytest.fixture
def memories(agent: Agent) -> list[AgentMemory]:
    return factories.ledger(agent, *[25] * 20)


@pytest.fixture
def running(agent: Agent, memories: list[AgentMemory]) -> RefinementSession:
    """A session that has deleted one memory so far."""
    session = factories.session(agent)
    session.consented_at = clock.now()
    RefinementTool(session).execute(action="delete", id=memories[0].id)
    return session


@pytest.fixture
def ended(agent: Agent, memories: list[AgentMemory]) -> RefinementSession:
    """A session that deleted one memory."""
    return ended_session(agent, memories[0])


def shown(browser: Browser, session: RefinementSession, part: str = "") -> str:
    answer = browser.get(f"/sessions/{session.id}{part}")
    assert answer.status_code == 200
    return answer.text


# -- while it lives --------------------------------------------------------------------------------


def test_a_running_session_shows_its_changes_and_allowance(
    dashboard: Browser, running: RefinementSession
) -> None:
    page = shown(dashboard, running)

    said = words_of(page)
    assert "Ada consented and is working. Last heartbeat" in said
    assert "25 of 125 removable tokens removed; 100 left" in said
    assert "Edits 1 of at most 10" in said
    assert "memory discarded #" in said
    assert "-25" in said


# -- stop ------------------------------------------------------------------------------------------


def test_a_stop_can_be_requested_while_running(
    dashboard: Browser, admin: User, running: RefinementSession
) -> None:
    answer = dashboard.submit(f"/sessions/{running.id}/stop", follow_redirects=True)

    said = words_of(answer.text)
    assert "the session ends before its next step. Changes so far are kept." in said
    assert "Stopping before the next step." in said
    assert actions_of(answer.text) == []
    db.session.refresh(running)
    assert running.status == "running"
    assert running.is_stop_requested
    assert running.stop_requested_by_id == admin.id


# -- when it has ended -----------------------------------------------------------------------------


def test_an_ended_session_shows_its_outcome_and_figures(
    dashboard: Browser, ended: RefinementSession
) -> None:
    said = words_of(shown(dashboard, ended))

    assert (
        "completed Ada finished. Undo… Read its changes… An undo has no time limit. What later "
        "sessions did to the same memories is undone with it; what was erased for good stays so. "
        "25 tokens fewer in every prompt (5%)"
    ) in said
    assert "Before: 20 memories, 500 tokens" in said
    assert "After: 19 memories, 475 tokens" in said


@pytest.mark.parametrize(
    ("status", "offered"), [("declined", ["Read what it said…"]), ("failed", []), ("skipped", [])]
)
def test_of_a_session_that_changed_nothing_only_what_was_said_can_be_read(
    dashboard: Browser, agent: Agent, status: Any, offered: list[str]
) -> None:
    session = factories.ended(agent, status)
    db.session.commit()

    assert re.findall("Read [^<]*…", shown(dashboard, session)) == offered


def test_refusals_and_retirements_are_shown_by_cause(
    dashboard: Browser, ended: RefinementSession
) -> None:
    counted = dict.fromkeys(
        ("retired", "overruled", "worn", "unread", *map("refused_{}".format, CAUSES)), 1
    )
    ended.stats = {**ended.stats, **counted, "refused_sure": 1_200}
    db.session.commit()

    said = words_of(shown(dashboard, ended))

    assert (
        "Edits refused 1,203 1,200 for a changed meaning, 1 for lost words, "
        "1 by the second reading, 1 for retiring wrongly "
        "Memories retired 1 as outdated or wrong "
        "Doubts cleared 1 the rules doubted, the second reading found nothing "
        "Memories that lost words 1 a few are allowed each session "
        "Edits without a second reading 1 judged by the rules alone "
    ) in said


# -- undo ------------------------------------------------------------------------------------------


def test_the_undo_form_shows_the_effect_and_changes_nothing(
    dashboard: Browser, ended: RefinementSession
) -> None:
    before = sql.snapshot()

    page = shown(dashboard, ended, "/undo")

    assert "1 brought back; 19 → 20 memories, 475 → 500 tokens" in words_of(page)
    assert actions_of(page) == [f"/sessions/{ended.id}/undo"]
    assert sql.snapshot() == before


def test_an_undo_restores_everything_and_shows_the_result(
    dashboard: Browser, admin: User, ended: RefinementSession, memories: list[AgentMemory]
) -> None:
    answer = dashboard.submit(f"/sessions/{ended.id}/undo", follow_redirects=True)

    said = words_of(answer.text)
    assert answer.request.path == f"/sessions/{ended.id}"
    assert "Undone: 1 brought back; 19 → 20 memories, 475 → 500 tokens." in said
    assert "↺ undone" in said
    assert f"by {admin.email}: its changes are reversed." in said
    db.session.refresh(memories[0])
    assert not memories[0].discarded
    (record,) = records("memory_refinement_rollback")
    assert (record.user_id, record.data["by"]) == (admin.id, "dashboard")


@pytest.fixture
def obstacles_among(
    dashboard: Browser, ended: RefinementSession, memories: list[AgentMemory]
) -> AgentMemory:
    """A memory that was restored after the session had deleted it."""
    dashboard.submit(f"/agents/{ended.agent_id}/memories/{memories[0].id}/restore")
    db.session.rollback()
    return memories[0]


def test_a_conflicting_undo_names_records_and_offers_the_wider_undo(
    dashboard: Browser, ended: RefinementSession, obstacles_among: AgentMemory
) -> None:
    path = f"/sessions/{ended.id}/undo"
    before = sql.snapshot()

    answers = [dashboard.get(path), dashboard.submit(path)]

    assert sql.snapshot() == before
    (restored,) = records("memory_restored")
    for answer in answers:
        said = words_of(answer.text)
        assert answer.status_code == 409
        assert "This session cannot be undone by itself" in said
        assert f"Memory #{obstacles_among.id} , on" in said
        assert f"memory restored, record #{restored.sequence}" in said
        assert f"/audit/{restored.id}" in links_of(answer.text)
        assert f"{path}?and_after=1" in links_of(answer.text)
        assert actions_of(answer.text) == []


def test_the_wider_undo_reverses_the_conflicting_change_too(
    dashboard: Browser, ended: RefinementSession, obstacles_among: AgentMemory
) -> None:
    page = shown(dashboard, ended, "/undo?and_after=1")

    answer = dashboard.submit(
        f"/sessions/{ended.id}/undo", {"and_after": "1"}, follow_redirects=True
    )

    assert 'name="and_after" value="1"' in page
    assert "along with every flag change and restore since" in words_of(page)
    assert "Undone:" in words_of(answer.text)
    assert len(records("memory_refinement_rollback")) == 1


# -- the list --------------------------------------------------------------------------------------


@pytest.fixture
def several(admin: User, agent: Agent) -> list[RefinementSession]:
    """Sessions of several outcomes and triggers, one of them long ago."""
    made = []
    for days, trigger, status, kind in (
        (0, "manual", "declined", None),
        (1, "weekly", "failed", "worker_lost"),
        (2, "weekly", "failed", "timeout"),
        (40, "manual", "failed", "timeout"),
    ):
        at = clock.now() - timedelta(days=days)
        user = admin if trigger == "manual" else None
        session = RefinementSession.queue(agent, trigger, user=user, at=at)  # type: ignore[arg-type]
        session.finish(status, f"reason of day {days}", error_kind=kind, at=at)  # type: ignore[arg-type]
        made.append(session)
    db.session.commit()
    return made


def listed(browser: Browser, query: str = "") -> list[str]:
    """The sessions of the list, by the day of their reason."""
    said = words_of(browser.get(f"/sessions{query}").text).split()
    return [said[position + 1] for position, word in enumerate(said) if word == "day"]


def test_sessions_are_listed_newest_first_and_filtered(
    dashboard: Browser, admin: User, several: list[RefinementSession]
) -> None:
    first = str(several[0].id)
    expected = {
        "": ["0", "1", "2", "40"],
        "?status=failed": ["1", "2", "40"],
        "?status=failed&trigger=weekly": ["1", "2"],
        "?error=worker_lost": ["1"],
        "?q=ADA": ["0", "1", "2", "40"],
        "?q=schedul": ["1", "2"],
        f"?q={admin.email}&status=failed": ["40"],
        f"?q={first[:11].upper()}": ["0"],
        f"?q={first[1:]}": [],
        "?q=reason": [],
        "?status=queued": [],
        "?status=nonsense&trigger=nonsense&since=nonsense&agent=%C2%B2": ["0", "1", "2", "40"],
    }

    assert {query: listed(dashboard, query) for query in expected} == expected


def test_the_list_of_sessions_tells_its_filter_and_how_many_match(
    dashboard: Browser, agent: Agent, several: list[RefinementSession], monkeypatch: Any
) -> None:
    page = dashboard.get(f"/sessions?status=failed&agent={agent.id}").text

    assert "Failed sessions · Ada · Refine</title>" in page
    assert "3 sessions, newest first" in words_of(page)
    monkeypatch.setattr(lists, "MOST_COUNTED", 2)
    assert "2+ sessions, newest first" in words_of(dashboard.get("/sessions").text)


def test_the_account_is_named_where_two_accounts_show(
    site_admins: Browser, several: list[RefinementSession]
) -> None:
    assert "In every row: account Own account, agent Ada" in words_of(
        site_admins.get("/sessions").text
    )
    factories.ended(factories.agent(account=factories.account(name="Elsewhere")))
    db.session.commit()

    page = words_of(site_admins.get("/sessions").text)

    assert (page.count("Elsewhere"), page.count("Own account")) == (1, 4)
