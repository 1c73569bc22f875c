"""Nothing is shown that was not granted, and nothing before it is on record."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from refine.access import reading
from refine.access.reading import NoAccess
from refine.errors import InvalidValue, RowAltered
from refine.extensions import db
from refine.models import AccessGrant, AgentMemory, RefinementSession, User
from refine.refinement import time_machine
from refine.tools import RefinementTool
from tests import factories, sql
from tests.access.conftest import World
from tests.models.cases import case, set_fields

Read = Callable[[uuid.UUID, User], Any]


def reads(world: World) -> dict[str, Read]:
    """Every way there is to read."""
    ended = ended_session(world)
    record = factories.records(world.agent)[-1]
    db.session.commit()
    ids, record_id, session_id = [memory.id for memory in world.memories], record.id, ended.id
    among = world.agent.ledger.core()
    return {
        "memories": lambda grant, user: reading.memories(grant, user, ids),
        "search": lambda grant, user: reading.search(grant, user, "roses", among, rows=50),
        "versions": lambda grant, user: reading.versions(grant, user, ids[0]),
        "audit_record": lambda grant, user: reading.read_record(grant, user, record_id),
        "session": lambda grant, user: reading.session(grant, user, session_id),
        "prompts": reading.prompts,
    }


def ended_session(world: World, agent: Any = None) -> RefinementSession:
    ended = RefinementSession.queue(agent or world.agent, "manual")
    ended.claim()
    ended.consent_reply = "YES, tidy the wall"
    ended.finish("completed", "the agent completed it", summary="the wall is tidy")
    db.session.commit()
    return ended


def set_on(name: str, **fields: object) -> Callable[[World, AccessGrant], None]:
    return lambda world, grant: set_fields(getattr(grant, name), **fields)


# What takes a grant from its user; each for a moment.
LOSSES: dict[str, Callable[[World, AccessGrant], object]] = {
    "its time is over": lambda _, grant: setattr(grant, "expires_at", grant.granted_at),
    "its user ended it": lambda world, grant: grant.end(user=world.reader),
    "the agent revoked it": lambda _, grant: grant.end(user=None),
    "the agent is not active": set_on("agent", active=False),
    "the user is not active": set_on("user", active=False),
    "the user is a viewer": set_on("user", role="viewer"),
    "the user is of another account": lambda world, _: setattr(
        world.reader, "account", factories.account()
    ),
}


def test_without_a_live_grant_of_ones_own_nothing_is_read(world, subtests):
    ways, grant = reads(world), world.grant()
    colleague = factories.user(account=world.agent.account)
    asked = factories.grant(world.agent, user_id=colleague.id)
    chosen = [
        *(((grant.id, world.reader), why, lose) for why, lose in LOSSES.items()),
        ((grant.id, colleague), "it is another user's", lambda *_: None),
        ((uuid.uuid4(), world.reader), "there is none", lambda *_: None),
        ((asked.id, colleague), "it is only requested", lambda *_: None),
    ]

    for (grant_id, user), why, lose in chosen:
        with case(subtests, why=why):
            lose(world, grant)
            for read in ways.values():
                with pytest.raises(NoAccess, match="no active access to these memories"):
                    read(grant_id, user)
    assert world.records("memory_access_viewed") == []


@pytest.mark.parametrize("at_commit", [False, True])
def test_nothing_is_read_when_the_record_cannot_be_written_or_committed(world, at_commit, subtests):
    ways, grant_id, reader = reads(world), world.grant().id, world.reader

    with sql.refused_views(at_commit=at_commit):
        for way, read in ways.items():
            with subtests.test(way=way):
                with pytest.raises(DBAPIError) as fault:
                    read(grant_id, reader)
                assert "wall" not in str(fault.value)
                db.session.rollback()


def test_each_reading_is_recorded_with_user_grant_and_subject(world, subtests):
    ways, grant = reads(world), world.grant()
    roses = [memory.id for memory in world.memories if "roses" in memory.content.lower()]
    shown = {"memories": [memory.id for memory in world.memories], "search": roses}

    for way, read in ways.items():
        with subtests.test(way=way):
            read(grant.id, world.reader)
            record = world.records("memory_access_viewed")[-1]
            assert record.user_id == world.reader.id
            assert (record.auditable_type, record.auditable_id) == ("AccessGrant", str(grant.id))
            assert record.data["what"] == way
            if way in shown:
                assert sorted(record.data["ids"]) == sorted(shown[way])


# -- memories -------------------------------------------------------------------------------------


def test_another_agents_memories_are_left_out_and_off_the_record(world):
    grant = world.grant()
    other = factories.memory(factories.agent(account=world.agent.account), "not yours")
    db.session.commit()

    shown = reading.memories(grant.id, world.reader, [other.id, world.memories[0].id])

    assert shown == {world.memories[0].id: "Roses grow by the wall"}
    (record,) = world.records("memory_access_viewed")
    assert record.data["ids"] == [world.memories[0].id]


# -- search ---------------------------------------------------------------------------------------


def among(world: World) -> Any:
    return db.select(AgentMemory).order_by(AgentMemory.created_at, AgentMemory.id)


def test_a_search_takes_any_case_and_no_wildcards(world, subtests):
    grant = world.grant()

    for text, count in {"ROSES": 2, " wild ": 1, "%": 0, "_": 0}.items():
        with subtests.test(text=text):
            found = reading.search(grant.id, world.reader, text, among(world), rows=50)
            assert found.count == count == len(found.texts)


def test_a_search_for_nothing_or_too_much_is_refused(world, subtests):
    grant = world.grant()

    for text in ("", "   ", "x" * 201, None):
        with subtests.test(text=text), pytest.raises(InvalidValue, match="search"):
            reading.search(grant.id, world.reader, text, among(world), rows=2)
    assert world.records("memory_access_viewed") == []


def test_a_search_continues_after_its_page_and_records_all_that_it_counts(world):
    grant = world.grant()
    ids = [memory.id for memory in world.memories]
    factories.memory(factories.agent(account=world.agent.account), "elsewhere by a wall")
    db.session.commit()

    first = reading.search(grant.id, world.reader, "wall", among(world), rows=2)
    second = reading.search(
        grant.id, world.reader, "wall", among(world), rows=2, after_id=first.after_id
    )

    full = reading.search(grant.id, world.reader, "wall", among(world), rows=3)

    assert list(first.texts) == ids[:2]
    assert list(second.texts) == ids[2:]
    assert (first.after_id, second.after_id, full.after_id) == (ids[1], None, None)
    records = world.records("memory_access_viewed")
    assert [record.data["ids"] for record in records] == [ids, ids, ids]
    assert [record.sealed for record in records] == [{"search": "wall"}] * 3
    assert "wall" not in str([record.data for record in records])


# -- records, sessions, prompts -------------------------------------------------------------------


def test_a_rewritten_memory_is_shown_word_by_word(world):
    session = factories.session(factories.agent(*(factories.text_of(25) for _ in range(20))))
    agent = session.agent
    memory = next(iter(db.session.scalars(agent.ledger.core())))
    before = memory.content
    RefinementTool(session).execute(action="update", id=memory.id, content=f"{before} indeed")
    record = factories.records(agent)[-1]
    grant = factories.live_grant(agent, factories.user(account=agent.account))
    db.session.commit()

    opened = reading.read_record(grant.id, grant.user, record.id)

    (change,) = opened.changes
    assert (change.memory_id, change.source_ids) == (memory.id, ())
    assert [part.kind for part in change.parts] == ["same", "new"]
    assert change.parts[1].text == "indeed"


def test_a_merge_is_compared_with_its_sources(world):
    agent = factories.agent("red roses", *(factories.text_of(25) for _ in range(20)))
    first = next(iter(db.session.scalars(agent.ledger.core())))
    second = factories.memory(agent, "white roses")
    session = factories.session(agent)
    ids = [first.id, second.id]
    RefinementTool(session).execute(action="consolidate", ids=ids, content="red and white roses")
    record = factories.records(agent)[-1]
    grant = factories.live_grant(agent, factories.user(account=agent.account))
    db.session.commit()

    opened = reading.read_record(grant.id, grant.user, record.id)

    merge, *sources = opened.changes
    assert merge.source_ids == tuple(ids)
    kept = "".join(part.text for part in merge.parts if part.kind != "gone")
    assert kept == "red and white roses"
    assert [source.parts[0].text for source in sources] == ["red roses", "white roses"]


def test_each_change_of_an_undone_session_is_shown_once(world: World) -> None:
    agent = factories.agent(*(factories.text_of(25) for _ in range(20)))
    first = next(iter(db.session.scalars(agent.ledger.core())))
    undone = factories.session(agent)
    tool = RefinementTool(undone)
    tool.execute(action="delete", id=first.id)
    tool.execute(action="complete", summary="done")
    time_machine.undo(undone, through="dashboard")
    grant = factories.live_grant(agent, factories.user(account=agent.account))
    db.session.commit()

    opened = reading.session(grant.id, grant.user, undone.id)

    assert [each.memory_id for each in opened.changes].count(first.id) == 1


def test_an_unknown_record_or_session_or_another_agents_is_not_opened(world):
    other = factories.agent("one", account=world.agent.account)
    session_id = ended_session(world, other).id
    record_id = factories.records(other)[-1].id
    memory_id = next(iter(db.session.scalars(other.ledger.core()))).id
    grant = world.grant()

    for read in (
        lambda: reading.read_record(grant.id, world.reader, record_id),
        lambda: reading.read_record(grant.id, world.reader, 10**17),
        lambda: reading.session(grant.id, world.reader, session_id),
        lambda: reading.session(grant.id, world.reader, uuid.uuid4()),
        lambda: reading.versions(grant.id, world.reader, memory_id),
    ):
        with pytest.raises(NoAccess, match="does not belong to the agent"):
            read()
        db.session.rollback()

    assert world.records("memory_access_viewed") == []


def test_a_session_and_the_record_of_its_end_show_the_agents_words(world):
    session = ended_session(world)
    (record,) = world.records("memory_refinement_complete")
    grant = world.grant()

    said = reading.session(grant.id, world.reader, session.id).texts
    (told,) = reading.read_record(grant.id, world.reader, record.id).changes

    assert said["consent_reply"] == "YES, tidy the wall"
    assert said["summary"].endswith("the wall is tidy")
    assert told.after == said["summary"]


# -- the banner -----------------------------------------------------------------------------------


def test_only_the_users_own_live_grants_are_listed(world):
    grant = world.grant(purpose="to see why it declined", duration_minutes=30)
    factories.live_grant(world.agent, factories.user(account=world.agent.account))
    factories.grant(factories.agent(account=world.agent.account), user_id=world.reader.id)
    db.session.commit()

    (live,) = reading.live_grants(world.reader)

    assert (live.id, live.agent_id, live.agent_name) == (grant.id, world.agent.id, "Ada")
    assert live.purpose_text == "to see why it declined"
    assert live.expires_at == grant.expires_at
    assert 29 * 60 < live.seconds_left <= 30 * 60
    assert live.minutes_left == 30


def test_a_reader_made_an_admin_in_the_database_reads_nothing(world):
    grant = world.grant()
    world.reader.role = "viewer"
    db.session.commit()
    world.reader.require_genuine()

    with (
        sql.just_before("FROM access_grants", "UPDATE users SET role = 'admin'"),
        pytest.raises(RowAltered, match=f"User {world.reader.id} was changed in the database"),
    ):
        reading.prompts(grant.id, world.reader)

    assert world.records("memory_access_viewed") == []


def test_a_purpose_that_cannot_be_unsealed_is_left_out(world):
    grant = world.grant()
    sql.run("UPDATE access_grants SET purpose = decode('00', 'hex')")
    db.session.expire_all()

    (live,) = reading.live_grants(world.reader)

    assert live.purpose_text is None
    assert reading.purpose_of(grant) is None
