"""Sends mail by SMTP, encrypted beyond this machine; one connection for all that is due."""

import smtplib
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import unquote, urlsplit

from flask import current_app

from refine import clock, settings, stopping
from refine.errors import Refused
from refine.extensions import db
from refine.llm.exchange import Wire
from refine.models import Invitation, Mail, User
from refine.models.people.invitation import VALID_FOR
from refine.rules.quantities import in_days
from refine.rules.targets import is_this_machine

# How long one connection may last, whatever the server does.
PATIENCE_SECONDS = 20.0
_PORTS = {"smtp": 587, "smtps": 465}
# It is the server, not one mail: the others wait, too.
_NO_SERVICE = (OSError, UnicodeError, smtplib.SMTPException, Refused)


def deliver_due(at: datetime, deadline: float) -> None:
    """Send what is due until ``deadline`` (``time.monotonic``), or one mail longer."""
    with ExitStack() as stack:
        server, is_over = None, False
        while not is_over and (mail := Mail.claim(at)) is not None:
            if (message := _composed(mail)) is None:  # nobody may have it any more
                db.session.delete(mail)
                db.session.commit()
                continue
            db.session.commit()  # no transaction is open meanwhile
            try:
                server = server or stack.enter_context(_connection())
                status = _send(server, message)
                mail.note(at, status, is_final=status.startswith("5"))
                is_over = time.monotonic() >= deadline or stopping.stop_requested()
            except _NO_SERVICE as fault:
                mail.note(at, _status_of(fault))
                is_over = True
            db.session.commit()


def problem(address: str | None = None) -> str | None:
    """Return why mail cannot be sent (to this address, as a test); None if it can."""
    try:
        with _connection() as server:
            if address is not None:
                at, said = clock.now(), "Mail from Refine arrives.\n"
                test = _message(address, "Refine: a test", said, f"test.{at.timestamp()}", at)
                status = _send(server, test)
                if not status.startswith("2"):
                    return f"the mail server refused the address ({status})"
    except _NO_SERVICE as fault:
        return f"the server in REFINE_MAIL_URL takes no mail ({_status_of(fault)})"
    return None


def _composed(mail: Mail) -> EmailMessage | None:
    if (user := mail.recipient()) is None:
        return None
    text = mail.text if mail.text is not None else _link_text(mail, user)
    # the same at each attempt, so that a second arrival is recognised
    id_ = f"{mail.created_at:%Y%m%d%H%M%S}.{mail.id}"
    message = _message(user.email, mail.subject, text, id_, mail.created_at)
    if mail.text is not None:
        message["List-Unsubscribe"] = f"<{settings.current().public_url}/inbox>"
    return message


def _link_text(mail: Mail, user: User) -> str:
    """Make the link now, so that no secret waits anywhere; one of an earlier attempt ends."""
    secret = Invitation.issue(user, by=mail.issued_by)
    if mail.issued_by is None:
        user.record("user_invited", data={"through": "mail"})
    link = f"{settings.current().public_url}/invitations/{secret}"
    template = current_app.jinja_env.get_template(f"mail/{mail.kind}.txt")
    return template.render(user=user, link=link, days=in_days(VALID_FOR))


def _message(to: str, subject: str, text: str, id_: str, at: datetime) -> EmailMessage:
    message, sender = EmailMessage(), settings.current().mail_from or ""
    message["From"], message["To"], message["Subject"] = f"Refine <{sender}>", to, subject
    message["Date"] = format_datetime(at)
    message["Message-ID"] = f"<{id_}@{sender.partition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text)
    return message


def _send(server: smtplib.SMTP, message: EmailMessage) -> str:
    """Return the answer to this mail; a refused sender is not one mail's fault."""
    try:
        server.send_message(message)
    except smtplib.SMTPRecipientsRefused as refused:
        return str(next(iter(refused.recipients.values()))[0])
    except smtplib.SMTPDataError as refused:
        return str(refused.smtp_code)
    return "250"


def _status_of(fault: Exception) -> str:
    """Return why there was no answer, without any word of the server's."""
    if isinstance(fault, smtplib.SMTPResponseException):
        return str(fault.smtp_code)
    return str(fault) if isinstance(fault, Refused) else type(fault).__name__


class _Server(smtplib.SMTP):
    """Can be cut off at any byte: a socket's timeout starts again with each."""

    def __init__(self, host: str, wire: Wire, context: ssl.SSLContext | None) -> None:
        super().__init__(timeout=PATIENCE_SECONDS)
        # whose certificate is asked for; SMTP knows it only where it connects at once
        self._host, self._wire, self._context = host, wire, context

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        found = self._wire.keep(socket.create_connection((host, port), timeout))
        tls = self._context
        return found if tls is None else tls.wrap_socket(found, server_hostname=host)


@contextmanager
def _connection() -> Iterator[smtplib.SMTP]:
    """Yield a connection that may send; one of ``_NO_SERVICE``."""
    url = urlsplit(settings.current().mail_url or "")
    host, wire, context = url.hostname or "", Wire(), ssl.create_default_context()
    server = _Server(host, wire, context if url.scheme == "smtps" else None)
    with closing(server), wire.lasting(PATIENCE_SECONDS):
        server.connect(host, url.port or _PORTS[url.scheme])
        server.ehlo()
        if url.scheme == "smtp" and not is_this_machine(host):
            if not server.has_extn("starttls"):
                raise Refused("no STARTTLS")
            server.starttls(context=context)
        if url.username:
            server.login(unquote(url.username), unquote(url.password or ""))
        yield server
        with suppress(OSError, smtplib.SMTPException):  # what was sent is sent
            server.quit()
