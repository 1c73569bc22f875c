"""Mail through a real server: who gets it, what it says, and what an answer means."""

import dataclasses
import math
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from flask import Flask
from sqlalchemy import select

from refine import clock
from refine.extensions import db
from refine.jobs import mailing
from refine.models import AuditLog, Mail, User
from refine.rules.pacing import DELIVERY_PAUSES
from tests import factories, sql
from tests.mail_server import MailServer

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOST = "mail.example"


@pytest.fixture
def server() -> Iterator[MailServer]:
    with MailServer() as made:
        yield made


@pytest.fixture
def sending(app: Flask, server: MailServer, monkeypatch: pytest.MonkeyPatch) -> MailServer:
    """Mail goes through this server."""
    send_through(app, monkeypatch, server.url)
    return server


def send_through(app: Flask, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    usual = app.extensions["refine.settings"]
    changed = dataclasses.replace(usual, mail_url=url, mail_from="refine@example.org")
    monkeypatch.setitem(app.extensions, "refine.settings", changed)


def queue(*users: User, at: datetime = NOW, event_id: str = "notice-1-begun") -> None:
    about = {"kind": "agent.failed", "account_id": users[0].account_id, "event_id": event_id}
    Mail.queue([each.id for each in users], at, subject="1 failed", text="One failed.", **about)
    db.session.commit()


def deliver(at: datetime = NOW) -> None:
    mailing.deliver_due(at, math.inf)


def mails() -> list[Mail]:
    db.session.rollback()
    return list(db.session.scalars(select(Mail).order_by(Mail.id)))


def mail() -> Mail:
    (one,) = mails()
    return one


# -- what arrives ----------------------------------------------------------------------------------


def test_a_mail_says_what_it_is_and_where_to_choose(sending):
    user = factories.user()
    queue(user)
    deliver()

    (received,) = sending.received
    sent = mail()
    assert (sent.outcome, sent.attempts, sent.last_status) == ("delivered", 1, "250")
    assert received["From"] == "Refine <refine@example.org>"
    assert (received["To"], received["Subject"]) == (user.email, "1 failed")
    assert received["Auto-Submitted"] == "auto-generated"
    assert received["List-Unsubscribe"] == "<http://localhost:8000/inbox>"
    assert received["Date"] == "Wed, 04 Mar 2026 12:00:00 +0000"
    assert received.get_content_type() == "text/plain"
    assert received.get_content().strip() == "One failed."


def test_what_is_due_goes_over_one_connection(sending):
    queue(*(factories.user(account=factories.account()) for _ in range(1)))
    for number in range(3):
        queue(factories.user(), event_id=f"notice-{number}-over")
    deliver()

    assert len(sending.received) == 4
    assert sending.connections == 1


def test_nobody_is_told_of_one_event_twice(sending):
    user = factories.user()
    queue(user)
    queue(user)
    deliver()

    assert len(sending.received) == 1


# -- what an answer means --------------------------------------------------------------------------


def test_a_temporary_refusal_is_tried_again_under_the_same_id_and_given_up_after_days(sending):
    queue(factories.user())
    sending.answers = ["451 later"] * (len(DELIVERY_PAUSES) + 1)
    attempts = 0
    while (next_at := mail().next_at) is not None:
        deliver(next_at)
        attempts += 1

    assert attempts == len(DELIVERY_PAUSES) + 1
    assert (mail().outcome, mail().last_status) == ("given_up", "451")


def test_a_second_arrival_is_recognised_by_its_id(sending):
    queue(factories.user())
    deliver()
    sent = mail()
    sent.next_at, sent.delivered_at = NOW, None
    db.session.commit()
    deliver()

    first, second = sending.received
    assert first["Message-ID"] == second["Message-ID"]
    assert first["Message-ID"].endswith("@example.org>")


@pytest.mark.parametrize("where", ["address", "content"])
def test_a_permanent_refusal_is_final_and_the_next_mail_still_goes(sending, where):
    refused, other = factories.user(), factories.user()
    queue(refused)
    queue(other, event_id="notice-2-begun")
    if where == "address":
        sending.rejected = {refused.email: "550 no such mailbox"}
    else:
        sending.answers = ["554 no spam here"]
    deliver()

    first, second = mails()
    assert (first.outcome, first.attempts) == ("given_up", 1)
    assert first.last_status == ("550" if where == "address" else "554")
    assert second.outcome == "delivered"


def test_a_temporarily_refused_address_waits(sending):
    user = factories.user()
    sending.rejected = {user.email: "450 greylisted"}
    queue(user)
    deliver()

    assert (mail().outcome, mail().last_status) == ("waiting", "450")
    assert mail().next_at == NOW + DELIVERY_PAUSES[0]


def test_a_server_that_is_away_keeps_everything_waiting(app, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        send_through(app, monkeypatch, f"smtp://127.0.0.1:{unused.getsockname()[1]}")
        queue(factories.user(), factories.user())
        deliver()

    assert [each.outcome for each in mails()] == ["waiting", "waiting"]
    assert [each.attempts for each in mails()] == [1, 0]
    assert mails()[0].last_status == "ConnectionRefusedError"


def test_a_server_that_sends_a_byte_now_and_then_is_cut_off(app, monkeypatch):
    monkeypatch.setattr(mailing, "PATIENCE_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as slow:
        done = threading.Event()

        def drip() -> None:
            connection, _ = slow.accept()
            with connection:
                while not done.wait(0.05):
                    try:
                        connection.send(b"2")
                    except OSError:
                        return

        threading.Thread(target=drip, daemon=True).start()
        send_through(app, monkeypatch, f"smtp://127.0.0.1:{slow.getsockname()[1]}")
        queue(factories.user())
        began = time.monotonic()
        deliver()
        done.set()

    assert time.monotonic() - began < 10
    assert mail().outcome == "waiting"


# -- encryption ------------------------------------------------------------------------------------


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A certificate for a host that leads here, which this process trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + timedelta(days=9_999))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, SHA256())
    )
    pem, trusted = tmp_path / "pem", tmp_path / "ca.pem"
    trusted.write_bytes(made.public_bytes(Encoding.PEM))
    pem.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + made.public_bytes(Encoding.PEM)
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    look_up = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *about, **more: look_up("127.0.0.1", *about, **more),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


