"""Small valid things; each call makes another one, in the database's session, flushed."""

import functools
import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pyotp
from argon2 import PasswordHasher
from sqlalchemy import select

from refine import clock
from refine.extensions import database_now, db
from refine.models import (
    AccessGrant,
    Account,
    Agent,
    AgentMemory,
    AuditLog,
    Endpoint,
    MemoryTask,
    RefinementSession,
    SecondFactor,
    User,
)
from refine.models.runs.access.asking_rules import AccessTerms
from refine.models.runs.run import LIVE, LOST_AFTER
from refine.models.runs.session.session import LOOP_EDITS
from refine.models.runs.task import EndStatus
from refine.rules.consent import Answer, answer_in

# The records of edits that a session makes.
EDITS = ("memory_refinement_dedup", *LOOP_EDITS)

_number = itertools.count(1)
_MARKS = ".,;:!?-*()[]{}"

PASSWORD = "correct horse battery"
# Argon2 is slow by design; a hash of low cost is checked just as strictly, and fast.
CHEAP_HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def account(**fields: Any) -> Account:
    n = next(_number)
    return _added(Account(**{"name": f"Account {n}", "slug": f"account-{n}", **fields}))


def user(**fields: Any) -> User:
    """A user who joined a year ago."""
    fields.setdefault("created_at", clock.now() - timedelta(days=365))
    fields.setdefault("account", account() if "account" not in fields else fields["account"])
    made = User(**{"email": f"user{next(_number)}@example.org", **fields})
    made.password_hash = password_hash()
    return _added(made)


def app_of(owner: User) -> str:
    """The key of an authenticator app that the user added a minute ago."""
    at = clock.now() - timedelta(minutes=1)
    key = SecondFactor.begin_app(owner)
    SecondFactor.confirm_app(owner, code_of(key, at), at)
    return key


def code_of(key: str, at: datetime | None = None) -> str:
    return pyotp.TOTP(key).at(at or clock.now())


def agent(*contents: str, **fields: Any) -> Agent:
    """An agent with these contents as core memories."""
    fields.setdefault("account", account() if "account" not in fields else fields["account"])
    made = _added(Agent(**{"name": f"Agent {next(_number)}", "model_id": "test/model", **fields}))
    _memories(made, contents)
    return made


def memory(owner: Agent, content: str | None = None, **fields: Any) -> AgentMemory:
    content = f"a memory of the agent {mark(next(_number))}" if content is None else content
    return _added(AgentMemory(agent=owner, content=content, **fields))


def ledger(owner: Agent, *tokens: int, **fields: Any) -> list[AgentMemory]:
    """Core memories of exactly these many tokens, all of them different; see ``text_of``."""
    return _memories(owner, [text_of(count) for count in tokens], **fields)


