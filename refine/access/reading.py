"""The only module through which a human reads content.

Each function checks the grant in the database, by the database's clock, writes the record of what
is about to be seen, commits that, and only then returns content. If the record cannot be written,
nothing is returned. Only plain values are returned, through which nothing else can be loaded. Their
fields have other names than sealed columns, so that a test can prove that templates read no sealed
column.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from sqlalchemy import Select, select
from sqlalchemy.orm import contains_eager, joinedload, undefer

from refine.access.differences import Part, word_difference
from refine.errors import InvalidValue, Refused, SealingError
from refine.extensions import agreed_now, db, require_agreement
from refine.models import AccessGrant, AgentMemory, AuditLog, RefinementSession, User
from refine.models.agent import PROMPTS, only_key_of
from refine.models.ledger import contents_in
from refine.models.ledger.history import records_of_memory
from refine.rules.content import bounded_text

P = ParamSpec("P")
T = TypeVar("T")
Row = TypeVar("Row", AgentMemory, AuditLog, RefinementSession)
What = Literal["memories", "export", "search", "versions", "audit_record", "session", "prompts"]

MAX_SEARCHED_CHARACTERS = 200
# Readers are warned when this many minutes are left.
ENDING_MINUTES = 5
# The most records of a session or a memory that are shown.
MAX_RECORDS = 100


class NoAccess(Refused):
    """No grant lets this user read this, now."""


@dataclass(frozen=True)
class LiveGrant:
    """A grant under which its user may read at this moment, with the purpose they stated."""

    id: uuid.UUID
    agent_id: int
    agent_name: str
    expires_at: datetime
    seconds_left: int
    purpose_text: str | None = field(repr=False)

    @property
    def is_ending(self) -> bool:
        """Whether the reader is warned that the end is near."""
        return self.minutes_left <= ENDING_MINUTES

    @property
    def minutes_left(self) -> int:
        """The minutes left, the one that has begun included."""
        return -(-self.seconds_left // 60)


@dataclass(frozen=True)
class ReadableMemory:
    """A memory with its content in ``text``."""

    id: int
    memory_type: str
    constitutional: bool
    is_locked: bool
    tags: tuple[str, ...]
    token_estimate: int
    created_at: datetime
    discarded_at: datetime | None
    text: str = field(repr=False)

    @property
    def discarded(self) -> bool:
        return self.discarded_at is not None


@dataclass(frozen=True)
class Found:
    """A page of search results, how many there are in all, and its last id if there are more."""

    memories: list[ReadableMemory]
    count: int
    after_id: int | None


@dataclass(frozen=True)
class ReadableChange:
    """How a record changed the text of one memory; for a merge, from sources to result."""

    memory_id: int
    action: str
    operation: str
    source_ids: tuple[int, ...]
    before: str | None = field(repr=False)
    after: str | None = field(repr=False)

    @property
    def parts(self) -> list[Part]:
        """The words of both texts. Slow, so use it once the access is no longer locked."""
        return word_difference(self.before, self.after)


@dataclass(frozen=True)
class ReadableRecord:
    """The sealed part of a record: memories before and after, and other texts by name."""

    changes: list[ReadableChange]
    texts: dict[str, str] = field(repr=False)

    @property
    def memory_ids(self) -> list[int]:
        """The memories that the record changed."""
        return [change.memory_id for change in self.changes]


@dataclass(frozen=True)
class ReadableVersions:
    """A memory's text, and how records changed it, by the records' ids."""

    text: str = field(repr=False)
    changes: dict[int, ReadableChange]


@dataclass(frozen=True)
class ReadableSession:
    """What the agent said in a session, to the consent question and at the end; what it changed."""

    consent_text: str | None = field(repr=False)
    summary_text: str | None = field(repr=False)
    changes: list[ReadableChange]


# -- the guard ------------------------------------------------------------------------------------


def _under_grant(
    read: Callable[Concatenate[AccessGrant, P], T],
) -> Callable[Concatenate[uuid.UUID, User, P], T]:
    """Have a function read under the grant of an id, if it lets the user read now."""

    @wraps(read)
    def guarded(grant_id: uuid.UUID, user: User, /, *args: P.args, **kwargs: P.kwargs) -> T:
        grant = _readable_grant(grant_id, user)
        with only_key_of(grant.agent_id):
            return read(grant, *args, **kwargs)

    return guarded


def _readable_grant(grant_id: uuid.UUID, user: User) -> AccessGrant:
    """The grant, if it lets this user read now; nobody can end it before the record is written."""
    user.require_genuine()
    before = datetime.now(UTC)
    grant = db.session.scalar(
        select(AccessGrant)
        .join(AccessGrant.user)
        .join(AccessGrant.agent)
        .options(
            contains_eager(AccessGrant.user),
            contains_eager(AccessGrant.agent).undefer_group("prompts"),
        )
        .where(AccessGrant.id == grant_id, AccessGrant.user_id == user.id)
        .with_for_update(read=True, of=AccessGrant)
        .execution_options(populate_existing=True)
    )
    if grant is not None:
        # the rows that decide are the rows that were checked: one load of all three
        grant.require_genuine(id=grant_id, user_id=user.id)
        grant.require_own("user", "agent")
        require_agreement(grant.read_at, before)
    if grant is None or not grant.permits_reading:
        raise NoAccess("you have no active access to these memories")
    return grant


# -- the grants that are live ---------------------------------------------------------------------

# What ``purpose_of`` needs, to be loaded along with a grant.
WITH_PURPOSE = (
    undefer(AccessGrant.sealed_purpose),
    joinedload(AccessGrant.agent).undefer_group("prompts"),  # the digest covers them
)


def live_grants(user: User) -> list[LiveGrant]:
    """Return the user's grants that let them read now."""
    user.require_genuine()
    granted = (
        select(AccessGrant)
        .options(*WITH_PURPOSE)
        .where(AccessGrant.user_id == user.id, AccessGrant.status == "granted")
        .order_by(AccessGrant.expires_at)
        .execution_options(populate_existing=True)  # a request may have been granted since
    )
    return [_live(grant) for grant in db.session.scalars(granted) if _is_live(grant, user)]


