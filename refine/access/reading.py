"""The only module through which a human reads content: it checks the grant by the database's
clock, commits the record of what will be seen, and only then returns plain values.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Select, select
from sqlalchemy.orm import contains_eager, joinedload, undefer, undefer_group

from refine.access.differences import Part, word_difference
from refine.errors import Refused, SealingError
from refine.extensions import agreed_now, db, require_agreement
from refine.models import AccessGrant, AgentMemory, AuditLog, RefinementSession, User
from refine.models.agent import PROMPTS, only_key_of
from refine.models.ledger.history import records_of_memory
from refine.models.ledger.image import contents_in
from refine.models.runs.access.asking_rules import AccessScope
from refine.rules.content import bounded_text

P = ParamSpec("P")
T = TypeVar("T")
Row = TypeVar("Row", AgentMemory, AuditLog, RefinementSession)

MAX_SEARCHED_CHARACTERS = 200
# The most records of a session or a memory that are shown.
MAX_RECORDS = 100
# Readers are warned when this little time is left.
_ENDING_SECONDS = 300


class NoAccess(Refused):
    """No grant lets this user read this, now."""

    def __init__(self, reason: str = "your access does not open this") -> None:
        super().__init__(reason)


@dataclass(frozen=True)
class LiveGrant:
    """A grant under which its user may read at this moment, with the purpose they stated."""

    id: uuid.UUID
    agent_id: int
    agent_name: str
    scope: AccessScope
    expires_at: datetime
    seconds_left: int
    purpose_text: str | None = field(repr=False)

    @property
    def is_ending(self) -> bool:
        return self.seconds_left <= _ENDING_SECONDS

    @property
    def minutes_left(self) -> int:
        return -(-self.seconds_left // 60)


@dataclass(frozen=True)
class Found:
    """A page of search results by id, how many there are in all, and its last id if more follow."""

    texts: dict[int, str] = field(repr=False)
    count: int
    after_id: int | None


@dataclass(frozen=True)
class TextChange:
    """How a record changed the text of one memory; for a merge, from sources to result."""

    record_id: int
    memory_id: int
    action: str
    operation: str
    source_ids: tuple[int, ...]
    before: str = field(repr=False)
    after: str = field(repr=False)
    # of a copy that stays: it took the tags of one that went
    took_tags: bool = False

    @property
    def parts(self) -> list[Part]:
        """The words of both texts. Slow, so use it once the access is no longer locked."""
        return word_difference(self.before, self.after)


@dataclass(frozen=True)
class Opened:
    """The contents of a memory, a record or a session: texts by name, and changes of memories."""

    texts: dict[str, str] = field(repr=False)
    changes: list[TextChange]


# -- the guard ------------------------------------------------------------------------------------


def _under_grant(
    read: Callable[Concatenate[AccessGrant, P], T],
) -> Callable[Concatenate[uuid.UUID, User, P], T]:
    @wraps(read)
    def guarded(grant_id: uuid.UUID, user: User, /, *args: P.args, **kwargs: P.kwargs) -> T:
        grant = _readable_grant(grant_id, user)
        with only_key_of(grant.agent_id):
            return read(grant, *args, **kwargs)

    return guarded


def _readable_grant(grant_id: uuid.UUID, user: User) -> AccessGrant:
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

# The loader options of a grant for ``purpose_of``.
WITH_PURPOSE = (
    undefer(AccessGrant.sealed_purpose),
    joinedload(AccessGrant.agent).undefer_group("prompts"),  # the digest covers them
)


def live_grants(user: User) -> list[LiveGrant]:
    user.require_genuine()
    granted = (
        select(AccessGrant)
        .options(*WITH_PURPOSE)
        .where(AccessGrant.user_id == user.id, AccessGrant.status == "granted")
        .order_by(AccessGrant.expires_at)
        .execution_options(populate_existing=True)  # a request may have been granted since
    )
    return [
        LiveGrant(
            id=grant.id,
            agent_id=grant.agent_id,
            agent_name=grant.agent.name,
            scope=grant.scope,
            expires_at=expires_at,
            seconds_left=max(0, int((expires_at - grant.read_at).total_seconds())),
            purpose_text=purpose_of(grant),
        )
        for grant in db.session.scalars(granted)
        if _is_live(grant, user) and (expires_at := grant.expires_at) is not None
    ]


def _is_live(grant: AccessGrant, user: User) -> bool:
    is_theirs = grant.user_id == user.id and grant.agent.id == grant.agent_id
    return grant.is_genuine and is_theirs and grant.permits_reading


def purpose_of(grant: AccessGrant) -> str | None:
    """Return the purpose that its user stated; None once the agent's key was destroyed."""
    try:
        return grant.purpose
    except SealingError:
        return None