def test_beyond_this_machine_mail_goes_encrypted(app, monkeypatch, certified):
    with MailServer(certified, password="right") as server:
        send_through(app, monkeypatch, f"smtp://refine:right@{HOST}:{server.port}")
        queue(factories.user())
        deliver()

        assert mail().outcome == "delivered"
        assert len(server.received) == 1


def test_a_wrong_password_is_no_fault_of_the_mail(app, monkeypatch, certified):
    with MailServer(certified, password="right") as server:
        for password in ("wrong", "right"):
            url = f"smtp://us%40er:{password}@{HOST}:{server.port}"
            send_through(app, monkeypatch, url)
            queue(factories.user(), event_id=password)
            deliver()

        assert len(server.received) == 1
    first, second = mails()
    assert (first.outcome, first.last_status) == ("waiting", "535")
    assert second.outcome == "delivered"


def test_a_server_without_starttls_gets_neither_mail_nor_password(
    app, monkeypatch, certified, server
):
    send_through(app, monkeypatch, f"smtp://refine:right@{HOST}:{server.port}")
    queue(factories.user())
    deliver()

    assert (mail().outcome, mail().last_status) == ("waiting", "no STARTTLS")
    assert server.received == []


def test_a_certificate_that_nobody_vouches_for_is_refused(app, monkeypatch, certified):
    monkeypatch.delenv("SSL_CERT_FILE")
    with MailServer(certified) as server:
        send_through(app, monkeypatch, f"smtp://{HOST}:{server.port}")
        queue(factories.user())
        deliver()

        assert server.received == []
    assert mail().last_status == "SSLCertVerificationError"


def test_a_server_that_speaks_tls_at_once(app, monkeypatch, certified):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        said = bytearray()

        def greet() -> None:
            connection, _ = listening.accept()
            with certified.wrap_socket(connection, server_side=True) as tls:
                tls.sendall(b"554 closed today\r\n")
                said.extend(tls.recv(100))

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        send_through(app, monkeypatch, f"smtps://{HOST}:{listening.getsockname()[1]}")
        problem = mailing.problem()
        thread.join(5)

    assert problem is not None
    assert "REFINE_MAIL_URL" in problem


