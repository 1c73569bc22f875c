"""Deliveries to a real receiver: signed, repeated, given up, by one process at a time."""

import dataclasses
import math
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from flask import Flask
from redis import Redis
from sqlalchemy import select
from standardwebhooks.webhooks import WebhookVerificationError

from refine import clock, stopping
from refine.extensions import db
from refine.jobs import webhook
from refine.jobs.delivering import deliver_due
from refine.jobs.tick import run_tick
from refine.jobs.webhook import Message
from refine.models import ApiToken, Delivery, Endpoint
from refine.rules.pacing import DELIVERY_PAUSES
from tests import factories, sql
from tests.receiver import Receiver

BY = {"by": "command line"}
NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # of the standard's own example

Clock = time_machine.Traveller


@pytest.fixture
def time(app: Flask) -> Iterator[Clock]:
    with time_machine.travel(NOW, tick=False) as traveller:
        yield traveller


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture
def private(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Webhooks may lead to this machine."""
    allowed = dataclasses.replace(app.extensions["refine.settings"], webhooks_private=True)
    monkeypatch.setitem(app.extensions, "refine.settings", allowed)


def hook(url: str, *events: str) -> str:
    """A webhook with a session that ended for each of these statuses; its secret."""
    agent = factories.agent()
    _, secret = Endpoint.add(agent.account, url, None, by=BY)
    for status in events or ("completed",):
        factories.ended(agent, status)
    db.session.commit()
    return secret


def deliver(time: Clock | None = None, at: datetime | None = None) -> None:
    """Deliver what is due, now or then."""
    if time is not None and at is not None:
        time.move_to(at)
    deliver_due(clock.now(), math.inf)


def deliveries() -> list[Delivery]:
    db.session.rollback()
    return list(db.session.scalars(select(Delivery).order_by(Delivery.id)))


def delivery() -> Delivery:
    (one,) = deliveries()
    return one


def test_an_event_arrives_signed(private, receiver):
    secret = hook(receiver.url)
    deliver()

    (received,) = receiver.received
    done = delivery()
    assert received.path == "/hook?by=refine"
    assert received.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert received.headers["content-type"] == "application/json"
    assert received.verified(secret)["data"]["status"] == "completed"
    assert (received.id, received.body) == (done.event_id, done.body)
    assert "." not in received.id
    with pytest.raises(WebhookVerificationError):
        received.verified(SECRET)
    assert (done.outcome, done.attempts, done.last_status) == ("delivered", 1, "200")


def test_a_failed_attempt_is_repeated_after_growing_pauses_and_given_up_after_three_days(
    time, private, receiver
):
    hook(receiver.url)
    attempts = len(DELIVERY_PAUSES) + 1
    receiver.statuses.extend([500] * attempts)
    while (next_at := delivery().next_at) is not None:
        deliver(time, next_at)
    ended = delivery()

    assert len(receiver.received) == attempts
    assert {each.id for each in receiver.received} == {ended.event_id}
    assert (ended.outcome, ended.last_status, ended.attempts) == ("given_up", "500", attempts)
    assert timedelta(days=2, hours=23) < clock.now() - NOW <= timedelta(days=3)
    assert list(DELIVERY_PAUSES) == sorted(DELIVERY_PAUSES)


def test_nothing_is_sent_before_its_time(time, private, receiver):
    hook(receiver.url)
    receiver.statuses.append(503)
    for at in (NOW, NOW + timedelta(seconds=59), NOW + MINUTE):
        deliver(time, at)

    assert len(receiver.received) == 2
    assert delivery().outcome == "delivered"


def test_a_replay_sends_the_same_id_again(time, private, receiver):
    secret = hook(receiver.url)
    deliver(time, NOW)
    delivery().replay()
    db.session.commit()
    waiting = delivery().outcome
    deliver(time, NOW + timedelta(hours=1))

    first, second = receiver.received
    assert (waiting, delivery().outcome) == ("waiting", "delivered")
    assert first.id == second.id
    assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]
    assert second.verified(secret)


def test_two_at_once_deliver_an_event_once(private, receiver, app):
    hook(receiver.url, *["completed"] * 9)

    def deliver_here() -> None:
        with app.app_context():
            deliver()

    threads = [threading.Thread(target=deliver_here) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert len(receiver.received) == len({each.id for each in receiver.received}) == 9


def test_a_claim_whose_process_died_is_due_again(time, private, receiver):
    hook(receiver.url)
    assert Delivery.claim(NOW)
    db.session.commit()

    deliver(time, NOW + MINUTE)
    assert receiver.received == []
    deliver(time, NOW + 2 * MINUTE)
    assert len(receiver.received) == 1


def test_an_endpoint_that_does_not_answer_is_left_alone_until_the_next_round(time, private):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    hook(f"http://127.0.0.1:{port}/", "completed", "failed")
    deliver(time, NOW)

    tried, waiting = deliveries()
    assert (tried.attempts, tried.last_status, tried.next_at) == (
        1,
        "ConnectionError",
        NOW + MINUTE,
    )
    assert (waiting.attempts, waiting.last_status) == (0, None)


def test_one_endpoint_does_not_hold_up_another(private, receiver):
    with Receiver() as other:
        receiver.waits_for = other.has_arrived
        hook(receiver.url)
        hook(other.url)
        deliver()

    assert [each.outcome for each in deliveries()] == ["delivered", "delivered"]


def test_removed_and_altered_endpoints_are_sent_nothing(private, receiver):
    for _ in range(2):
        hook(receiver.url)
    removed, altered = db.session.scalars(select(Endpoint).order_by(Endpoint.id))
    removed.remove(by=BY)
    db.session.commit()
    sql.tamper(f"UPDATE endpoints SET kinds = '{{}}' WHERE id = {altered.id}")
    deliver()

    assert receiver.received == []
    assert [each.last_status for each in deliveries()] == ["removed", "altered"]


def test_what_is_removed_during_an_attempt_is_not_repeated(private, receiver):
    hook(receiver.url)
    claimed = Delivery.claim(clock.now())
    assert claimed is not None
    claimed.endpoint.remove(by=BY)
    claimed.note(clock.now(), "500")
    db.session.commit()

    assert delivery().next_at is None


def test_what_was_queued_while_its_webhook_was_removed_is_not_sent(private, receiver):
    hook(receiver.url)
    delivery().endpoint.remove(by=BY)
    db.session.commit()
    sql.run("UPDATE deliveries SET next_at = created_at")
    deliver()

    assert receiver.received == []
    assert (delivery().outcome, delivery().last_status) == ("given_up", "removed")


def test_a_replay_during_an_attempt_is_not_put_off_for_long(time, private, receiver):
    hook(receiver.url)
    claimed = Delivery.claim(NOW)
    assert claimed is not None
    claimed.replay()
    claimed.note(NOW, "500")
    db.session.commit()

    assert delivery().next_at == NOW + MINUTE


def test_the_tick_tells_and_delivers(private, receiver, redis: Redis):
    secret = hook(receiver.url)
    account = db.session.scalars(select(Endpoint)).one().account
    ApiToken.mint(account=account, expires_at=clock.now() + timedelta(days=1))
    db.session.commit()
    run_tick()
    run_tick()

    kinds = {each.verified(secret)["type"] for each in receiver.received}
    assert kinds == {"session.ended", "token.ending"}


def test_a_tick_without_webhooks_looks_once(app, redis: Redis):
    seen: list[str] = []
    with sql.just_before("min(deliveries.next_at)", by=lambda *_: seen.append("looked")):
        run_tick()

    assert len(seen) == 1


def test_a_round_ends_in_time_and_when_its_process_is_to_stop(private, receiver):
    hook(receiver.url)
    deliver_due(clock.now(), 0)
    with stopping.handle_stop_signals(signal.SIGUSR1):
        signal.raise_signal(signal.SIGUSR1)
        deliver()

    assert (receiver.received, delivery().attempts) == ([], 0)


# -- one attempt -----------------------------------------------------------------------------------


def send(url: str, **options: Any) -> str:
    return webhook.send(Message(url, SECRET, "record-1", "{}"), **options)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.1", "2130706433"])
def test_private_addresses_are_refused_however_they_are_written(app, receiver, host):
    assert send(f"http://{host}:{receiver.port}/") == "private address"
    assert receiver.received == []


def test_the_address_that_was_checked_is_the_one_that_is_asked(private, receiver, monkeypatch):
    asked, look_up = [], socket.getaddrinfo

    def rebind(host: str, *args: Any, **options: Any) -> Any:
        asked.append(host)
        return look_up("127.0.0.1" if asked == [host] else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebind)

    assert send(f"http://rebinding.example:{receiver.port}/") == "200"
    assert asked == ["rebinding.example", "127.0.0.1"]
    assert receiver.received[0].headers["host"] == f"rebinding.example:{receiver.port}"


@pytest.mark.parametrize("host", ["nowhere.invalid", f"{'a' * 70}.invalid", "a..invalid"])
def test_an_unknown_host_is_said_to_be_so(private, host):
    assert send(f"http://{host}/") == "unknown host"


def test_a_certificate_that_nobody_vouches_for_is_refused(private, tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = x509.CertificateBuilder(
        name, name, key.public_key(), 1, NOW, NOW + timedelta(days=9_999)
    )
    pem = tmp_path / "pem"
    pem.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + made.sign(key, SHA256()).public_bytes(Encoding.PEM)
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    with Receiver(tls) as receiver:
        answer = send(receiver.url.replace("http:", "https:"))

    assert answer == "SSLError"
    assert receiver.received == []


def test_redirects_are_not_followed(private, receiver):
    receiver.statuses.append(302)
    with Receiver() as other:
        receiver.location = other.url
        answer = send(receiver.url)

    assert answer == "302"
    assert other.received == []


def test_a_slow_drip_ends_in_time(private):
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def drip() -> None:
            with server.accept()[0] as caller:
                while not done.wait(0.02):
                    try:
                        caller.sendall(b"a")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        answer = send(f"http://127.0.0.1:{server.getsockname()[1]}/", seconds=0.3)
        done.set()
        thread.join()

    assert answer == "ConnectionError"
