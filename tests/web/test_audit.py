"""The audit log: filtered, counted by day, exported, each record at an address of its own."""

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest
import time_machine
from flask import Flask

from refine.extensions import db
from refine.models import Agent, AuditLog, ChainHead, RefinementSession, User
from refine.models.audit import PLATFORM
from refine.models.integrity import note_verified, verify_all
from refine.models.ledger import images_in
from refine.transfer.importing import import_memories
from refine.transfer.rows import Incoming
from tests import factories
from tests.web.conftest import Browser, SignedIn, ended_session, links_of, person, words_of

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


def test_a_record_names_an_actor_who_is_not_a_user(dashboard: Browser, agent: Agent) -> None:
    for by in ("platform", "command line"):
        agent.record("agent_settings_update", data={"by": by})
    db.session.commit()

    said = words_of(dashboard.get("/audit?action=agent_settings_update").text)

    assert "agent settings changed Ada platform" in said
    assert "agent settings changed Ada command line" in said


def days(back: int) -> date:
    return (NOW - timedelta(days=back)).date()


def query_of(name: str, agent: Agent, session: RefinementSession) -> str:
    """The URL's arguments of a filter of a test."""
    return {
        "action": "?action=memory_saved",
        "agent": f"?agent={agent.id}",
        "session": f"?session={session.id}",
        "day": f"?since={days(3)}&until={days(3)}",
        "since": f"?since={days(3)}",
        "until": f"?until={days(29)}",
        "all": f"?action=memory_saved&agent={agent.id}&since={days(29)}&until={days(1)}",
    }[name]


FILTERS = ["action", "agent", "session", "day", "since", "until", "all"]


def test_the_url_filters_the_list(
    dashboard: Browser, agent: Agent, session: RefinementSession, records: list[AuditLog]
) -> None:
    queued = db.session.scalars(db.select(AuditLog).where(AuditLog.session_id == session.id)).one()
    numbered = dict(enumerate(records)) | {"session": queued}
    expected: dict[str, list[int | str]] = {
        "action": [0, 1, 3, 4],
        "agent": [0, 1, 2, 4, "session"],
        "session": ["session"],
        "day": [2, 3, "session"],
        "until": [0, 1],
        "all": [1],
    }

    found = {name: listed(dashboard, query_of(name, agent, session)) for name in expected}

    ids = {name: {numbered[each].id for each in numbers} for name, numbers in expected.items()}
    assert found == ids


def test_an_export_holds_exactly_the_filtered_records(
    dashboard: Browser, agent: Agent, session: RefinementSession, records: list[AuditLog]
) -> None:
    for name in FILTERS:
        page = dashboard.get(f"/audit{query_of(name, agent, session)}").text
        links = [link for link in links_of(page) if "/export." in link]
        as_csv, as_json = (dashboard.get(link) for link in links)

        of_csv = [int(row["id"]) for row in csv.DictReader(io.StringIO(as_csv.text))]
        of_json = [json.loads(line)["id"] for line in as_json.text.splitlines()]

        assert set(of_csv) == listed(dashboard, query_of(name, agent, session)), name
        at = {row["id"]: row["at"] for row in map(json.loads, as_json.text.splitlines())}
        newest_first = sorted(of_csv, key=lambda id_: (at[id_], id_), reverse=True)
        assert of_json == of_csv == newest_first, name


def test_an_export_holds_all_open_data(
    dashboard: Browser, admin: User, agent: Agent, records: list[AuditLog]
) -> None:
    query = f"?agent={agent.id}&action=memory_discarded"

    as_csv = dashboard.get(f"/audit/export.csv{query}")
    as_json = dashboard.get(f"/audit/export.jsonl{query}")

    record = records[2]
    assert as_csv.headers["Content-Disposition"] == "attachment; filename=audit-2026-03-20.csv"
    assert as_csv.mimetype == "text/csv"
    assert as_json.mimetype == "application/jsonl"
    assert json.loads(as_json.text) == {
        "id": record.id,
        "chain": record.chain_id,
        "sequence": record.sequence,
        "at": "2026-03-17T12:00:00.000000+00:00",
        "action": "memory_discarded",
        "account_id": admin.account_id,
        "agent_id": agent.id,
        "session_id": None,
        "user_id": admin.id,
        "subject_type": None,
        "subject_id": None,
        "data": {},
        "hash": record.hash,
    }
    (row,) = csv.DictReader(io.StringIO(as_csv.text))
    assert (row["id"], row["session_id"], row["data"]) == (str(record.id), "", "{}")