def _is_live(grant: AccessGrant, user: User) -> bool:
    is_theirs = grant.user_id == user.id and grant.agent.id == grant.agent_id
    return grant.is_genuine and is_theirs and grant.permits_reading


def _live(grant: AccessGrant) -> LiveGrant:
    assert grant.expires_at is not None  # noqa: S101 - it is granted; for mypy
    return LiveGrant(
        id=grant.id,
        agent_id=grant.agent_id,
        agent_name=grant.agent.name,
        expires_at=grant.expires_at,
        seconds_left=max(0, int((grant.expires_at - grant.read_at).total_seconds())),
        purpose_text=purpose_of(grant),
    )


def purpose_of(grant: AccessGrant) -> str | None:
    """Return the purpose that its user stated; None once the agent's key was destroyed."""
    try:
        return grant.purpose
    except SealingError:
        return None


# -- what an agent keeps, under its grant ---------------------------------------------------------


@_under_grant
def memories(grant: AccessGrant, ids: Sequence[int]) -> list[ReadableMemory]:
    found = {memory.id: _open(memory) for memory in _memories_of(grant, ids)}
    shown = [found[id_] for id_ in ids if id_ in found]
    return _seen(grant, "memories", shown, ids=[memory.id for memory in shown])


@_under_grant
def contents(grant: AccessGrant, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return ``content`` and ``extra`` of these memories by id, as a full export has them."""
    shown = {
        memory.id: {"content": memory.content, "extra": memory.extra}
        for memory in _memories_of(grant, ids)
    }
    return _seen(grant, "export", shown, ids=sorted(shown))


@_under_grant
def search(
    grant: AccessGrant,
    text: object,
    among: Select[Any],
    *,
    rows: int,
    after_id: int | None = None,
) -> Found:
    """Return a page of the memories ``among`` that contain ``text``, regardless of case.

    All that contain it are recorded as read, because the count tells of them. ``after_id`` is the
    last memory of the page before. InvalidValue for an empty or too long text.
    """
    wanted = bounded_text(text, field="search", limit=MAX_SEARCHED_CHARACTERS).casefold()
    all_of = db.session.scalars(among.where(AgentMemory.agent_id == grant.agent_id)).all()
    hits = [memory for memory in all_of if wanted in memory.content.casefold()]
    order = {memory.id: number for number, memory in enumerate(all_of)}
    if after_id is not None and after_id not in order:
        raise InvalidValue("search: this page of the results does not exist; start with the first")
    start = order[after_id] + 1 if after_id is not None else 0
    later = [memory for memory in hits if order[memory.id] >= start]
    shown = [_open(memory) for memory in later[:rows]]
    found = Found(shown, len(hits), shown[-1].id if len(later) > rows else None)
    return _seen(
        grant, "search", found, ids=[memory.id for memory in hits], sealed={"search": wanted}
    )


@_under_grant
def read_record(grant: AccessGrant, record_id: int) -> ReadableRecord:
    """Return the sealed part of one of the agent's records."""
    shown = _open_record(_of_agent(grant, AuditLog, record_id))
    return _seen(grant, "audit_record", shown, record_id=record_id, ids=shown.memory_ids)


@_under_grant
def versions(grant: AccessGrant, memory_id: int) -> ReadableVersions:
    """Return the text of one of the agent's memories, and how records changed it."""
    memory = _of_agent(grant, AgentMemory, memory_id)
    changes = {
        id_: change
        for id_, record in _open_records(grant, records_of_memory(memory)).items()
        for change in record.changes
        if change.memory_id == memory_id
    }
    shown = ReadableVersions(memory.content, changes)
    return _seen(grant, "versions", shown, record_ids=sorted(changes), ids=[memory_id])


@_under_grant
def session(grant: AccessGrant, session_id: uuid.UUID) -> ReadableSession:
    """Return what the agent said in one of its sessions, and what the session changed."""
    looked_at = _of_agent(grant, RefinementSession, session_id)
    last = select(AuditLog).where(AuditLog.session_id == session_id)
    records = _open_records(grant, last.order_by(AuditLog.sequence.desc())).values()
    changes = [change for record in reversed(records) for change in record.changes]
    shown = ReadableSession(looked_at.consent_reply, looked_at.summary, changes)
    ids = sorted({change.memory_id for change in changes})
    return _seen(grant, "session", shown, session_id=str(session_id), ids=ids)


@_under_grant
def prompts(grant: AccessGrant) -> dict[str, str | None]:
    """Return the agent's own prompts by name; None where the default is used."""
    shown: dict[str, str | None] = {name: getattr(grant.agent, name) for name in PROMPTS}
    return _seen(grant, "prompts", shown, prompts=list(PROMPTS), ids=[])


def _memories_of(grant: AccessGrant, ids: Sequence[int]) -> Iterable[AgentMemory]:
    wanted = AgentMemory.agent_id == grant.agent_id, AgentMemory.id.in_(list(ids))
    return db.session.scalars(select(AgentMemory).where(*wanted))


def _open_records(grant: AccessGrant, query: Select[AuditLog]) -> dict[int, ReadableRecord]:
    """The sealed parts of the agent's records among these, by id; no more than pages show."""
    found = db.session.scalars(
        query.where(AuditLog.agent_id == grant.agent_id)
        .options(undefer(AuditLog.sealed_text))
        .limit(MAX_RECORDS)
    )
    return {record.id: _open_record(record) for record in found}


def _of_agent(grant: AccessGrant, model: type[Row], id_: object) -> Row:
    found = db.session.get(model, id_)
    if found is None or (found.id, found.agent_id) != (id_, grant.agent_id):
        raise NoAccess("this does not belong to the agent")
    return found


def _seen(grant: AccessGrant, what: What, shown: T, **record: Any) -> T:
    """Commit the record of what will be shown, then return it."""
    at = agreed_now()
    if grant.expires_at is None or grant.expires_at <= at:
        raise NoAccess("your access to these memories has ended")
    grant.record("viewed", user=grant.user, at=at, what=what, **record)
    db.session.commit()
    return shown


def _open(memory: AgentMemory) -> ReadableMemory:
    columns = {each.name for each in fields(ReadableMemory)} - {"tags", "text"}
    shown = {name: getattr(memory, name) for name in columns}
    return ReadableMemory(**shown, tags=tuple(memory.tags), text=memory.content)


def _open_record(record: AuditLog) -> ReadableRecord:
    sealed = record.sealed
    texts = {name: text for name, text in sealed.items() if isinstance(text, str)}
    return ReadableRecord(_changes(contents_in(sealed), record), texts)


def _changes(images: list[dict[str, Any]], record: AuditLog) -> list[ReadableChange]:
    if record.action != "memory_refinement_consolidate":
        return [_change(image, record) for image in images]
    sources = [image for image in images if image["before"] is not None]
    before = "\n\n".join(image["before"]["content"] for image in sources)
    ids = tuple(image["id"] for image in sources)
    results = [_change(image, record, before, ids) for image in images if image["before"] is None]
    return results + [_change(image, record) for image in sources]


def _change(
    image: dict[str, Any],
    record: AuditLog,
    before: str | None = None,
    source_ids: tuple[int, ...] = (),
) -> ReadableChange:
    if image["before"] is not None:
        before = image["before"]["content"]
    return ReadableChange(
        memory_id=image["id"],
        action=record.action,
        operation=record.data.get("operation", ""),
        source_ids=source_ids,
        before=before,
        after=image["after"]["content"],
    )