# -- what an agent keeps, under its grant ---------------------------------------------------------


@_under_grant
def memories(grant: AccessGrant, ids: Sequence[int]) -> dict[int, str]:
    """Return the texts of the agent's memories among ``ids`` that the grant opens."""
    shown = {memory.id: memory.content for memory in _memories_of(grant, ids)}
    if grant.scope.is_narrow and not shown:
        raise NoAccess
    return _recorded(grant, "memories", shown, ids=[id_ for id_ in ids if id_ in shown])


@_under_grant
def contents(grant: AccessGrant, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return ``content`` and ``extra`` of these memories by id, as a full export has them."""
    shown = {
        memory.id: {"content": memory.content, "extra": memory.extra}
        for memory in _memories_of(grant, ids)
    }
    return _recorded(grant, "export", shown, ids=sorted(shown))


@_under_grant
def search(
    grant: AccessGrant,
    text: object,
    among: Select[Any],
    *,
    rows: int,
    after_id: int | None = None,
) -> Found:
    """Return a page of memories with ``text``; all matches are recorded: the count tells them."""
    _require_open(grant)
    wanted = bounded_text(text, field="search", limit=MAX_SEARCHED_CHARACTERS).casefold()
    mine = AgentMemory.agent_id == grant.agent_id, ~AgentMemory.is_erased
    all_of = db.session.scalars(among.where(*mine)).all()
    hits = {memory.id: memory.content for memory in all_of if wanted in memory.content.casefold()}
    ids = list(hits)
    end = rows + (ids.index(after_id) + 1 if after_id in hits else 0)
    texts = {id_: hits[id_] for id_ in ids[end - rows : end]}
    found = Found(texts, len(hits), ids[end - 1] if end < len(ids) else None)
    return _recorded(grant, "search", found, ids=ids, sealed={"search": wanted})


@_under_grant
def read_record(grant: AccessGrant, record_id: int) -> Opened:
    record = _of_agent(grant, AuditLog, record_id)
    texts = {name: text for name, text in record.sealed.items() if isinstance(text, str)}
    is_open = grant.scope.opens(session_id=_session_of(record))
    shown = _opened(grant, texts if is_open else {}, _changes(grant, record))
    ids = [change.memory_id for change in shown.changes]
    return _recorded(grant, "audit_record", shown, record_id=record_id, ids=ids)


@_under_grant
def versions(grant: AccessGrant, memory_id: int) -> Opened:
    """Return the text of one of the agent's memories, and how records changed it."""
    memory = _of_agent(grant, AgentMemory, memory_id)
    if memory.is_erased:
        raise NoAccess("the memory was erased for good: nobody can read it")
    changes = _changes_in(grant, records_of_memory(memory))
    is_open = grant.scope.opens(memory_id=memory_id)
    shown = _opened(
        grant,
        {"text": memory.content} if is_open else {},
        [change for change in changes if change.memory_id == memory_id],
    )
    record_ids = sorted({change.record_id for change in shown.changes})
    return _recorded(grant, "versions", shown, record_ids=record_ids, ids=[memory_id])


@_under_grant
def session(grant: AccessGrant, session_id: uuid.UUID) -> Opened:
    looked_at = _of_agent(grant, RefinementSession, session_id)
    # an undo is told by the page: its record has each change once more, backwards
    is_undo = AuditLog.data["operation"].as_string() == "undo"
    records = select(AuditLog).where(AuditLog.session_id == session_id, is_undo.is_not(True))
    said = {}
    if grant.scope.opens(session_id=session_id):
        said = {"consent_reply": looked_at.consent_reply, "summary": looked_at.summary}
    shown = _opened(
        grant,
        {name: text for name, text in said.items() if text is not None},
        _changes_in(grant, records.order_by(AuditLog.sequence.desc())),
    )
    ids = sorted({change.memory_id for change in shown.changes})
    return _recorded(grant, "session", shown, session_id=str(session_id), ids=ids)


@_under_grant
def prompts(grant: AccessGrant) -> dict[str, str | None]:
    """Return the agent's own prompts by name; None where the default is used."""
    _require_open(grant)
    shown: dict[str, str | None] = {name: getattr(grant.agent, name) for name in PROMPTS}
    return _recorded(grant, "prompts", shown, prompts=list(PROMPTS), ids=[])


# -- what the grant opens of it: AccessScope.opens decides ----------------------------------------


def _require_open(grant: AccessGrant) -> None:
    """NoAccess unless the grant opens everything."""
    if not grant.scope.opens():
        raise NoAccess


def _opened(grant: AccessGrant, texts: dict[str, str], changes: list[TextChange]) -> Opened:
    if grant.scope.is_narrow and not (texts or changes):
        raise NoAccess
    return Opened(texts, changes)


def _session_of(record: AuditLog) -> uuid.UUID | None:
    """Return the session that wrote a record: an undo may take back others together with it."""
    return None if record.data.get("operation") == "undo" else record.session_id


def _memories_of(grant: AccessGrant, ids: Sequence[int]) -> Iterable[AgentMemory]:
    mine = AgentMemory.agent_id == grant.agent_id, ~AgentMemory.is_erased
    opened = [id_ for id_ in ids if grant.scope.opens(memory_id=id_)]
    return db.session.scalars(select(AgentMemory).where(*mine, AgentMemory.id.in_(opened)))


def _changes_in(grant: AccessGrant, newest_first: Select[AuditLog]) -> list[TextChange]:
    records = db.session.scalars(
        newest_first.where(AuditLog.agent_id == grant.agent_id)
        .options(undefer_group("sealed"))
        .limit(MAX_RECORDS)
    ).all()
    return [change for record in reversed(records) for change in _changes(grant, record)]


def _of_agent(grant: AccessGrant, model: type[Row], id_: object) -> Row:
    found = db.session.get(model, id_)
    if found is None or (found.id, found.agent_id) != (id_, grant.agent_id):
        raise NoAccess("this does not belong to the agent")
    return found


def _recorded(grant: AccessGrant, what: str, shown: T, **record: Any) -> T:
    at = agreed_now()
    if grant.expires_at is None or grant.expires_at <= at:
        raise NoAccess("your access to these memories has ended")
    grant.record("viewed", user=grant.user, at=at, what=what, **record)
    db.session.commit()
    return shown


def _changes(grant: AccessGrant, record: AuditLog) -> list[TextChange]:
    """Return the changes that the grant opens; a merge without those of its sources that it does
    not.
    """
    session_id = _session_of(record)
    images = [
        image
        for image in sorted(contents_in(record.sealed), key=lambda each: each["before"] is not None)
        if grant.scope.opens(session_id=session_id, memory_id=image["id"])
    ]
    is_merge = record.action == "memory_refinement_consolidate"
    sources = [image for image in images if is_merge and image["before"] is not None]
    return [
        _change(record, image, sources if image["before"] is None else [image]) for image in images
    ]


def _change(record: AuditLog, image: dict[str, Any], sources: list[dict[str, Any]]) -> TextChange:
    return TextChange(
        record_id=record.id,
        memory_id=image["id"],
        action=record.action,
        operation=record.data.get("operation", ""),
        source_ids=tuple(source["id"] for source in sources if source is not image),
        before="\n\n".join(source["before"]["content"] for source in sources),
        after=image["after"]["content"],
        took_tags=record.data.get("duplicate_of") == image["id"],
    )
