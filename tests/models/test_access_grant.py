"""A grant's whole life: asked for, answered once, ended in one of many ways."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from flask import Flask
from sqlalchemy.exc import IntegrityError

from refine import clock
from refine.errors import InvalidValue, Refused
from refine.extensions import database_now, db
from refine.models import AccessGrant, AccessOpenAlready, Agent, AuditLog, User
from refine.models.runs.access import REASONS, AccessTerms
from tests import factories, sql

PURPOSE = "to see why it declined"


@pytest.fixture
def agent(app: Flask) -> Agent:
    return factories.agent(name="Ada")


@pytest.fixture
def reader(agent: Agent) -> User:
    return factories.user(account=agent.account, email="ines@example.org")


def a_wish(**fields: Any) -> AccessTerms:
    usual = {"reason": "agent_asked", "purpose": PURPOSE, "duration_minutes": 30}
    return AccessTerms.checked(**{**usual, **fields})


def requested(agent: Agent, reader: User, **fields: Any) -> AccessGrant:
    return AccessGrant.request(agent, reader, a_wish(**fields))


def granted(agent: Agent, reader: User, **fields: Any) -> AccessGrant:
    return factories.live_grant(agent, reader, **fields)


def lets_read(grant: AccessGrant) -> bool:
    db.session.flush()
    wanted = db.select(AccessGrant.id).where(AccessGrant.id == grant.id, AccessGrant.lets_read())
    return db.session.scalar(wanted) is not None


def aged(grant: AccessGrant, hours: float = 0, minutes: float = 0) -> None:
    """Put all its times back, as if it were so much older."""
    db.session.commit()
    span = timedelta(hours=hours, minutes=minutes).total_seconds()
    columns = ("created_at", "asked_at", "heartbeat_at", "granted_at", "expires_at")
    moved = ", ".join(f"{name} = {name} - interval '{span} seconds'" for name in columns)
    sql.run(f"UPDATE access_grants SET {moved} WHERE id = '{grant.id}'")
    db.session.expire_all()


def actions(agent: Agent) -> list[str]:
    return [record.action for record in factories.records(agent)]


def last_record(agent: Agent) -> AuditLog:
    return factories.records(agent)[-1]


# -- the row --------------------------------------------------------------------------------------


def test_a_new_grant_is_a_request(agent: Agent) -> None:
    grant = factories.grant(agent)

    assert (grant.status, grant.granted_at, grant.expires_at, grant.reply) == (
        "requested",
        None,
        None,
        None,
    )


def test_purpose_reply_and_note_are_sealed_at_rest(agent: Agent) -> None:
    text = "the c4n4ry fell silent"
    grant = factories.grant(agent, purpose=text, reply=text, closing_note=text)
    db.session.commit()

    stored = sql.value("SELECT access_grants::text FROM access_grants")

    assert b"c4n4ry".hex() not in stored
    assert (grant.purpose, grant.reply, grant.closing_note) == (text, text, text)


@pytest.mark.parametrize("length", [20, 500])
def test_a_purpose_has_20_to_500_characters(agent: Agent, length: int) -> None:
    grant = factories.grant(agent, purpose=f" {'x' * length}\n")

    assert grant.purpose == "x" * length


@pytest.mark.parametrize("purpose", ["", " " * 30, "x" * 19, "x" * 501, "x" * 30 + "\x00", None])
def test_a_purpose_of_another_length_is_refused(agent: Agent, purpose: str | None) -> None:
    with pytest.raises(InvalidValue, match="purpose"):
        factories.grant(agent, purpose=purpose)


def test_the_agent_may_be_named_last(agent: Agent) -> None:
    grant = AccessGrant(purpose=PURPOSE, agent=agent)

    assert grant.purpose == PURPOSE


def test_a_note_may_be_taken_back_before_it_is_stored(agent: Agent) -> None:
    grant = factories.grant(agent, closing_note="it was nothing", reply="NO")

    grant.closing_note, grant.reply = None, None

    assert (grant.closing_note, grant.reply) == (None, None)


@pytest.mark.parametrize("minutes", [15, 16, 239, 240])
@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_and_every_time_in_the_range_may_be_asked_for(
    reason: str, minutes: int
) -> None:
    wish = a_wish(reason=reason, duration_minutes=minutes)

    assert (wish.reason, wish.duration_minutes) == (reason, minutes)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("reason", value) for value in ("curiosity", "", None)),
        *(("duration_minutes", value) for value in (14, 241, 0, -15, True, 30.0, "30", None)),
        *(("purpose", value) for value in ("too short", "x" * 501, None)),
    ],
)
def test_what_cannot_be_asked_for_is_named(field: str, value: object) -> None:
    with pytest.raises(InvalidValue, match=field):
        a_wish(**{field: value})


# -- asking ---------------------------------------------------------------------------------------


def test_a_request_is_recorded_with_its_purpose_sealed(agent: Agent, reader: User) -> None:
    grant = requested(agent, reader)

    record = last_record(agent)
    assert (record.action, record.user_id) == ("memory_access_requested", reader.id)
    assert (record.auditable_type, record.auditable_id) == ("AccessGrant", str(grant.id))
    assert record.data == {
        "grant_user_id": reader.id,
        "reason": "agent_asked",
        "duration_minutes": 30,
    }
    assert record.sealed == {"purpose": PURPOSE}
    assert grant.status == "requested"
    assert not lets_read(grant)


def test_a_site_admin_may_ask_any_agent(agent: Agent) -> None:
    grant = requested(agent, factories.user(site_admin=True))

    assert grant.account_id == agent.account_id


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"role": "viewer"}, "a viewer may not ask"),
        ({"role": "viewer", "site_admin": True}, "a viewer may not ask"),
        ({"active": False}, "is not active"),
        ({"account": None}, "belongs to another account"),
    ],
)
def test_who_may_not_read_may_not_ask(agent: Agent, fields: dict[str, Any], why: str) -> None:
    account = factories.account() if "account" in fields else agent.account
    user = factories.user(**{**fields, "account": account})

    with pytest.raises(Refused, match=why):
        requested(agent, user)

    assert actions(agent) == []


def test_an_agent_that_is_not_active_is_not_asked(agent: Agent, reader: User) -> None:
    agent.active = False

    with pytest.raises(Refused, match="the agent is not active"):
        requested(agent, reader)


def test_an_agent_that_was_erased_is_not_asked(agent: Agent, reader: User) -> None:
    factories.erase(agent)

    with pytest.raises(Refused, match="the agent was erased"):
        requested(agent, reader)


def declined(agent: Agent, times: int) -> None:
    for _ in range(times):
        grant = requested(agent, factories.user(account=agent.account))
        grant.claim()
        grant.settle("No.", agreed=False, generation_id=None)


def test_an_agent_that_said_no_often_enough_is_left_alone_by_everybody(
    agent: Agent, reader: User
) -> None:
    declined(agent, 9)
    requested(agent, factories.user(account=agent.account))
    declined(agent, 1)

    with pytest.raises(Refused, match="Ada said no 10 times within a day; leave it alone"):
        requested(agent, reader)


def test_a_day_after_its_noes_an_agent_can_be_asked_again(agent: Agent, reader: User) -> None:
    declined(agent, 10)
    db.session.commit()
    sql.run("UPDATE access_grants SET ended_at = ended_at - interval '25 hours'")

    assert requested(agent, reader).status == "requested"


@pytest.mark.parametrize(
    "change",
    [
        lambda agent, user: agent.configure(user=user, model_id="other/model"),
        lambda agent, user: agent.clear_refinement_prompt(user=user),
    ],
)
def test_for_a_day_after_a_human_changed_model_or_prompt_nobody_may_ask(
    agent: Agent, reader: User, change: Callable[[Agent, User], object]
) -> None:
    agent.refinement_prompt = "my style"
    change(agent, reader)

    with pytest.raises(Refused, match="a human changed the model or a prompt of Ada"):
        requested(agent, reader)

    changed_at = agent.identity_changed_at
    assert changed_at is not None
    agent.identity_changed_at = changed_at - timedelta(hours=23, minutes=59)
    with pytest.raises(Refused):
        requested(agent, reader)
    agent.identity_changed_at = changed_at - timedelta(hours=24)
    assert requested(agent, reader).status == "requested"


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_day_is_the_databases_whatever_the_applications_clock_says(
    agent: Agent, reader: User, hours: int
) -> None:
    with time_machine.travel(clock.now() + timedelta(hours=hours), tick=False):
        agent.configure(user=reader, model_id="other/model")

    assert agent.identity_changed_at is not None
    assert abs(database_now() - agent.identity_changed_at) < timedelta(minutes=1)


def test_what_the_agent_changes_of_itself_closes_nothing(agent: Agent, reader: User) -> None:
    agent.author("system_prompt", "I am Ada, and I write my own prompts.")

    assert requested(agent, reader).status == "requested"


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (requested, "have already asked this agent"),
        (granted, "already have access to this agent's"),
    ],
)
def test_nobody_has_two_open_requests_for_one_agent(
    agent: Agent, reader: User, made: Callable[..., AccessGrant], why: str
) -> None:
    first = made(agent, reader)

    with pytest.raises(AccessOpenAlready, match=why) as refusal:
        requested(agent, reader)

    assert refusal.value.grant_id == first.id


def test_an_open_one_is_found_until_its_end(agent: Agent, reader: User) -> None:
    assert AccessGrant.open_of(agent, reader) is None
    grant = granted(agent, reader)
    assert AccessGrant.open_of(agent, reader) is grant

    aged(grant, hours=2)

    assert AccessGrant.open_of(agent, reader) is None


def test_of_two_requests_at_once_one_is_taken(app: Flask, agent: Agent, reader: User) -> None:
    agent_id, user_id = agent.id, reader.id
    db.session.commit()
    taken: list[bool] = []

    def ask() -> None:
        with app.app_context():
            try:
                requested(db.session.get_one(Agent, agent_id), db.session.get_one(User, user_id))
                db.session.commit()
                taken.append(True)
            except AccessOpenAlready:
                taken.append(False)
            db.session.remove()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken) == [False, False, False, True]


def test_the_database_refuses_a_second_one_too(agent: Agent, reader: User) -> None:
    factories.grant(agent, user_id=reader.id)

    with pytest.raises(IntegrityError, match="uq_access_grants_open"):
        factories.grant(agent, user_id=reader.id)


def test_other_agents_and_other_users_are_asked_and_ask_beside_it(
    agent: Agent, reader: User
) -> None:
    requested(agent, reader)

    others = [
        requested(agent, factories.user(account=agent.account)),
        requested(factories.agent(account=agent.account), reader),
    ]

    assert [other.status for other in others] == ["requested", "requested"]


def test_a_grant_past_its_end_is_ended_by_the_next_request(agent: Agent, reader: User) -> None:
    first = granted(agent, reader)
    aged(first, hours=2)

    second = requested(agent, reader)

    assert (first.status, first.end_reason, second.status) == ("ended", "expired", "requested")
    assert first.ended_at == first.expires_at


def test_a_request_is_taken_to_be_asked_once(agent: Agent, reader: User) -> None:
    agent.model_id = "test/other"
    grant = requested(agent, reader)
    agent.model_id = "test/newer"

    lease = grant.claim()

    assert (grant.lease_token, grant.claim()) == (lease, None)
    assert grant.started_at is not None
    assert grant.model_id == "test/newer"


def test_a_request_of_yesterday_is_not_asked_any_more(agent: Agent, reader: User) -> None:
    grant = requested(agent, reader)
    aged(grant, hours=24)

    assert not grant.claim()
    assert grant.status == "lapsed"
    assert last_record(agent).action == "memory_access_lapsed"


# -- the answer -----------------------------------------------------------------------------------


def test_a_yes_lets_read_from_then_on_for_as_long_as_was_asked(agent: Agent, reader: User) -> None:
    grant = requested(agent, reader, duration_minutes=45)
    grant.claim()
    before = database_now()

    grant.settle("YES, if it helps", agreed=True, generation_id="gen-7")

    assert grant.status == "granted"
    assert grant.granted_at is not None
    assert before <= grant.granted_at <= database_now()
    assert grant.expires_at == grant.granted_at + timedelta(minutes=45)
    assert (grant.reply, grant.generation_id) == ("YES, if it helps", "gen-7")
    assert lets_read(grant)


def test_a_grant_is_recorded_and_the_agent_keeps_a_note_of_it(agent: Agent, reader: User) -> None:
    grant = granted(agent, reader)

    assert actions(agent) == [
        "memory_access_requested",
        "memory_access_granted",
        "memory_saved",
    ]
    record = factories.records(agent)[1]
    assert record.user_id is None
    assert record.sealed == {"reply": "YES"}
    assert record.data["generation_id"] == "gen-1"
    assert grant.expires_at is not None
    (note,) = factories.journal(agent)
    assert note.content.startswith(
        "I let ines@example.org read my memories for 60 minutes, until "
        f"{grant.expires_at:%Y-%m-%d %H:%M} UTC, because the agent asked for it."
    )
    assert PURPOSE not in note.content


def test_anything_but_a_yes_declines(agent: Agent, reader: User) -> None:
    grant = requested(agent, reader)
    grant.claim()

    grant.settle("No.", agreed=False, generation_id=None)

    assert (grant.status, grant.granted_at, grant.reply) == ("declined", None, "No.")
    assert grant.ended_at is not None
    assert last_record(agent).action == "memory_access_declined"
    assert not lets_read(grant)


def _other_account(agent: Agent, reader: User) -> None:
    reader.account = factories.account()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda agent, reader: setattr(agent, "active", False), "the agent is not active"),
        (lambda agent, reader: setattr(reader, "active", False), "ines@example.org is not active"),
        (lambda agent, reader: setattr(reader, "role", "viewer"), "a viewer may not ask"),
        (_other_account, "belongs to another account"),
        (
            lambda agent, reader: agent.configure(user=reader, model_id="other/model"),
            "a human changed the model",
        ),
    ],
)
@pytest.mark.parametrize("when", ["before it is asked", "while it is asked"])
def test_what_forbids_a_request_meanwhile_lets_nobody_read(
    agent: Agent,
    reader: User,
    change: Callable[[Agent, User], object],
    why: str,
    when: str,
) -> None:
    grant = requested(agent, reader)
    if when == "while it is asked":
        assert grant.claim()
    change(agent, reader)
    db.session.flush()

    if when == "before it is asked":
        assert not grant.claim()
    grant.settle("YES", agreed=True, generation_id="gen-1")

    assert (grant.status, grant.granted_at) == ("failed", None)
    record = last_record(agent)
    assert record.action == "memory_access_failed"
    assert why in record.data["why"]
    assert not lets_read(grant)


@pytest.mark.parametrize("end", ["fail", "lapse"])
def test_an_answer_to_what_is_no_longer_open_changes_nothing(
    agent: Agent, reader: User, end: str
) -> None:
    grant = requested(agent, reader)
    grant.claim()
    if end == "fail":
        grant.fail("its worker gave no answer", "worker_lost")
    else:
        grant.lapse()
    status, before = grant.status, actions(agent)

    grant.settle("YES", agreed=True, generation_id="gen-1")
    grant.fail("again", "again")
    grant.lapse()

    assert (grant.status, grant.granted_at, grant.reply) == (status, None, None)
    assert actions(agent) == before


def test_a_killed_worker_ends_the_request_that_it_asked_and_no_other(
    agent: Agent, reader: User
) -> None:
    grant = requested(agent, reader)
    grant.end_if_killed()
    unasked = grant.status
    grant.claim()

    grant.end_if_killed()

    assert (unasked, grant.status) == ("requested", "failed")
    assert last_record(agent).data["why"] == "its worker's process was killed"


# -- reading, and its end -------------------------------------------------------------------------


def test_a_grant_past_its_end_lets_nobody_read_though_nothing_has_ended_it(
    agent: Agent, reader: User
) -> None:
    grant = granted(agent, reader, duration_minutes=15)
    aged(grant, minutes=14)
    assert (lets_read(grant), grant.has_expired) == (True, False)

    aged(grant, minutes=1)

    assert (lets_read(grant), grant.has_expired, grant.status) == (False, True, "granted")


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_applications_clock_lets_nobody_read_for_longer_or_shorter(
    agent: Agent, reader: User, hours: int
) -> None:
    with time_machine.travel(clock.now() + timedelta(hours=hours)):
        grant = granted(agent, reader, duration_minutes=30)
        assert lets_read(grant)

    aged(grant, minutes=29)
    assert lets_read(grant)
    aged(grant, minutes=1)
    assert not lets_read(grant)


@pytest.mark.parametrize(
    "change",
    [
        lambda agent, reader: setattr(agent, "active", False),
        lambda agent, reader: setattr(reader, "active", False),
        lambda agent, reader: setattr(reader, "role", "viewer"),
        _other_account,
    ],
)
def test_whoever_loses_the_right_loses_it_at_once(
    agent: Agent, reader: User, change: Callable[[Agent, User], object]
) -> None:
    grant = granted(agent, reader)

    change(agent, reader)

    assert not lets_read(grant)


def test_a_site_admin_reads_what_any_agent_grants(agent: Agent) -> None:
    assert lets_read(granted(agent, factories.user(site_admin=True)))


def by_its_user(agent: Agent, reader: User) -> User:
    return reader


def by_another_admin(agent: Agent, reader: User) -> User:
    return factories.user(account=agent.account)


def by_a_site_admin(agent: Agent, reader: User) -> User:
    return factories.user(site_admin=True)


def by_the_agent(agent: Agent, reader: User) -> None:
    return None


@pytest.mark.parametrize(
    ("who", "reason", "action"),
    [
        (by_its_user, "ended_by_user", "memory_access_ended"),
        (by_another_admin, "revoked_by_admin", "memory_access_revoked"),
        (by_a_site_admin, "revoked_by_admin", "memory_access_revoked"),
        (by_the_agent, "revoked_by_agent", "memory_access_revoked"),
    ],
)
def test_it_ends_early_with_who_ended_it_on_record(
    agent: Agent,
    reader: User,
    who: Callable[[Agent, User], User | None],
    reason: str,
    action: str,
) -> None:
    grant = granted(agent, reader)
    by = who(agent, reader)

    assert [grant.end(user=by), grant.end(user=by)] == [True, False]

    by_id = by.id if by is not None else None
    assert (grant.status, grant.end_reason, grant.ended_by_id) == ("ended", reason, by_id)
    assert grant.ended_at is not None
    assert not lets_read(grant)
    record = last_record(agent)
    assert (record.action, record.user_id, record.data["end_reason"]) == (action, by_id, reason)
    assert actions(agent).count(action) == 1


@pytest.mark.parametrize("fields", [{"role": "viewer"}, {"account": None}])
def test_nobody_else_ends_it(agent: Agent, reader: User, fields: dict[str, Any]) -> None:
    grant = granted(agent, reader)
    account = factories.account() if "account" in fields else agent.account
    other = factories.user(**{**fields, "account": account})

    with pytest.raises(Refused, match="not yours to end"):
        grant.end(user=other)

    assert lets_read(grant)


def test_whoever_became_a_viewer_may_still_end_their_own(agent: Agent, reader: User) -> None:
    grant = granted(agent, reader)
    reader.role = "viewer"

    assert grant.end(user=reader)


def test_what_time_has_ended_nobody_ends_any_more(agent: Agent, reader: User) -> None:
    grant = granted(agent, reader)
    aged(grant, hours=2)

    assert not grant.end(user=reader)
    assert (grant.end_reason, grant.ended_by_id) == ("expired", None)


def test_a_request_is_not_ended_but_answered(agent: Agent, reader: User) -> None:
    grant = requested(agent, reader)

    assert not grant.end(user=reader)
    assert grant.status == "requested"


# -- what the tick finds --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "minutes", "status", "reason", "action"),
    [
        ("granted", 60, "ended", "expired", "memory_access_ended"),
        ("requested", 24 * 60, "lapsed", None, "memory_access_lapsed"),
    ],
)
def test_time_ends_what_nobody_ended(
    agent: Agent, reader: User, made: str, minutes: int, status: str, reason: str, action: str
) -> None:
    grant = granted(agent, reader) if made == "granted" else requested(agent, reader)
    aged(grant, minutes=minutes - 0.5)
    assert AccessGrant.next_due() is None

    aged(grant, minutes=0.5)
    due = AccessGrant.next_due()
    assert due is grant
    due.end_as_due()

    assert (grant.status, grant.end_reason) == (status, reason)
    assert grant.ended_at is not None
    assert last_record(agent).action == action
    assert AccessGrant.next_due() is None


def test_a_request_whose_worker_was_lost_fails(agent: Agent, reader: User) -> None:
    grant = requested(agent, reader)
    grant.claim()
    aged(grant, minutes=0.5)
    is_early = grant.end_if_lost()
    aged(grant, minutes=0.5)

    assert (is_early, grant.end_if_lost(), grant.status) == (False, True, "failed")
    assert last_record(agent).data["why"] == "the worker was lost"


@pytest.mark.parametrize(("made", "status"), [("granted", "ended"), ("requested", "lapsed")])
def test_time_ends_the_access_to_an_agent_that_was_erased(
    agent: Agent, reader: User, made: str, status: str
) -> None:
    grant = granted(agent, reader) if made == "granted" else requested(agent, reader)
    factories.erase(agent)
    aged(grant, hours=24)
    assert AccessGrant.next_due() is grant

    grant.end_as_due()

    assert (grant.status, AccessGrant.next_due()) == (status, None)
    assert last_record(agent).action == f"memory_access_{status}"
    assert last_record(agent).sealed == {}


def test_what_failed_to_end_is_left_out_of_the_next_look(agent: Agent, reader: User) -> None:
    first, second = granted(agent, reader), granted(agent, factories.user(account=agent.account))
    aged(first, hours=3)
    aged(second, hours=2)

    assert AccessGrant.next_due() is first
    assert AccessGrant.next_due(except_for=[first.id]) is second


# -- the note -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_written", [True, False])
def test_after_the_end_its_user_writes_a_note_once(
    agent: Agent, reader: User, is_written: bool
) -> None:
    grant = granted(agent, reader)
    if is_written:
        grant.end(user=reader)
    else:
        aged(grant, hours=2)

    grant.close("  it had merged two greetings ", user=reader)

    assert (grant.status, grant.closing_note) == ("ended", "it had merged two greetings")
    record = last_record(agent)
    assert (record.action, record.user_id) == ("memory_access_noted", reader.id)
    assert record.sealed == {"note": "it had merged two greetings"}
    with pytest.raises(Refused, match="already written"):
        grant.close("and one thing more", user=reader)


@pytest.mark.parametrize("note", ["", "  ", "x" * 501, None])
def test_a_note_has_1_to_500_characters(agent: Agent, reader: User, note: str | None) -> None:
    grant = granted(agent, reader)
    grant.end(user=reader)

    with pytest.raises(InvalidValue, match="closing_note"):
        grant.close(note, user=reader)


def test_no_note_before_the_end_or_where_nothing_was_granted(agent: Agent, reader: User) -> None:
    live = granted(agent, reader)
    asked = requested(factories.agent(account=agent.account), reader)

    for grant in (live, asked):
        with pytest.raises(Refused, match="once the access has ended"):
            grant.close("it had merged two greetings", user=reader)


def test_nobody_else_writes_the_note(agent: Agent, reader: User) -> None:
    grant = granted(agent, reader)
    grant.end(user=reader)

    with pytest.raises(Refused, match="only the user who had the access"):
        grant.close("it was nothing", user=factories.user(account=agent.account))
