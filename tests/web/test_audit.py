"""The audit log: filtered, exported, each record at an address of its own."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest
import time_machine
from flask import Flask

from refine.extensions import db
from refine.models import Agent, AuditLog, RefinementSession, User
from refine.models.audit import PLATFORM
from refine.models.audit.kinds import ACTIONS, ACTIONS_OF_KIND
from refine.models.integrity import note_verified, verify_all
from refine.models.ledger.image import images_in
from tests import factories, sql
from tests.web.conftest import Browser, person, words_of

NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def in_march(app: Flask) -> Iterator[None]:
    with time_machine.travel(NOW, tick=True):
        yield


@pytest.fixture
def agent(admin: User) -> Agent:
    return factories.agent("one", account=admin.account, name="Ada")


@pytest.fixture
def session(agent: Agent) -> RefinementSession:
    return RefinementSession.queue(agent, "manual", at=NOW - timedelta(days=3))


@pytest.fixture
def records(admin: User, agent: Agent, session: RefinementSession) -> list[AuditLog]:
    """Records of two agents on several days, beside that of the session."""
    other = factories.agent("one", account=admin.account, name="Bea")
    made = [
        owner.record(action, user=user, at=NOW - timedelta(days=days))
        for action, owner, user, days in (
            ("memory_saved", agent, None, 50),
            ("memory_saved", agent, None, 29),
            ("memory_discarded", agent, admin, 3),
            ("memory_saved", other, None, 3),
            ("memory_saved", agent, None, 0),
        )
    ]
    db.session.commit()
    return made


def listed(browser: Browser, query: str = "") -> set[int]:
    """The ids of the records of a page."""
    page = browser.get(f"/audit{query}").text
    return {int(id_) for id_ in re.findall(r'<a href="/audit/(\d+)"', page)}


def days(back: int) -> date:
    return (NOW - timedelta(days=back)).date()


def test_the_url_filters_the_list(dashboard, agent, session, records):
    queued = db.session.scalars(db.select(AuditLog).where(AuditLog.session_id == session.id)).one()
    first, second, third, of_other, last = records
    expected = {
        "?action=memory_saved": [first, second, of_other, last],
        f"?agent={agent.id}": [first, second, third, last, queued],
        f"?session={session.id}": [queued],
        f"?since={days(3)}&until={days(3)}": [third, of_other, queued],
        f"?until={days(29)}": [first, second],
        f"?action=memory_saved&agent={agent.id}&since={days(29)}&until={days(1)}": [second],
    }

    found = {query: listed(dashboard, query) for query in expected}

    assert found == {query: {each.id for each in there} for query, there in expected.items()}


def test_records_are_counted_where_that_is_cheap(dashboard, agent, records):
    of_agent = dashboard.get(f"/audit?action=memory_saved&agent={agent.id}").text

    assert "3 records, newest first" in words_of(of_agent)
    assert f" agent {agent.name} , by " in words_of(of_agent)
    assert f"Audit · memory saved · {agent.name} · Refine</title>" in of_agent
    assert f">#{records[0].sequence}</a>" in of_agent
    assert "Records, newest first" in words_of(dashboard.get("/audit").text)


def test_an_export_is_recorded_with_its_user_and_filter(dashboard, admin, agent, session):
    db.session.commit()
    of_session = f"session={session.id}&since=2026-03-01"
    query = f"agent={agent.id}&action=memory_saved&memory=7&who={admin.email}&{of_session}"

    dashboard.get(f"/audit/export.jsonl?{query}")

    (record,) = db.session.scalars(db.select(AuditLog).filter_by(action="audit_exported"))
    assert (record.user_id, record.account_id, record.agent_id) == (
        *(admin.id, admin.account_id),
        None,
    )
    assert record.data["format"] == "jsonl"
    assert record.data["filter"] == {
        "action": "memory_saved",
        "user_id": admin.id,
        "agent_id": agent.id,
        "session_id": str(session.id),
        "memory_id": 7,
        "since": "2026-03-01",
    }


def test_the_record_of_an_export_does_not_tell_who_exists_in_other_accounts(dashboard):
    elsewhere = factories.user(email="ceo@rival.example")
    db.session.commit()

    for address in (elsewhere.email, "nobody@rival.example"):
        dashboard.get(f"/audit/export.jsonl?who={address}")

    exported = db.session.scalars(db.select(AuditLog).filter_by(action="audit_exported"))
    assert [record.data["filter"] for record in exported] == [{}, {}]


def test_an_export_that_cannot_be_recorded_sends_nothing(dashboard, records):
    sql.run(
        "CREATE FUNCTION refuse_exports() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.action = 'audit_exported' THEN RAISE 'no'; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER refuse_exports BEFORE INSERT ON audit_logs FOR EACH ROW "
        "EXECUTE FUNCTION refuse_exports()",
    )
    try:
        answer = dashboard.get("/audit/export.jsonl")
    finally:
        sql.run("DROP TRIGGER refuse_exports ON audit_logs", "DROP FUNCTION refuse_exports()")

    assert answer.status_code == 503
    assert "memory_saved" not in answer.text


def test_an_export_holds_all_open_data(dashboard, admin, agent, records):
    query = f"?agent={agent.id}&action=memory_discarded"

    exported = dashboard.get(f"/audit/export.jsonl{query}")

    record = records[2]
    assert exported.headers["Content-Disposition"] == "attachment; filename=audit-2026-03-20.jsonl"
    assert exported.mimetype == "application/jsonl"
    assert json.loads(exported.text) == {
        "id": record.id,
        "chain": record.chain_id,
        "sequence": record.sequence,
        "at": "2026-03-17T12:00:00.000000+00:00",
        "action": "memory_discarded",
        "account_id": admin.account_id,
        "agent_id": agent.id,
        "session_id": None,
        "user_id": admin.id,
        "subject_type": "Agent",
        "subject_id": str(agent.id),
        "data": {},
        "hash": record.hash,
    }


def test_nothing_that_is_shown_can_confirm_a_guessed_memory(dashboard, agent):
    memory = factories.memory(agent, "roses by the wall", source="mem0", source_id="id-elsewhere")
    memory.discard()
    db.session.commit()
    record = db.session.scalars(db.select(AuditLog).filter_by(action="memory_discarded")).one()
    (image,) = images_in(record.data)
    telling = {
        *(memory.content_hash, memory.row_digest, memory.source_id),
        *(image["before"]["digest"], image["after"]["digest"]),
    }

    pages = [
        dashboard.get(path).text
        for path in (
            *("/audit", f"/audit/{record.id}", "/audit/export.jsonl"),
            *(f"/agents/{agent.id}", f"/agents/{agent.id}/ledger"),
        )
    ]

    assert [each for each in telling for page in pages if each in page] == []


def test_only_admins_see_from_where_somebody_acted(admin, dashboard, agent, signed_in):
    viewer = signed_in(person(account=admin.account, role="viewer"))
    dashboard.submit(
        f"/agents/{agent.id}/settings",
        {"core_token_budget": "1234"},
        environ_overrides={"REMOTE_ADDR": "192.0.2.7"},
        headers={"User-Agent": "Bent/1.0"},
    )
    (settings,) = [each for each in factories.records(agent) if each.user_id == admin.id]
    paths = ("/audit", f"/audit/{settings.id}", "/audit/export.jsonl")

    for path in paths:
        assert "192.0.2.7" in dashboard.get(path).text, path
        page = viewer.get(path)
        assert page.status_code == 200
        assert not any(text in page.text for text in ("192.0.2.7", "Bent", '"col">Address')), path
    assert "192.0.2.7 Bent/1.0" in words_of(dashboard.get(paths[1]).text)


def test_records_are_filtered_by_actor(dashboard, admin, agent, signed_in):
    colleague = person(account=admin.account)
    made = {
        admin.email: agent.record("agent_settings_update", user=admin).id,
        colleague.email: agent.record("agent_settings_update", user=colleague).id,
        "platform": agent.record("agent_settings_update", data={"by": "platform"}).id,
        "command line": agent.record("agent_settings_update", data={"by": "command line"}).id,
        "agent": agent.record("agent_settings_update", data={"by": "agent"}).id,
        "agent or Refine": agent.record("agent_settings_update").id,
    }
    db.session.commit()

    for action in ("&action=agent_settings_update", "&kind=settings"):
        found = {who: listed(dashboard, f"?who={who}{action}") for who in made}
        assert found == {who: {id_} for who, id_ in made.items()}, action
        assert listed(dashboard, f"?who={admin.email.upper()}{action}") == {made[admin.email]}
        assert listed(dashboard, f"?who=nobody@example.org{action}") == set()


@pytest.mark.parametrize(
    ("action", "data", "actor"),
    [
        ("memory_refinement_rollback", {}, "session rolled back Ada the breaker"),
        ("memory_refinement_rollback", {"operation": "undo", "by": "agent"}, "undone Ada Ada"),
        ("memory_access_granted", {}, "access granted Ada Ada"),
        ("refinement_queued", {}, "session requested Ada Refine"),
    ],
)
def test_a_record_names_the_agent_the_breaker_or_refine(dashboard, agent, action, data, actor):
    agent.record(action, data=data)
    db.session.commit()

    page = dashboard.get(f"/audit?agent={agent.id}&action={action}").text
    assert actor in words_of(page)


def test_a_memorys_records_are_those_that_changed_it_or_showed_it(dashboard, admin, agent):
    memory, other = factories.ledger(agent, 25, 30)
    memory.discard(user=admin)
    other.discard(user=admin)
    db.session.commit()
    grant = factories.grant(agent, user_id=admin.id)
    viewed = grant.record("viewed", user=admin, what="memories", ids=[other.id, memory.id])
    grant.record("viewed", user=admin, what="memories", ids=[other.id])
    db.session.commit()
    discarded = next(
        each
        for each in factories.records(agent)
        if each.action == "memory_discarded" and images_in(each.data)[0]["id"] == memory.id
    )

    both, hashed = (listed(dashboard, f"?memory={text}") for text in (memory.id, f"%23{memory.id}"))

    assert both == hashed == {discarded.id, viewed.id}
    assert listed(dashboard, f"?memory={memory.id}&kind=read") == {viewed.id}
    assert listed(dashboard, "?memory=999999999") == set()


def test_a_kind_shows_the_records_of_its_actions(dashboard, admin, agent):
    made = {
        kind: {agent.record(action, at=NOW - timedelta(minutes=1)).id for action in actions}
        for kind, actions in ACTIONS_OF_KIND.items()
    }
    db.session.commit()

    found = {kind: listed(dashboard, f"?kind={kind}") for kind in ACTIONS_OF_KIND}

    others = listed(dashboard) - set.union(*made.values())  # of signing in
    assert {kind: ids - others for kind, ids in found.items()} == made


def test_a_record_page_shows_the_open_data(dashboard, admin, agent):
    memory = factories.memory(agent, factories.text_of(25), tags=["voice"])
    db.session.commit()
    dashboard.submit(
        f"/agents/{agent.id}/memories/{memory.id}/constitutional", {"constitutional": 1}
    )
    db.session.rollback()
    record = factories.records(agent)[-1]

    said = words_of(dashboard.get(f"/audit/{record.id}").text)

    assert "Constitutional flag changed" in said
    assert f"Record #{record.sequence} in the chain of {agent.name}" in said
    assert f"By {admin.email}" in said
    assert f"About memory #{memory.id}" in said
    assert f"#{memory.id} core 25 kept no → yes voice" in said
    assert record.hash in said


def test_a_record_page_has_plain_words_for_its_figures(dashboard, agent):
    data = {
        "and_after": False,
        "mass_before": 1_500,
        "undone_records": [3, 4],
        "stats": {"worn": 2},
    }
    record = agent.record("memory_refinement_rollback", data={**data, "changes": {}})
    db.session.commit()

    said = words_of(dashboard.get(f"/audit/{record.id}").text.partition("As JSON")[0])

    figures = "Core memory before 1500 Undone records 3, 4 With what came after it no Worn 2"
    assert f"Details {figures}" in said


def test_no_two_actions_are_called_the_same():
    assert len(set(ACTIONS.values())) == len(ACTIONS)


# -- the chain -------------------------------------------------------------------------------------


def verified() -> None:
    found = list(verify_all())
    assert [each.problem for each in found if each.problem] == []
    note_verified(found, NOW)
    db.session.commit()


def test_an_agents_chain_shows_how_far_it_was_verified(dashboard, agent):
    for _ in range(5):
        agent.record("memory_saved")
    verified()
    whole = words_of(dashboard.get(f"/audit?agent={agent.id}").text)
    agent.record("memory_saved")
    db.session.commit()

    later = words_of(dashboard.get(f"/audit?agent={agent.id}").text)

    assert "✓ Its first 5 records verified , 20 Mar 2026, 12:00 ." in whole
    assert "✓ Its first 5 records verified , 20 Mar 2026, 12:00 ; 1 record added since." in later


# -- whose -----------------------------------------------------------------------------------------


def test_only_site_admins_see_the_platforms_records(records, site_admins):
    platforms = AuditLog.record("keys_rotated", chain=PLATFORM)
    db.session.commit()

    everything, one = listed(site_admins), listed(site_admins, "?account=own")

    assert platforms.id in everything
    assert platforms.id not in one
    assert {record.id for record in records} <= one
    assert site_admins.get(f"/audit/{platforms.id}").status_code == 200


def test_days_follow_the_accounts_time_zone(admin, agent, signed_in):
    admin.account.time_zone = "Asia/Tokyo"
    late = agent.record("memory_saved", at=datetime(2026, 3, 9, 15, tzinfo=UTC))
    early = agent.record("memory_saved", at=late.created_at - timedelta(seconds=1))
    browser = signed_in(admin)

    tenth = listed(browser, "?since=2026-03-10&until=2026-03-10&action=memory_saved")
    ninth = listed(browser, "?since=2026-03-09&until=2026-03-09&action=memory_saved")

    assert (ninth, tenth) == ({early.id}, {late.id})
    assert "10 Mar 2026, 00:00" in words_of(browser.get("/audit").text)
