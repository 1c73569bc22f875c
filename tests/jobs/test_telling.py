"""Who is told what, in which words; by whom while the clock is silent."""

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from redis import Redis
from sqlalchemy import select

from refine import clock
from refine.extensions import db
from refine.jobs.letter import Letter
from refine.jobs.telling import LOOKS_EVERY, tell
from refine.jobs.tick import run_tick, stand_in
from refine.jobs.worker import work
from refine.models import Agent, ApiToken, Mail, PeriodicWork, RefinementSession, User
from refine.models.notice import SETTLES_FOR
from refine.rules.notices import KINDS, offered
from tests import factories, sql
from tests.commands import eventually, services
from tests.jobs.test_mailing import mails, sending, server
from tests.mail_server import MailServer
from tests.web.crawling import CANARY, PURPOSE, sing

__all__ = ["sending", "server"]

# a Wednesday
NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def time(app):
    with time_machine.travel(NOW, tick=False) as traveller:
        yield traveller


@pytest.fixture
def admin(time) -> User:
    account = factories.account(name="Acme", slug="acme", created_at=NOW - 30 * DAY)
    return factories.user(account=account)


def fail(admin: User, number: int = 1) -> list[int]:
    agents = [factories.agent("one", account=admin.account) for _ in range(number)]
    for agent in agents:
        factories.ended(agent, "failed", at=NOW, error_kind="timeout")
    db.session.commit()
    return [each.id for each in agents]


def told(at: datetime) -> list[tuple[str, str]]:
    """To whom what was said, by now."""
    tell(at)
    db.session.commit()
    return [(each.user.email, each.subject) for each in mails() if each.user is not None]


def test_sixty_failures_are_one_mail_that_says_what_to_do_with_one_link(admin, sending):
    ids = fail(admin, 60)
    assert told(NOW) == []
    assert told(NOW + SETTLES_FOR) == [
        (admin.email, "Acme: 60 agents with a failed session: timeout")
    ]

    (mail,) = mails()
    listed = ", ".join(f"#{id_}" for id_ in ids[:20])
    assert mail.text == (
        "Acme: 60 agents with a failed session: timeout\n"
        "\n"
        "This usually passes: automatic sessions are tried again, up to 3 times.\n"
        "\n"
        f"Agents: {listed} and 40 more\n"
        "\n"
        "http://localhost:8000/agents?cause=failed%3Atimeout&account=acme\n"
        "\n"
        'You are told of this as chosen in your inbox in Refine: "Sessions failed".'
    )


def test_when_it_is_over_a_mail_says_so(admin, sending):
    fail(admin)
    told(NOW)
    told(NOW + SETTLES_FOR)
    for agent in db.session.scalars(select(Agent)):
        factories.ended(agent, at=NOW + timedelta(minutes=1))
    db.session.commit()

    _, over = told(NOW + DAY)
    assert over == (admin.email, "Acme: over: agents with a failed session: timeout")
    assert "None is left" in (mails()[-1].text or "")


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({"role": "viewer"}, []),
        ({"role": "viewer", "told_of": ["agent.failed"]}, ["agent.failed"]),
        ({"role": "viewer", "told_of": ["token.ending", "clock.silent"]}, []),
        ({}, ["agent.failed", "token.ending"]),
        ({"told_of": []}, []),
        ({"told_of": ["token.ending", "clock.silent"]}, ["token.ending"]),
        ({"site_admin": True}, ["agent.failed", "token.ending", "clock.silent"]),
        ({"site_admin": True, "role": "viewer"}, ["clock.silent"]),
        ({"active": False}, []),
    ],
)
def test_each_user_is_told_what_they_chose_and_may_see(admin, sending, fields, kinds):
    user = factories.user(account=admin.account, **fields)
    factories.user(role="admin")
    fail(admin)
    PeriodicWork.note("tick", NOW - DAY)
    ApiToken.mint(account=admin.account, expires_at=NOW + DAY)
    told(NOW)
    told(NOW + SETTLES_FOR)

    mine = [each.kind for each in mails() if each.user_id == user.id]
    assert sorted(mine) == sorted(kinds)


def test_users_of_other_accounts_are_told_nothing(admin, sending):
    other = factories.user()
    fail(admin)
    told(NOW)
    told(NOW + SETTLES_FOR)

    assert {each.user_id for each in mails()} == {admin.id}
    assert other.id != admin.id


def test_nothing_is_queued_where_no_mail_is_sent(admin):
    fail(admin)
    told(NOW)

    assert told(NOW + SETTLES_FOR) == []


def test_it_looks_now_and_then_whoever_asks(admin, sending):
    fail(admin)
    told(NOW)
    fail(admin)

    assert told(NOW + LOOKS_EVERY - timedelta(seconds=1)) == []
    assert len(told(NOW + SETTLES_FOR)) == 1


