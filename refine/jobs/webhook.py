"""Sends one event over HTTP, signed as Standard Webhooks say, and to public addresses alone."""

import socket
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from standardwebhooks import Webhook

from refine import settings
from refine.llm.exchange import Wire
from refine.rules.targets import is_public

# How long one attempt may take.
PATIENCE_SECONDS = 5.0


class Message(NamedTuple):
    """An event, ready to be sent."""

    url: str
    secret: str
    id: str
    body: str


def send(message: Message, seconds: float = PATIENCE_SECONDS) -> str:
    """Post it within so many seconds; return the status of the answer, or why there is none.

    No redirect is followed, and no word of the answer kept.
    """
    try:
        address = _address(urlsplit(message.url).hostname)
    except (OSError, UnicodeError):
        return "unknown host"
    if not (is_public(ip_address(address)) or settings.current().webhooks_private):
        return "private address"
    wire, body, headers = Wire(address), message.body.encode(), _headers(message)
    options: Any = {"timeout": seconds, "allow_redirects": False, "stream": True}
    try:
        with (
            wire.lasting(seconds),
            wire.session().post(message.url, body, headers=headers, **options) as answer,
        ):
            return str(answer.status_code)
    except Exception as fault:  # of requests, or of what it did not expect from a server
        return type(fault).__name__


def _address(host: str | None) -> str:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return str(found[0][4][0])


def _headers(message: Message) -> dict[str, str]:
    at = datetime.now(UTC)
    return {
        "Content-Type": "application/json",
        "User-Agent": "Refine",
        "webhook-id": message.id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(message.secret).sign(message.id, at, message.body),
    }
