"""An access grant's life: requested, answered once, ended in one of many ways."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from flask import Flask

from refine import clock
from refine.errors import InvalidValue, Refused
from refine.extensions import database_now, db
from refine.models import AccessAlreadyRequested, AccessGrant, Agent, AuditLog, User
from refine.models.agent import configuring
from refine.models.runs.access.asking_rules import REASONS, AccessTerms
from refine.models.runs.access.grant import STATUSES
from tests import factories, sql
from tests.factories import live_grant
from tests.models.cases import case

PURPOSE = "to see why it declined"
Change = Callable[[Agent, User], object]


@pytest.fixture
def agent(app: Flask) -> Agent:
    return factories.agent(name="Ada")


@pytest.fixture
def reader(agent: Agent) -> User:
    return factories.user(account=agent.account, email="ines@example.org")


def terms(**fields: Any) -> AccessTerms:
    usual = {"reason": "agent_asked", "purpose": PURPOSE, "duration_minutes": 30}
    return AccessTerms.checked(**{**usual, **fields})


def request(agent: Agent, reader: User, **fields: Any) -> AccessGrant:
    return AccessGrant.request(agent, reader, terms(**fields))


def permits_reading(grant: AccessGrant) -> bool:
    db.session.flush()
    db.session.refresh(grant)
    return grant.permits_reading


def age(grant: AccessGrant, hours: float = 0, minutes: float = 0) -> None:
    """Put all its times back, as if it were so much older."""
    span = timedelta(hours=hours, minutes=minutes)
    for name in ("created_at", "started_at", "heartbeat_at", "granted_at", "expires_at"):
        if (at := getattr(grant, name)) is not None:
            setattr(grant, name, at - span)
    db.session.flush()
    db.session.expire(grant)


def new_request() -> None:
    db.session.connection()
    db.session.rollback()


def actions(agent: Agent) -> list[str]:
    return [record.action for record in factories.records(agent)]


def last_record(agent: Agent) -> AuditLog:
    return factories.records(agent)[-1]


def _erase_as_before(agent: Agent) -> None:
    """Erase the agent as earlier versions did, which ended no access."""
    agent.wrapped_key.wrapped, agent.wrapped_key.destroyed_at = None, clock.now()
    db.session.flush()


# How agent or reader may lose their good standing, and what the refusal says.
LOSSES: dict[str, Change] = {
    "the agent is not active": lambda agent, reader: setattr(agent, "active", False),
    "the agent was erased": lambda agent, reader: _erase_as_before(agent),
    "ines@example.org is not active": lambda agent, reader: setattr(reader, "active", False),
    "is a viewer": lambda agent, reader: setattr(reader, "role", "viewer"),
    "belongs to another account": lambda _, reader: setattr(reader, "account", factories.account()),
}


# -- the row and the terms ------------------------------------------------------------------------


def test_purpose_reply_and_note_are_sealed_at_rest(agent):
    words = "the c4n4ry fell silent"
    grant = factories.grant(agent, purpose=words, reply=words)
    db.session.commit()

    stored = sql.value("SELECT access_grants::text FROM access_grants")

    assert b"c4n4ry".hex() not in stored
    assert (grant.purpose, grant.reply) == (words, words)


def test_every_reason_and_every_duration_in_the_range_may_be_requested(subtests):
    for reason in REASONS:
        for minutes in (15, 16, 239, 240):
            with subtests.test(reason=reason, minutes=minutes):
                made = terms(reason=reason, duration_minutes=minutes)
                assert (made.reason, made.duration_minutes) == (reason, minutes)
    for length in (20, 500):
        assert terms(purpose=f" {'x' * length}\n").purpose == "x" * length


def test_invalid_terms_are_refused_by_name(agent, subtests):
    purposes = ("", " " * 30, "x" * 19, "x" * 501, "x" * 30 + "\x00", None)
    for field, value in [
        *(("reason", value) for value in ("curiosity", "", None)),
        *(("duration_minutes", value) for value in (14, 241, 0, -15, True, 30.0, "30", None)),
        *(("purpose", value) for value in purposes),
    ]:
        with subtests.test(field=field, value=value):
            with pytest.raises(InvalidValue, match=field):
                terms(**{field: value})
            if field == "purpose":
                with pytest.raises(InvalidValue, match=field):
                    factories.grant(agent, purpose=value)


# -- requesting -----------------------------------------------------------------------------------


def test_a_request_is_recorded_with_its_purpose_sealed(agent, reader):
    grant = request(agent, reader)

    record = last_record(agent)
    asked = {"reason": "agent_asked", "duration_minutes": 30}
    assert (record.action, record.user_id) == ("memory_access_requested", reader.id)
    assert (record.auditable_type, record.auditable_id) == ("AccessGrant", str(grant.id))
    assert record.data == {"grant_user_id": reader.id, **asked}
    assert record.sealed == {"purpose": PURPOSE}
    assert (grant.status, grant.granted_at, grant.expires_at) == ("requested", None, None)
    assert grant.reply is None
    assert not permits_reading(grant)


def test_a_site_admin_may_ask_any_agent_and_read(agent):
    grant = live_grant(agent, factories.user(site_admin=True))

    assert grant.account_id == agent.account_id
    assert permits_reading(grant)


def test_only_an_active_admin_of_the_account_may_ask_an_available_agent(agent, reader, subtests):
    def demote_site_admin(agent: Agent, reader: User) -> None:
        reader.role, reader.site_admin = "viewer", True

    for reason, change in [*LOSSES.items(), ("is a viewer", demote_site_admin)]:
        with case(subtests, reason=reason):
            change(agent, reader)
            with pytest.raises(Refused, match=reason):
                request(agent, reader)
            assert "memory_access_requested" not in actions(agent)


def declined(agent: Agent, reader: User, days_ago: float = 0) -> AccessGrant:
    grant = request(agent, reader)
    grant.claim()
    grant.settle("No.", agreed=False, generation_id=None)
    assert grant.ended_at is not None
    grant.ended_at -= timedelta(days=days_ago)
    db.session.flush()
    return grant


def test_a_declined_user_may_not_ask_the_agent_again_for_seven_days(agent, reader):
    grant = declined(agent, reader, days_ago=6.99)

    with pytest.raises(Refused, match="Ada has declined a request of ines@example.org; they can"):
        request(agent, reader, reason="legal_duty", duration_minutes=15)
    others = factories.user(account=agent.account), factories.agent(account=agent.account)
    assert request(agent, others[0]).status == "requested"
    assert request(others[1], reader).status == "requested"
    assert grant.ended_at is not None
    grant.ended_at -= timedelta(days=0.02)
    assert request(agent, reader).status == "requested"


def test_a_user_who_joined_after_a_decline_may_not_ask_for_seven_days(agent, reader):
    colleague = factories.user(account=agent.account)
    declined(agent, reader)
    puppet = User.invite(agent.account, "puppet@example.org", role="admin", by=reader)

    with pytest.raises(Refused, match="declined somebody else before puppet@example.org joined"):
        request(agent, puppet)
    assert request(agent, colleague).status == "requested"


def test_a_password_that_was_set_through_a_link_after_a_decline_counts_as_joining_then(
    agent, reader
):
    declined(agent, reader, days_ago=3)
    at = clock.now()
    before, after = (
        factories.user(
            account=agent.account,
            created_at=at - timedelta(days=300),
            password_linked_at=at - timedelta(days=days_ago),
        )
        for days_ago in (4, 2)
    )

    assert request(agent, before).status == "requested"
    with pytest.raises(Refused, match="joined or got a password through a link"):
        request(agent, after)


@pytest.mark.parametrize(
    "change",
    ["ended_at = ended_at - interval '8 days'", "status = 'failed'", "user_id = user_id + 1"],
)
def test_a_request_that_was_changed_in_the_database_bars_everybody(agent, reader, change):
    grant = declined(agent, reader)
    factories.user()
    db.session.commit()
    sql.tamper(f"UPDATE access_grants SET {change} WHERE id = '{grant.id}'")
    new_request()

    with pytest.raises(Refused, match=f"AccessGrant {grant.id} was changed in the database"):
        request(agent, reader)


def test_nobody_may_ask_for_a_day_after_a_human_changed_model_or_prompt(agent, reader, subtests):
    agent.refinement_prompt = "my style"
    for name, change in {
        "model": lambda: configuring.configure(agent, user=reader, model_id="other/model"),
        "prompt": lambda: configuring.clear_refinement_prompt(agent, user=reader),
    }.items():
        with case(subtests, changed=name):
            change()
            with pytest.raises(Refused, match="the model or a prompt of Ada"):
                request(agent, reader)
            changed_at = agent.identity_changed_at
            assert changed_at is not None
            agent.identity_changed_at = changed_at - timedelta(hours=23, minutes=59)
            with pytest.raises(Refused):
                request(agent, reader)
            agent.identity_changed_at = changed_at - timedelta(hours=24)
            assert request(agent, reader).status == "requested"


def test_the_agents_own_changes_do_not_keep_anybody_from_asking(agent, reader):
    configuring.author(agent, "system_prompt", "I am Ada, and I write my own prompts.")

    assert request(agent, reader).status == "requested"


def test_a_second_open_request_for_an_agent_is_refused(agent, reader, subtests):
    for make, reason in [
        (request, "have already asked this agent"),
        (live_grant, "already have access to this agent's"),
    ]:
        with case(subtests, reason=reason):
            first = make(agent, reader)
            with pytest.raises(AccessAlreadyRequested, match=reason) as refusal:
                request(agent, reader)
            assert refusal.value.grant_id == first.id


def test_the_next_request_ends_a_grant_that_has_expired(agent, reader):
    first = live_grant(agent, reader)
    age(first, hours=2)

    second = request(agent, reader)

    assert (first.status, first.end_reason, second.status) == ("ended", "expired", "requested")
    assert first.ended_at == first.expires_at


def test_a_request_lapses_after_a_day(agent, reader):
    grant = request(agent, reader)
    age(grant, hours=24)

    assert not grant.claim()
    assert (grant.status, last_record(agent).action) == ("lapsed", "memory_access_lapsed")


def test_a_password_link_ends_the_grants_and_requests_of_its_user_alone(agent, reader):
    mine = live_grant(agent, reader), request(factories.agent(account=agent.account), reader)
    expired = live_grant(factories.agent(account=agent.account), reader)
    age(expired, hours=2)
    others = live_grant(agent, factories.user(account=agent.account))

    AccessGrant.end_all_of(reader, by=None)

    assert [grant.status for grant in (*mine, others)] == ["ended", "failed", "granted"]
    assert (expired.status, expired.end_reason) == ("ended", "expired")


def _make_viewer(_agent: Agent, reader: User) -> None:
    reader.role = "viewer"
    AccessGrant.end_all_of(reader, by=factories.user())


DEACTIVATED = "I was deactivated."


@pytest.mark.parametrize(
    ("take_away", "told"),
    [
        (lambda agent, user: configuring.configure(agent, user=user, active=False), DEACTIVATED),
        (lambda agent, _: configuring.configure(agent, token_id=1, active=False), DEACTIVATED),
        (_make_viewer, "they may no longer have it."),
        (lambda agent, user: (_erase_as_before(agent), _make_viewer(agent, user)), None),
        (lambda agent, _: agent.erase(), None),
    ],
)
def test_access_stays_ended_when_its_user_is_restored(agent, reader, take_away, told):
    over = live_grant(agent, reader)
    over.end(user=reader)
    grant = live_grant(agent, reader)

    take_away(agent, reader)
    configuring.configure(agent, by="command line", active=True)
    reader.role = "admin"
    db.session.flush()
    db.session.expire_all()

    assert (grant.status, grant.end_reason) == ("ended", "no_longer_allowed")
    assert not grant.permits_reading
    assert over.end_reason == "ended_by_user"
    assert actions(agent).count("memory_access_ended") == 2
    if told is not None:
        note = f"The access of admin {reader.id} to my memories ended for good: {told}"
        assert note in [each.content for each in factories.journal(agent)]


def test_an_altered_grant_is_left_as_it_is_and_does_not_keep_others_from_ending(agent, reader):
    grant = live_grant(agent, reader)
    other = live_grant(factories.agent(account=agent.account), reader)
    db.session.commit()
    sql.run(f"UPDATE access_grants SET duration_minutes = 240 WHERE id = '{grant.id}'")
    new_request()

    AccessGrant.end_all_of(reader, by=None)
    db.session.commit()

    assert (grant.status, other.status) == ("granted", "ended")
    record = last_record(agent)
    assert (record.action, record.auditable_id) == ("memory_access_revoked", str(grant.id))


# -- the answer -----------------------------------------------------------------------------------


def test_a_yes_lets_the_user_read_for_the_requested_time(agent, reader):
    grant = request(agent, reader, duration_minutes=45)
    grant.claim()
    before = database_now()

    grant.settle("YES, if it helps", agreed=True, generation_id="gen-7")

    assert grant.status == "granted"
    assert grant.granted_at is not None
    assert before <= grant.granted_at <= database_now()
    assert grant.expires_at == grant.granted_at + timedelta(minutes=45)
    assert (grant.reply, grant.generation_id) == ("YES, if it helps", "gen-7")
    assert permits_reading(grant)


def test_a_yes_is_recorded_and_noted_in_the_agents_journal(agent, reader):
    grant = live_grant(agent, reader)

    assert actions(agent) == ["memory_access_requested", "memory_access_granted", "memory_saved"]
    record = factories.records(agent)[1]
    assert record.user_id is None
    assert record.sealed == {"reply": "YES"}
    assert "gen-1" not in str(record.data)  # a text of the provider's making
    assert grant.expires_at is not None
    (note,) = factories.journal(agent)
    assert note.content.startswith(
        f"I let admin {reader.id} read my memories for 60 minutes, until "
        f"{grant.expires_at:%Y-%m-%d %H:%M} UTC, because the agent asked for it."
    )
    assert PURPOSE not in note.content


def test_a_yes_does_not_count_if_the_request_is_no_longer_allowed(agent, reader, subtests):
    def change_model(agent: Agent, reader: User) -> None:
        configuring.configure(agent, user=reader, model_id="other/model")

    for reason, change in [*LOSSES.items(), ("the model or a prompt of", change_model)]:
        for is_claimed in (False, True):
            with case(subtests, reason=reason, is_claimed=is_claimed):
                grant = request(agent, reader)
                if is_claimed:
                    assert grant.claim()
                change(agent, reader)
                db.session.flush()
                assert is_claimed or not grant.claim()
                grant.settle("YES", agreed=True, generation_id="gen-1")
                assert (grant.status, grant.granted_at) == ("failed", None)
                record = last_record(agent)
                assert record.action == "memory_access_failed"
                assert reason in record.data["why"]
                assert not permits_reading(grant)


def test_an_answer_to_a_closed_request_changes_nothing(agent, reader, subtests):
    grant = request(agent, reader)
    grant.claim()
    for status, end in [
        ("failed", lambda: grant.give_up("its worker gave no answer", "worker_lost")),
        ("lapsed", grant.lapse),
    ]:
        with case(subtests, status=status):
            end()
            before = actions(agent)
            grant.settle("YES", agreed=True, generation_id="gen-1")
            grant.give_up("again", "again")
            grant.lapse()
            assert (grant.status, grant.granted_at, grant.reply) == (status, None, None)
            assert actions(agent) == before


# -- reading, and its end -------------------------------------------------------------------------


def test_an_expired_grant_lets_nobody_read_by_the_databases_clock(agent, reader):
    grant = live_grant(agent, reader, duration_minutes=15)
    assert permits_reading(grant)
    age(grant, minutes=14)
    assert (permits_reading(grant), grant.has_expired) == (True, False)
    age(grant, minutes=1)
    assert (permits_reading(grant), grant.has_expired) == (False, True)
    assert grant.status == "granted"


@pytest.mark.parametrize("seconds", [-31, 31])
def test_nobody_is_asked_while_the_applications_clock_is_wrong(agent, reader, seconds):
    wrong = time_machine.travel(clock.now() + timedelta(seconds=seconds))
    with wrong, pytest.raises(Refused, match="differ by 31 seconds"):
        live_grant(agent, reader)


def test_the_rules_for_grants_choose_the_same_ones_in_python_and_in_sql(agent, reader, subtests):
    now, hour = database_now(), timedelta(hours=1)
    in_time = {"granted_at": now - 2 * hour, "expires_at": now + hour}
    past = {"granted_at": now - 2 * hour, "expires_at": now - hour}
    states = [
        *((status, {}, "nothing") for status in STATUSES if status != "granted"),
        *((status, times, "nothing") for status in STATUSES for times in (in_time, past)),
        *(("granted", in_time, loss) for loss in LOSSES),
    ]
    for status, times, loss in states:
        is_past = times is past
        with case(subtests, status=status, is_past=is_past, loss=loss):
            grant = factories.grant(agent, user_id=reader.id, status=status, **times)
            LOSSES.get(loss, lambda agent, reader: None)(agent, reader)
            db.session.refresh(grant)
            lets = status == "granted" and not is_past and loss == "nothing"
            expired = status == "granted" and is_past
            assert grant.permits_reading == lets
            assert grant.current_status == ("ended" if expired else status)
            in_sql = db.select(AccessGrant.current_status).where(AccessGrant.id == grant.id)
            assert db.session.scalar(in_sql) == grant.current_status


def test_an_early_end_is_recorded_with_its_actor(agent, reader, subtests):
    grant = live_grant(agent, reader)
    admin = factories.user(account=agent.account)
    site_admin = factories.user(site_admin=True)
    for user, reason, action in [
        (reader, "ended_by_user", "memory_access_ended"),
        (admin, "revoked_by_admin", "memory_access_revoked"),
        (site_admin, "revoked_by_admin", "memory_access_revoked"),
        (None, "revoked_by_agent", "memory_access_revoked"),
    ]:
        with case(subtests, reason=reason, user=user and user.email):
            assert [grant.end(user=user), grant.end(user=user)] == [True, False]
            by_id = user.id if user is not None else None
            assert (grant.status, grant.end_reason, grant.ended_by_id) == ("ended", reason, by_id)
            assert grant.ended_at is not None
            assert not permits_reading(grant)
            record = last_record(agent)
            assert (record.action, record.user_id) == (action, by_id)
            assert record.data["end_reason"] == reason
            assert actions(agent).count(action) == 1
            age(grant, hours=2)
            assert grant.current_end_reason == reason


def test_others_cannot_end_a_grant_but_its_user_can_even_as_a_viewer(agent, reader):
    grant = live_grant(agent, reader)
    reader.role = "viewer"

    for other in (factories.user(account=agent.account, role="viewer"), factories.user()):
        with pytest.raises(Refused, match="not yours to end"):
            grant.end(user=other)
    assert grant.end(user=reader)


def test_time_ends_grants_and_requests_even_of_an_erased_agent(agent, reader, subtests):
    for is_erased in (False, True):
        for make, minutes, status, reason in [
            (live_grant, 60, "ended", "expired"),
            (request, 24 * 60, "lapsed", None),
        ]:
            with case(subtests, status=status, is_erased=is_erased):
                grant = make(agent, reader)
                if is_erased:
                    _erase_as_before(agent)
                age(grant, minutes=minutes - 0.5)
                assert AccessGrant.next_overdue() is None
                age(grant, minutes=0.5)
                assert AccessGrant.next_overdue() is grant
                grant.end_overdue()
                assert (grant.status, grant.end_reason) == (status, reason)
                assert grant.ended_at is not None
                assert last_record(agent).action == f"memory_access_{status}"
                assert AccessGrant.next_overdue() is None


def test_the_rehearsal_model_consents_to_nobody_outside_the_demo_account(app, subtests):
    """Whoever sets an agent's model could otherwise consent for the agent."""
    for slug, is_refused in [("acme", True), ("demo", False)]:
        with subtests.test(slug):
            account = factories.account(slug=slug)
            agent = factories.agent(model_id="rehearsal/anything", account=account)

            reason = AccessGrant.refusal_reason(agent, factories.user(account=account))

            assert (reason is not None and "cannot grant access" in reason) == is_refused
