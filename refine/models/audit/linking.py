"""What a record tells, how it is stored, and the keyed hash that links it to the record before."""

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from refine import clock
from refine.extensions import canonical_json, columns_json
from refine.models.audit.chain import Actor, Chain, HeadValues
from refine.models.keys import WrappedKey
from refine.models.unrecorded import changed_rows
from refine.sealing import Place

Subject = Literal[
    "AgentMemory",
    "RefinementSession",
    "MemoryTask",
    "Agent",
    "Account",
    "User",
    "AccessGrant",
    "ApiToken",
    "SignIn",
]

LINK_CONTEXT = "audit_logs.link"


class Event(NamedTuple):
    """What a record tells, apart from its place.

    ``data`` holds no content and no floats; ``sealed`` is encrypted, and left out for an agent's
    chain without a key.
    """

    action: str
    user: Actor | None = None
    session_id: uuid.UUID | None = None
    subject: tuple[Subject, object] | None = None
    data: Mapping[str, Any] | None = None
    sealed: Mapping[str, Any] | None = None

    def columns(self) -> dict[str, Any]:
        """Return the columns of the record that hold it, except the sealed ones."""
        kind, id_ = self.subject if self.subject is not None else (None, None)
        return {
            "action": self.action,
            "user_id": self.user.id if self.user is not None else None,
            "session_id": self.session_id,
            "auditable_type": kind,
            "auditable_id": str(id_) if kind is not None else None,
            "data": canonical_json(self.data or {}),
        }

    def sealed_for(self, chain: Chain, id_: int) -> bytes | None:
        """Return what is sealed of it in the record of this id."""
        if not self.sealed or (chain.agent_id is not None and chain.key is None):
            return None
        key = chain.key or WrappedKey.platform_key()
        return key.seal(canonical_json(self.sealed), Place("audit_logs.sealed", id_))


class StoredRecord(NamedTuple):
    """A record as it is stored, ``data`` and ``rows`` to the letter: what its hash covers, and it.

    Objects would take several times as long to read as the hashes.
    """

    id: int
    chain_id: int
    sequence: int
    account_id: int | None
    user_id: int | None
    agent_id: int | None
    session_id: uuid.UUID | None
    action: str
    auditable_type: str | None
    auditable_id: str | None
    created_at: datetime
    data: str
    sealed_text: bytes | None
    rows: str | None
    hash: str

    def attributes(self) -> dict[str, Any]:
        """Return it as attributes of an ``AuditLog``."""
        rows = json.loads(self.rows) if self.rows is not None else None
        return {**self._asdict(), "data": json.loads(self.data), "rows": rows}


# The columns of ``StoredRecord``.
RECORD_COLUMNS = ["sealed" if name == "sealed_text" else name for name in StoredRecord._fields]


def link_text(previous_hash: str, record: StoredRecord) -> str:
    """Return the text whose keyed hash a record carries after ``previous_hash``."""
    *ids, session_id, action, kind, subject_id, created_at, data, sealed, rows, _ = record
    text = columns_json(
        [
            previous_hash,
            *ids,
            str(session_id) if session_id else None,
            action,
            kind,
            subject_id,
            clock.iso(created_at),
            data,
            hashlib.sha256(sealed).hexdigest() if sealed is not None else None,
        ]
    )
    return text if rows is None else f"{text[:-1]},{rows}]"


def next_records(
    head: HeadValues, events: Iterable[tuple[int, Event]], chain: Chain, at: datetime
) -> list[StoredRecord]:
    """Return the records of events, each with its id, that follow in a chain; advance its head.

    The caller has locked the head. The first record tells which rows of the owner were changed.
    """
    platform = WrappedKey.platform_key()
    sequence, hash_ = head.sequence, head.hash
    rows = changed_rows(chain.chain_owner)
    records = list[StoredRecord]()
    for id_, event_ in events:
        sequence += 1
        record = StoredRecord(
            id=id_,
            chain_id=head.id,
            sequence=sequence,
            account_id=chain.account_id,
            agent_id=chain.agent_id,
            created_at=at,
            sealed_text=event_.sealed_for(chain, id_),
            rows=columns_json(rows) if rows and not records else None,
            hash="",
            **event_.columns(),
        )
        hash_ = platform.mac(link_text(hash_, record), LINK_CONTEXT)
        records.append(record._replace(hash=hash_))
    head.advance(sequence=sequence, hash=hash_)
    return records