# -- who may have it, as things are now ------------------------------------------------------------


def _deactivate(user: User) -> None:
    user.active = False


def _make_viewer(user: User) -> None:
    user.role = "viewer"


def _move(user: User) -> None:
    user.account = factories.account()


def _choose_nothing(user: User) -> None:
    user.told_of = []


def _lock_account(user: User) -> None:
    user.account.locked_at = NOW


@pytest.mark.parametrize(
    "change", [_lock_account, _deactivate, _make_viewer, _move, _choose_nothing]
)
def test_who_may_not_have_it_any_more_gets_nothing_that_was_queued(sending, change):
    user = factories.user()
    queue(user)
    change(user)
    db.session.commit()
    deliver()

    assert sending.received == []
    assert mails() == []


def test_an_altered_user_gets_nothing(sending):
    user = factories.user()
    queue(user)
    sql.tamper(f"UPDATE users SET email = 'evil@example.org' WHERE id = {user.id}")
    db.session.expire_all()
    deliver()

    assert (sending.received, mails()) == ([], [])


# -- links -----------------------------------------------------------------------------------------


def link_in(server: MailServer) -> str:
    (received,) = server.received
    (link,) = [line for line in received.get_content().split() if "/invitations/" in line]
    return link.rpartition("/")[2]


def test_an_invitation_is_made_when_it_is_sent_and_stored_nowhere(sending):
    admin = factories.user()
    invited = User.invite(admin.account, "new@example.org", role="viewer", by=admin)
    Mail.invite(invited, NOW, by=admin)
    db.session.commit()
    deliver()

    secret = link_in(sending)
    assert sending.received[0]["To"] == "new@example.org"
    assert sending.received[0]["List-Unsubscribe"] is None
    assert secret not in str(sql.snapshot())


def test_no_link_goes_out_for_who_may_not_invite_any_more(sending):
    admin = factories.user()
    invited = User.invite(admin.account, "new@example.org", role="viewer", by=admin)
    Mail.invite(invited, NOW, by=admin)
    admin.role = "viewer"
    db.session.commit()
    deliver()

    assert (sending.received, mails()) == ([], [])


def test_who_forgot_their_password_gets_a_link_once_an_hour(sending):
    user = factories.user()
    for minutes in (0, 1, 59):
        Mail.remind(user.email, NOW + minutes * MINUTE)
    db.session.commit()
    deliver(NOW + timedelta(hours=1))

    assert sending.received[0]["To"] == user.email
    assert link_in(sending)
    record = db.session.scalars(select(AuditLog).where(AuditLog.action == "user_invited")).one()
    assert record.data == {"through": "mail"}


def test_nobody_else_gets_a_link_and_nothing_is_kept_of_the_address(sending):
    left, invited = factories.user(active=False), factories.user()
    invited.password_hash = None
    for address in (left.email, invited.email, "nobody@example.org"):
        Mail.remind(address, NOW)
    db.session.commit()
    deliver()

    assert (sending.received, mails()) == ([], [])


# -- trying it -------------------------------------------------------------------------------------


def test_a_test_is_sent_at_once(sending):
    assert mailing.problem("you@example.org") is None
    assert sending.received[0]["Subject"] == "Refine: a test"
    sending.rejected = {"you@example.org": "550 who?"}
    assert mailing.problem("you@example.org") == "the mail server refused the address (550)"


def test_a_round_ends_in_time(sending):
    queue(factories.user(), factories.user(), at=clock.now())
    mailing.deliver_due(clock.now(), 0)

    assert len(sending.received) == 1


def test_old_mail_is_deleted(sending):
    queue(factories.user())
    assert Mail.prune(NOW + timedelta(days=31)) == 0
    deliver()
    with time_machine.travel(NOW):
        assert Mail.prune(NOW + timedelta(days=29)) == 0
    assert Mail.prune(NOW + timedelta(days=31)) == 1
