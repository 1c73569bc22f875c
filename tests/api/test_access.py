"""An agent sees and revokes grants, and reads its own records."""

import pytest

from refine.access import reading
from refine.api import oversight
from refine.extensions import db
from refine.models import AccessGrant, User
from tests import factories
from tests.api.conftest import World
from tests.web.conftest import ended_session, person

PURPOSE = "to see why the last session declined"


@pytest.fixture
def reader(world: World) -> User:
    return person(account=world.account, email="reader@example.org")


@pytest.fixture
def grant(world: World, reader: User) -> AccessGrant:
    made = factories.live_grant(world.agent, reader, purpose=PURPOSE)
    db.session.commit()
    return made


def test_lists_readers_with_reason_and_number_of_reads(world, reader, grant):
    reading.prompts(grant.id, reader)
    reading.memories(grant.id, reader, [1])

    listed = world.own.get("/grants").json

    assert listed["next_cursor"] is None
    assert len(listed["grants"]) == 1
    shown = listed["grants"][0]
    assert shown["id"] == str(grant.id)
    assert (shown["status"], shown["user"]) == ("granted", "reader@example.org")
    assert (shown["reason"], shown["purpose"]) == ("agent_asked", PURPOSE)
    assert (shown["duration_minutes"], shown["times_viewed"]) == (60, 2)
    assert world.sibling.get("/grants").json["grants"] == []


def test_revokes_at_once_and_is_idempotent(world, reader, grant):
    answers = [world.own.delete(f"/grants/{grant.id}") for _ in range(2)]

    shown = world.own.get("/grants").json["grants"][0]
    assert [answer.status_code for answer in answers] == [204, 204]
    assert all("Content-Type" not in answer.headers for answer in answers)
    assert (shown["status"], shown["end_reason"]) == ("ended", "revoked_by_agent")
    with pytest.raises(reading.NoAccess):
        reading.prompts(grant.id, reader)


def test_records_show_the_agent_contents_before_and_after(world):
    memories = factories.ledger(world.agent, *[25] * 20)
    said = memories[0].content
    session = ended_session(world.agent, memories[0])
    db.session.commit()

    listed = world.own.get("/audit?action=memory_refinement_delete").json["records"]

    assert len(listed) == 1
    assert listed[0]["session_id"] == str(session.id)
    assert listed[0]["data"]["operation"] == "delete"
    (shown,), (contents,) = (listed[0][part]["memories"] for part in ("data", "sealed"))
    assert (contents["before"]["content"], contents["after"]["content"]) == (said, said)
    assert (shown["before"]["discarded_at"], shown["after"]["tags"]) == (None, [])
    assert shown["before"].keys() == shown["after"].keys()
    assert world.sibling.get("/audit?action=memory_refinement_delete").json["records"] == []


def test_a_page_of_records_with_much_content_has_fewer_of_them(world, monkeypatch):
    for letter in "abc":
        world.agent.ledger.remember(letter * 10_000, "core")
    db.session.commit()
    monkeypatch.setattr(oversight, "MAX_PAGE_BYTES", 35_000)

    first = world.own.get("/audit").json
    monkeypatch.setattr(oversight, "MAX_PAGE_BYTES", 1)
    second = world.own.get("/audit", query_string={"cursor": first["next_cursor"]}).json

    # the first use of the token is a record, too
    assert [each["sequence"] for each in first["records"]] == [5, 4, 3]
    assert [each["sequence"] for each in second["records"]] == [2]


def test_records_hide_the_words_of_readers(world, reader, grant):
    reader.client = {"address": "192.0.2.7", "browser": "Bent/1.0"}
    grant.record("viewed", user=reader, what="search", ids=[], sealed={"search": "roses"})
    db.session.commit()

    viewed = world.own.get("/audit?action=memory_access_viewed").json["records"]

    assert [each["sealed"] for each in viewed] == [{}]
    assert viewed[0]["user_id"] == reader.id
    assert "192.0.2.7" not in str(viewed)