def test_nothing_that_is_shown_can_confirm_a_guessed_memory(
    dashboard: Browser, agent: Agent
) -> None:
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
            *("/audit", f"/audit/{record.id}", "/audit/export.csv", "/audit/export.jsonl"),
            *(f"/agents/{agent.id}", f"/agents/{agent.id}/ledger"),
        )
    ]

    assert [each for each in telling for page in pages if each in page] == []


def test_only_admins_see_from_where_somebody_acted(
    admin: User, dashboard: Browser, agent: Agent, signed_in: SignedIn
) -> None:
    viewer = signed_in(person(account=admin.account, role="viewer"))
    dashboard.submit(
        f"/agents/{agent.id}/settings",
        {"core_token_budget": "1234"},
        environ_overrides={"REMOTE_ADDR": "192.0.2.7"},
        headers={"User-Agent": "Bent/1.0"},
    )
    (settings,) = [each for each in factories.records(agent) if each.user_id == admin.id]
    paths = ("/audit", f"/audit/{settings.id}", "/audit/export.csv", "/audit/export.jsonl")

    for path in paths:
        assert "192.0.2.7" in dashboard.get(path).text, path
        page = viewer.get(path)
        assert page.status_code == 200
        assert not any(text in page.text for text in ("192.0.2.7", "Bent", '"col">From')), path
    assert "192.0.2.7 Bent/1.0" in words_of(dashboard.get(paths[1]).text)


def test_no_cell_of_an_export_is_a_formula(dashboard: Browser, agent: Agent) -> None:
    starts = ["=", "+", "-", "@", "\t", "\r"]
    for start in starts:
        agent.record("memory_saved", subject=("AgentMemory", f"{start}1+1"))
    db.session.commit()

    exported = dashboard.get("/audit/export.csv?action=memory_saved").text

    rows = csv.DictReader(io.StringIO(exported, newline=""))
    assert [row["subject_id"] for row in rows] == [f"'{start}1+1" for start in reversed(starts)]


def test_a_long_export_is_complete(dashboard: Browser, agent: Agent) -> None:
    for _ in range(510):
        agent.record("memory_saved")
    db.session.commit()

    exported = dashboard.get("/audit/export.jsonl?action=memory_saved").text

    assert len({json.loads(line)["id"] for line in exported.splitlines()}) == 510


def test_the_strip_counts_each_days_records_and_links_to_them(
    dashboard: Browser, agent: Agent, session: RefinementSession, records: list[AuditLog]
) -> None:
    for name in FILTERS:
        query = query_of(name, agent, session)
        page = dashboard.get(f"/audit{query}").text
        strip = page.partition('<ol class="strip"')[2].partition("</ol>")[0]
        counts = [int(count) for count in re.findall(r": (\d+) records?<", strip)]
        by_link = dict(zip(links_of(strip), counts, strict=True))
        quiet = next(link for link, count in by_link.items() if count == 0)
        followed = {link: by_link[link] for link in by_link if by_link[link] or link == quiet}

        found = {link: len(listed(dashboard, link.removeprefix("/audit"))) for link in followed}

        assert len(counts) == 30
        assert found == followed, name
        if "since" not in query and name != "until":
            assert sum(counts) == len(listed(dashboard, f"{query}&since={days(29)}")), name


def counts_by_day(browser: Browser, query: str = "") -> list[int]:
    strip = (
        browser.get(f"/audit{query}").text.partition('<ol class="strip"')[2].partition("</ol>")[0]
    )
    return [int(count) for count in re.findall(r": (\d+) records?<", strip)]


def test_only_days_that_may_still_change_are_counted_again(
    app: Flask, dashboard: Browser, agent: Agent
) -> None:
    yesterday = NOW - timedelta(days=1)
    agent.record("memory_saved", at=yesterday)
    agent.record("memory_saved", at=NOW)
    db.session.commit()
    query = "?action=memory_saved"
    before = counts_by_day(dashboard, query)

    agent.record("memory_saved", at=yesterday)  # as nobody writes it any more
    agent.record("memory_saved", at=NOW)
    db.session.commit()

    assert (before[-2:], counts_by_day(dashboard, query)[-2:]) == ([1, 1], [1, 2])
    assert counts_by_day(dashboard, f"{query}&agent={agent.id}")[-2:] == [2, 2]


