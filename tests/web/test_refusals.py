"""Refusals are counted, and many of one user or address are one record."""

from datetime import UTC, datetime, timedelta

import time_machine

from refine import refusals
from refine.extensions import db
from refine.models import ApiToken
from tests import sql
from tests.web.conftest import HERE, person, records

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)


def counted() -> dict[str, int]:
    db.session.rollback()
    return refusals.totals()


def test_counts_forbidden_requests(world, signed_in):
    viewer = signed_in(world.viewer)

    viewer.get("/accounts")
    viewer.submit("/schedule", {"paused": "1"})
    viewer.submit("/sign-out", headers={"Sec-Fetch-Site": "cross-site"})

    assert counted() == {"forbidden": 3, "not_found": 0, "password": 0}


def test_counts_requests_for_rows_of_others_but_not_for_missing_ones(world, signed_in):
    stranger = signed_in(world.stranger)

    for path in (f"/agents/{world.agent.id}", f"/audit?agent={world.agent.id}", "/agents/0", "/x"):
        assert stranger.get(path).status_code == 404

    assert counted() == {"forbidden": 0, "not_found": 2, "password": 0}


def test_counts_refusals_of_the_api(world, client):
    _, platform = ApiToken.mint(account=world.stranger.account)
    _, own = ApiToken.mint(account=world.account, agent=world.agent)
    db.session.commit()
    as_platform = {"Authorization": f"Bearer {platform}"}
    as_agent = {"Authorization": f"Bearer {own}"}

    answers = [
        client.patch(f"/api/v1/agents/{world.agent.id}", json={}, headers=as_platform),
        client.delete(f"/api/v1/tokens/{world.token.id}", headers=as_platform),
        client.delete(f"/api/v1/grants/{world.grant.id}", headers=as_agent),
        client.post(f"/api/v1/sessions/{world.live.id}/undo", headers=as_agent),
        client.patch("/api/v1/agents/0", json={}, headers=as_platform),
        client.get("/api/v1/context", headers=as_platform),
    ]

    assert [answer.status_code for answer in answers] == [404] * 5 + [403]
    assert counted() == {"forbidden": 1, "not_found": 4, "password": 0}


def test_ten_refusals_of_a_user_in_an_hour_are_one_record(world, signed_in):
    viewer, other = signed_in(world.viewer), signed_in(person(role="viewer"))

    with time_machine.travel(NOW) as clock:
        viewer = signed_in(world.viewer)
        for _ in range(9):
            viewer.get("/accounts")
            other.get("/accounts")
        before = records("requests_refused")
        for _ in range(30):
            viewer.get("/accounts")
        (record,) = records("requests_refused")
        clock.shift(timedelta(minutes=60))
        for _ in range(10):
            viewer.get("/accounts")

    assert before == []
    assert (record.user_id, record.account_id) == (world.viewer.id, world.account.id)
    assert record.data == {"refusals": 10, "last": "forbidden", **HERE}
    assert len(records("requests_refused")) == 2


def test_ten_refusals_of_an_address_are_one_record_of_the_platform(app, client):
    for number in range(15):
        client.sign_in(f"user{number}@example.org", "wrong battery")

    (record,) = records("requests_refused")
    assert (record.user_id, record.account_id) == (None, None)
    assert record.data == {"refusals": 10, "last": "password", **HERE}


def test_the_answer_stands_if_it_cannot_be_counted(world, signed_in, monkeypatch):
    viewer = signed_in(world.viewer)
    sql.run("ALTER TABLE shared_counts RENAME TO away")
    try:
        assert viewer.get("/accounts").status_code == 403
    finally:
        sql.run("ALTER TABLE away RENAME TO shared_counts")
