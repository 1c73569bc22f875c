"""Writes audit records with the acting user and client."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from refine.models.audit import AuditLog, Chain
from refine.models.audit.chain import Actor
from refine.models.audit.record import Event

# Where a record's ``data`` holds the client.
CLIENT_KEY = "from"

_MAX_BROWSER_CHARACTERS = 200


@dataclass(frozen=True)
class Client:
    """The network address and the browser from which a user acts."""

    address: str
    browser: str

    @classmethod
    def of_request(cls, address: str | None, user_agent: str) -> "Client":
        """Return the client; of the browser's name, 200 printable characters."""
        printable = "".join(character for character in user_agent if character.isprintable())
        return cls(address or "unknown", printable[:_MAX_BROWSER_CHARACTERS])


NO_CLIENT = Client("", "")


def record(action: str, *, chain: Chain, at: datetime | None = None, **about: Any) -> AuditLog:
    """Append a record as ``AuditLog.record`` does; ``about`` goes to ``to_record``."""
    return AuditLog.record(**to_record(action, **about)._asdict(), chain=chain, at=at)


def to_record(
    action: str,
    *,
    user: Actor | None = None,
    client: Client = NO_CLIENT,
    data: Mapping[str, Any] | None = None,
    **about: Any,
) -> Event:
    """Return what is to be recorded, with the ``client`` of its user; ``about``: see ``Event``.

    Pass ``client`` for somebody who is not signed in; a user of the dashboard carries their own.
    """
    client = getattr(user, "client", client)
    if client != NO_CLIENT:
        data = {**(data or {}), CLIENT_KEY: asdict(client)}
    return Event(action, user=user, data=data, **about)