def test_yesterday_is_counted_again_for_an_hour(
    admin: User, agent: Agent, signed_in: SignedIn
) -> None:
    midnight = NOW.replace(hour=0) + timedelta(days=1)
    query = "?action=memory_saved"
    with time_machine.travel(midnight + timedelta(minutes=59), tick=False):
        dashboard = signed_in(admin)
        before = counts_by_day(dashboard, query)
        agent.record("memory_saved", at=midnight - timedelta(seconds=1))
        db.session.commit()

        after = counts_by_day(dashboard, query)

    assert (before[-2:], after[-2:]) == ([0, 0], [1, 0])


def test_the_counts_of_few_filters_are_kept(app: Flask, dashboard: Browser) -> None:
    kept = app.extensions["refine.audit.counts"]
    kept.update((number, {}) for number in range(1_001))

    dashboard.get("/audit")

    assert len(kept) == 1


def test_days_follow_the_accounts_time_zone(admin: User, agent: Agent, signed_in: SignedIn) -> None:
    admin.account.time_zone = "Asia/Tokyo"
    late = agent.record("memory_saved", at=datetime(2026, 3, 9, 15, tzinfo=UTC))
    early = agent.record("memory_saved", at=late.created_at - timedelta(seconds=1))
    browser = signed_in(admin)

    tenth = listed(browser, "?since=2026-03-10&until=2026-03-10&action=memory_saved")
    ninth = listed(browser, "?since=2026-03-09&until=2026-03-09&action=memory_saved")

    assert (ninth, tenth) == ({early.id}, {late.id})
    assert "10 Mar 2026, 00:00" in words_of(browser.get("/audit").text)


def test_each_filter_can_be_removed(
    dashboard: Browser, agent: Agent, session: RefinementSession, records: list[AuditLog]
) -> None:
    query = f"{query_of('all', agent, session)}&session={session.id}"

    page = dashboard.get(f"/audit{query}").text
    chips = re.findall(r'<a class="chip" href="([^"]+)">× ([^<]+)</a>', page)

    assert [text for _, text in chips] == [
        "memory saved",
        "Ada",
        "one session",
        "from 19 Feb 2026",
        "to 19 Mar 2026",
    ]
    gone = ["action", "agent", "session", "since", "until"]
    assert [name for (link, _), name in zip(chips, gone, strict=True) if f"{name}=" in link] == []
    assert [len(re.findall("=", link)) for link, _ in chips] == [4] * 5


def test_a_record_page_shows_the_open_data(dashboard: Browser, admin: User, agent: Agent) -> None:
    memory = factories.memory(agent, factories.text_of(25), tags=["voice"])
    db.session.commit()
    dashboard.submit(
        f"/agents/{agent.id}/memories/{memory.id}/constitutional", {"constitutional": 1}
    )
    db.session.rollback()
    record = factories.records(agent)[-1]

    said = words_of(dashboard.get(f"/audit/{record.id}").text)

    assert "Constitutional flag changed" in said
    assert f"Record #{record.sequence} in chain {record.chain_id}" in said
    assert f"By {admin.email}" in said
    assert f"Subject AgentMemory {memory.id}" in said
    assert f"#{memory.id} core 25 kept no → yes voice" in said
    assert record.hash in said


def test_an_import_record_counts_memories_without_their_content(
    dashboard: Browser, agent: Agent
) -> None:
    rows = [Incoming(place="row 1", content="the canary sings", source_id="canary song")]
    db.session.commit()
    import_memories(agent, lambda: rows, source="mem0")
    (record,) = factories.records(agent)

    said = words_of(dashboard.get(f"/audit/{record.id}").text)

    assert "Memories imported" in said
    assert f"#{record.data['memories'][0]['id']} core 4 created, kept no none" in said
    assert "Added 1" in said
    assert "Source mem0" in said
    assert "canary" not in said