def text_of(tokens: int) -> str:
    """A text of exactly so many tokens, different from every other in its punctuation alone.

    All these texts say the same, so that each of them carries the others.
    """
    start = mark(next(_number))
    room = 4 * tokens - len(start)
    return start + ("abcdefg " * (room // 8)).strip().rjust(room, ".")


def mark(number: int) -> str:
    """The number in punctuation, which is no word and no detail."""
    digits = ""
    while number:
        number, digit = divmod(number, len(_MARKS))
        digits += _MARKS[digit]
    return digits


def session(owner: Agent | None = None, **fields: Any) -> RefinementSession:
    """A running session, its snapshot taken, committed."""
    owner = owner if owner is not None else agent(*(text_of(25) for _ in range(20)))
    started = RefinementSession.start(owner, **fields)
    db.session.commit()
    return started


def ended(
    owner: Agent,
    status: str = "completed",
    reason: str = "so it ended",
    *,
    at: datetime | None = None,
    error_kind: str | None = None,
    **fields: Any,
) -> RefinementSession:
    """A weekly session of this agent that ended so, without having begun."""
    at = at or clock.now()
    made = RefinementSession.queue(owner, "weekly", at=at)
    for name, value in fields.items():
        setattr(made, name, value)
    made.finish(status, reason, error_kind=error_kind, at=at)  # type: ignore[arg-type]
    return made


def fall_silent(
    run: RefinementSession | MemoryTask | AccessGrant,
    span: timedelta = LOST_AFTER + timedelta(seconds=1),
) -> None:
    """Set the run's last heartbeat so far back, by the database's clock."""
    run.heartbeat_at = database_now() - span
    db.session.flush()


def grant(owner: Agent, **fields: Any) -> AccessGrant:
    """A request to read this agent's memories."""
    fields.setdefault("user_id", user(account=owner.account).id)
    usual = {"reason": "agent_asked", "purpose": "to see why it declined", "duration_minutes": 60}
    return _added(
        AccessGrant(
            agent=owner, account=owner.account, model_id=owner.model_id, **{**usual, **fields}
        )
    )


def live_grant(owner: Agent, reader: User, reply: str = "YES", **fields: Any) -> AccessGrant:
    """A grant under which this user may read now; asked for, and the agent said yes."""
    usual = {"reason": "agent_asked", "purpose": "to see why it declined", "duration_minutes": 60}
    made = AccessGrant.request(owner, reader, AccessTerms.checked(**{**usual, **fields}))
    assert made.claim()
    made.settle(reply, agreed=answer_in(reply) is Answer.YES, generation_id="gen-1")
    return made


def endpoint(account: Account, url: str = "https://example.org/hook", *kinds: str) -> Endpoint:
    """A webhook of this account, for events of these kinds or all."""
    made, _ = Endpoint.add(account, url, kinds, by={"by": "command line"})
    return made


def entry(owner: Agent, content: str | None = None, **fields: Any) -> AgentMemory:
    """An entry of the agent's journal, written an hour ago."""
    at = clock.now() - timedelta(hours=1)
    written = {"created_at": at, "recorded_at": at, "memory_type": "journal"}
    return memory(owner, content, **{**written, **fields})


def extraction(owner: Agent, *contents: str, **fields: Any) -> MemoryTask:
    """A conversation of this agent in which its user said these things, waiting."""
    said = [{"role": "user", "content": content} for content in contents or ("hello",)]
    task = MemoryTask.extract(owner, said, **fields)
    db.session.flush()
    return task


def live_tasks(owner: Agent) -> list[MemoryTask]:
    """The agent's queued and running tasks, the oldest first."""
    return list(
        db.session.scalars(
            select(MemoryTask)
            .where(MemoryTask.agent_id == owner.id, MemoryTask.status.in_(LIVE))
            .order_by(MemoryTask.created_at, MemoryTask.id)
            .execution_options(populate_existing=True)
        )
    )


def erase(owner: Agent) -> None:
    """Destroy the agent's data key, and with it all that it sealed."""
    owner.erase()
    db.session.flush()


def ended_task(
    owner: Agent,
    kind: str = "extraction",
    status: EndStatus = "completed",
    *,
    at: datetime | None = None,
    reason: str | None = None,
    **fields: Any,
) -> MemoryTask:
    """A reflection of this agent, or the reading of a conversation, that ended so."""
    at = at or clock.now()
    task = (
        extraction(owner, at=at)
        if kind == "extraction"
        else MemoryTask.reflect(owner, "daily", at=at)
    )
    error_kind = fields.pop("error_kind", None)
    for name, value in {"started_at": at, **fields}.items():
        setattr(task, name, value)
    task.finish(status, reason, error_kind=error_kind, at=at)
    db.session.flush()
    return task


def journal(owner: Agent) -> list[AgentMemory]:
    """The agent's journal, expired entries too, oldest first."""
    return list(
        db.session.scalars(
            select(AgentMemory)
            .where(
                AgentMemory.agent_id == owner.id,
                AgentMemory.memory_type == "journal",
                AgentMemory.discarded_at.is_(None),
            )
            .order_by(AgentMemory.created_at, AgentMemory.id)
        )
    )


def records(owner: Agent) -> list[AuditLog]:
    """The agent's audit records, oldest first."""
    return list(
        db.session.scalars(
            select(AuditLog).where(AuditLog.agent_id == owner.id).order_by(AuditLog.sequence)
        )
    )


def _memories(owner: Agent, contents: Sequence[str], **fields: Any) -> list[AgentMemory]:
    """Many at once, in order, with two questions to the database."""
    ids = AgentMemory.next_ids(len(contents))
    made = [
        AgentMemory(id=id_, agent=owner, content=content, **fields)
        for id_, content in zip(ids, contents, strict=True)
    ]
    db.session.add_all(made)
    db.session.flush()
    return made


@functools.cache
def password_hash() -> str:
    return CHEAP_HASHER.hash(PASSWORD)


def _added(row: Any) -> Any:
    db.session.add(row)
    db.session.flush()
    return row
