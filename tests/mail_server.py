"""A real mail server, which keeps what it receives."""

import socket
import ssl
import time
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword


class MailServer:
    """Answers each mail with the next of ``answers``, or accepts it; to ``rejected`` addresses it
    says no. With ``tls`` it wants STARTTLS; with a ``password``, too, to be signed in to.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, password: str | None = None) -> None:
        self.received: list[EmailMessage] = []
        self.answers: list[str] = []
        self.rejected: dict[str, str] = {}
        self.connections = 0
        self.open: set[Any] = set()
        self.transports: list[Any] = []
        self._password = password
        options: dict[str, Any] = {"tls_context": tls, "require_starttls": tls is not None}
        if password is not None:
            options |= {"authenticator": self._authenticate, "auth_required": True}
        self._controller = _Controller(self, "127.0.0.1", _free_port(), **options)

    def __enter__(self) -> "MailServer":
        self._controller.start()
        self.connections = 0  # the controller itself makes sure that it answers
        return self

    def __exit__(self, *_: object) -> None:
        until = time.monotonic() + 5
        while self.open and time.monotonic() < until:  # it learns of their ends in its own thread
            time.sleep(0.005)
        for each in self.transports:
            self._controller.loop.call_soon_threadsafe(each.abort)
        self._controller.stop()

    @property
    def port(self) -> int:
        return int(self._controller.port)

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    def _authenticate(self, *about: Any) -> AuthResult:
        data = about[-1]
        known = isinstance(data, LoginPassword) and data.password.decode() == self._password
        return AuthResult(success=known, handled=False)

    async def handle_EHLO(
        self, _server: Any, session: Any, _envelope: Any, hostname: str, responses: list[str]
    ) -> list[str]:
        self.connections += 1
        session.host_name = hostname
        return responses

    async def handle_RCPT(
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        if address in self.rejected:
            return self.rejected[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        if self.answers and not (answer := self.answers.pop(0)).startswith("2"):
            return answer
        received = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(received, EmailMessage)
        self.received.append(received)
        return "250 kept"


class _Connection(SMTP):
    """Knows when it ends, so that none is left when its server stops."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.event_handler.open.add(self)
        self.event_handler.transports.append(transport)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.event_handler.open.discard(self)


class _Controller(Controller):
    def factory(self) -> SMTP:
        return _Connection(self.handler, **self.SMTP_kwargs)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