@pytest.mark.parametrize(
    ("cost_usd", "unpriced", "said"),
    [
        ("0.000000", {"unpriced_calls": 3}, "Cost unknown"),
        ("0.012300", {"unpriced_calls": 1}, "Cost at least $0.0123"),
        ("0.012300", {"unpriced_calls": 0}, "Cost $0.0123"),
        ("0.012300", {}, "Cost $0.0123"),
    ],
)
def test_a_record_tells_a_cost_in_words_and_exports_it_as_it_is(
    dashboard: Browser, agent: Agent, cost_usd: str, unpriced: dict[str, int], said: str
) -> None:
    usage = {"cost_usd": cost_usd, **unpriced}
    action = "memory_refinement_complete"
    id_ = agent.record(action, data=usage).id
    db.session.commit()

    page = words_of(dashboard.get(f"/audit/{id_}").text)

    assert f"{said} " in page
    assert cost_usd not in page
    exported = dashboard.get(f"/audit/export.jsonl?action={action}").text.splitlines()
    assert [json.loads(line)["data"] for line in exported] == [usage]


def test_a_session_and_its_records_link_to_each_other(dashboard: Browser, agent: Agent) -> None:
    memories = factories.ledger(agent, *[25] * 8)
    session = ended_session(agent, memories[0])

    page = dashboard.get(f"/sessions/{session.id}").text
    of_session = [link for link in links_of(page) if link.startswith("/audit/")]

    assert len(of_session) == len(listed(dashboard, f"?session={session.id}")) == 3
    for link in of_session:
        assert f"/sessions/{session.id}" in links_of(dashboard.get(link).text)


# -- the chain -------------------------------------------------------------------------------------


def verified() -> None:
    for found in list(verify_all()):
        assert found.problem is None
        note_verified(found)
    db.session.commit()


def test_an_unverified_chain_is_reported(dashboard: Browser, records: list[AuditLog]) -> None:
    assert "! Never verified : run refine audit verify ." in words_of(dashboard.get("/audit").text)


def test_an_agents_chain_shows_how_far_it_was_verified(
    dashboard: Browser, agent: Agent, records: list[AuditLog]
) -> None:
    verified()
    whole = words_of(dashboard.get(f"/audit?agent={agent.id}").text)
    agent.record("memory_saved")
    db.session.commit()

    later = words_of(dashboard.get(f"/audit?agent={agent.id}").text)

    assert "✓ Verified up to #5 , 20 Mar 2026, 12:00 ." in whole
    assert "✓ Verified up to #5 , 20 Mar 2026, 12:00 ; 1 record added since." in later


def test_an_account_shows_how_many_chains_were_verified(
    dashboard: Browser, admin: User, records: list[AuditLog]
) -> None:
    factories.records(factories.agent())
    factories.agent().record("memory_saved")
    db.session.commit()
    verified()
    factories.agent(account=admin.account).record("memory_saved")
    db.session.commit()

    said = words_of(dashboard.get("/audit").text)

    assert "✓ 3 of 4 chains verified , the oldest check 20 Mar 2026, 12:00 ; 1 record" in said


def test_an_unstamped_chain_counts_as_unverified(
    dashboard: Browser, records: list[AuditLog]
) -> None:
    list(verify_all())
    db.session.commit()

    assert db.session.scalars(db.select(ChainHead.verified_at).distinct()).all() == [None]
    assert "Never verified" in dashboard.get("/audit").text


# -- whose -----------------------------------------------------------------------------------------


def test_records_of_other_accounts_are_not_listed_or_exported(
    dashboard: Browser, records: list[AuditLog]
) -> None:
    theirs = factories.agent(name="Eve").record("memory_saved")
    platforms = AuditLog.record("keys_rotated", chain=PLATFORM)
    db.session.commit()

    exported = dashboard.get("/audit/export.jsonl").text

    ids = {json.loads(line)["id"] for line in exported.splitlines()}
    assert ids == listed(dashboard)
    assert not ids & {theirs.id, platforms.id}
    assert dashboard.get(f"/audit/{platforms.id}").status_code == 404
    for path in ("/audit", "/audit/export.csv", "/audit/export.jsonl"):
        assert dashboard.get(f"{path}?agent={theirs.agent_id}").status_code == 404


def test_only_site_admins_see_the_platforms_records(
    records: list[AuditLog], signed_in: SignedIn
) -> None:
    platforms = AuditLog.record("keys_rotated", chain=PLATFORM)
    browser = signed_in(person(site_admin=True))

    everything, one = listed(browser), listed(browser, "?account=own")

    assert platforms.id in everything
    assert platforms.id not in one
    assert {record.id for record in records} <= one
    assert browser.get(f"/audit/{platforms.id}").status_code == 200


def test_an_empty_log_says_so(dashboard: Browser) -> None:
    assert "No records match. Show all." in words_of(
        dashboard.get("/audit?action=memory_saved").text
    )