def test_what_cannot_be_told_keeps_nothing_else_back(admin, sending, monkeypatch):
    reader = factories.user(account=admin.account, told_of=["letter", "agent.failed"])
    monkeypatch.setattr(Letter, "of", lambda *_: 1 / 0)
    fail(admin)
    told(NOW)
    told(NOW + SETTLES_FOR)

    assert [each.kind for each in mails() if each.user_id == reader.id] == ["agent.failed"]


def test_the_letter_goes_to_who_chose_it_about_the_week_before(admin, sending):
    admin.told_of = ["letter"]
    factories.user(account=admin.account)
    db.session.commit()
    tell(NOW)
    db.session.commit()
    monday = datetime(2026, 3, 9, 8, tzinfo=UTC)
    with time_machine.travel(monday):
        tell(monday)
        db.session.commit()

    first, second = mails()
    assert first.subject == "Refine: Acme, 23 Feb 2026 to 1 Mar 2026"
    assert second.subject == "Refine: Acme, 2 Mar 2026 to 8 Mar 2026"
    assert (second.text or "").startswith(second.subject)
    assert {first.user_id, second.user_id} == {admin.id}


def test_no_mail_says_a_word_of_content_or_a_name(admin, sending):
    admin.told_of = offered("admin", site_admin=True)
    admin.site_admin = True
    agent = factories.agent(account=admin.account, name="Canarysings")
    sing(agent)
    factories.grant(agent, purpose=PURPOSE).record("requested", user=admin)
    ApiToken.mint(account=admin.account, expires_at=NOW + DAY)
    fail(admin)
    PeriodicWork.note("tick", NOW - DAY)
    db.session.commit()
    for hours in range(3):
        tell(NOW + timedelta(hours=hours))
        db.session.commit()

    said = " ".join(f"{each.subject} {each.text}" for each in mails()).lower()
    assert {each.kind for each in mails()} >= {"agent.failed", "access.asked", "letter"}
    assert [word for word in (CANARY, PURPOSE, "ada the second") if word in said] == []


def test_every_kind_has_words(app):
    for name, kind in KINDS.items():
        assert kind.choice, name
        assert kind.begun or name == "letter"
        assert kind.path.startswith("/")


# -- the clock -------------------------------------------------------------------------------------


def test_the_tick_tells_and_sends(sending, redis: Redis):
    admin = factories.user(told_of=["access.asked"])
    factories.live_grant(factories.agent(account=admin.account), admin)
    db.session.commit()
    run_tick()

    assert [each["To"] for each in sending.received] == [admin.email]


def test_a_worker_tells_that_the_clock_is_silent_and_sends_it(sending, redis: Redis):
    factories.user(site_admin=True)
    PeriodicWork.note("tick", clock.now() - timedelta(minutes=6))
    db.session.commit()
    for minutes in (0, 11):
        stand_in(clock.now() + timedelta(minutes=minutes))

    (received,) = sending.received
    assert received["Subject"] == "Refine: the clock is silent: no automatic sessions start"
    with_clock = clock.now() + timedelta(minutes=20)
    PeriodicWork.note("tick", with_clock)
    db.session.commit()
    run_tick(with_clock)
    assert sending.received[-1]["Subject"] == "Refine: the clock ticks again"


def test_a_worker_leaves_telling_to_a_clock_that_ticks(sending, redis: Redis):
    admin = factories.user(told_of=["access.asked"])
    factories.live_grant(factories.agent(account=admin.account), admin)
    PeriodicWork.note("tick", clock.now())
    db.session.commit()
    work(burst=True)
    assert mails() == []

    PeriodicWork.note("tick", clock.now() - timedelta(minutes=6))
    db.session.commit()
    work(burst=True)
    assert [each.kind for each in mails()] == ["access.asked"]
    assert db.session.scalar(select(Mail.outcome)) == "delivered"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("living", "silent", "said"),
    [
        ("worker", "tick", "the clock is silent: no automatic sessions start"),
        ("clock", "worker", "runs wait, and no worker looks for them"),
    ],
)
def test_worker_and_clock_each_tell_alone_that_the_other_is_silent(
    app, redis, environ, server, tmp_path, living, silent, said
):
    """Real processes; only how long it has held is written into the database."""
    admin = factories.user(site_admin=True)
    RefinementSession.queue(factories.agent("one", account=admin.account), "manual")
    PeriodicWork.note(silent, clock.now() - timedelta(minutes=6))
    db.session.commit()
    mail = {"REFINE_MAIL_URL": server.url, "REFINE_MAIL_FROM": "refine@example.org"}

    with services({**environ, **mail}, tmp_path) as begin:
        begin(living)
        eventually(lambda: sql.value("SELECT count(*) FROM notices"), seconds=180)
        sql.run(
            f"UPDATE notices SET began_at = began_at - interval '{SETTLES_FOR}'",
            f"UPDATE periodic_work SET at = at - interval '{LOOKS_EVERY}' WHERE event = 'notices'",
        )
        eventually(lambda: f"Refine: {said}" in subjects(server), seconds=180)


def subjects(server: MailServer) -> list[str]:
    return [each["Subject"] for each in server.received]
