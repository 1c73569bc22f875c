"""An installation to measure: accounts, people, tokens, and agents with everything they have."""

import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Sequence, func, select

from bench import bulk
from bench.measuring import tell
from bench.temporary import settings_for, temporary_database, temporary_folder
from refine import clock
from refine.extensions import db
from refine.models import (
    AccessGrant,
    Account,
    Agent,
    AgentMemory,
    ApiToken,
    AuditLog,
    ChainHead,
    PeriodicWork,
    SignIn,
    User,
    Verification,
)
from refine.models.agent import MAX_CORE_TOKEN_BUDGET
from refine.models.audit import Event
from refine.models.keys import content_key_place
from refine.models.ledger.image import Change, recorded
from refine.models.runs.access.asking_rules import MIN_MINUTES
from refine.sealing import DataKey, Place

ACCOUNTS = 20
JOURNAL_ENTRIES = 20

# The column to whose rows memories' contents are bound.
CONTENT = "agent_memories.content"


def opened(key: DataKey, id_: int, content: bytes, content_key: bytes) -> str:
    """Return the text of a row, with its agent's key."""
    return key.unwrap(content_key, content_key_place(id_)).open(content, Place(CONTENT, id_))


_MODEL = "rehearsal/bench"
_RECORD_IDS = Sequence("audit_logs_id_seq")
_STORED_AT_ONCE = 1_000
_MARKS = ".,;:!?-*()[]{}"
# Every text says the same in these words, so that rules about details refuse no edit.
_WORDS = "the bees moved into the old hive behind the library and stayed there over the winter"


@dataclass(frozen=True)
class Size:
    """The size of an installation, and the number of measurements."""

    agents: int = 1_000
    records_each: int = 500
    memories_each: int = 10
    ledgers: tuple[int, int] = (100, 5_000)
    tidied_agents: int = 50
    imported: int = 20_000
    at_once: int = 50
    repetitions: int = 9
    times_asked: int = 100


DEFAULT = Size()
LARGER = 10
TINY = Size(
    agents=5,
    records_each=20,
    ledgers=(40, 60),
    tidied_agents=4,
    imported=20,
    at_once=2,
    repetitions=1,
    times_asked=1,
)


@dataclass(frozen=True)
class World:
    """The added rows, by id, and the secrets to ask for them."""

    size: Size
    account_ids: tuple[int, ...]
    bulk_agent_id: int
    """An agent with many records; no rows of its memories are genuine."""
    floor_agent_id: int
    """An agent whose rows floors may change as they like."""
    tidied_ids: tuple[int, ...]
    """Agents with a ledger of the smaller size, and a chain that can be verified."""
    large_id: int
    """The agent with a ledger of the larger size."""
    reader_id: int
    """An agent with a current journal."""
    grant_id: uuid.UUID
    """An access that has ended."""
    sign_in: str
    platform_token: str
    token: str
    """Of the reader."""


@contextmanager
def seeded(size: Size) -> Iterator[World]:
    """Yield a world of this size, in a temporary database with a Valkey of its own."""
    with (
        temporary_folder() as folder,
        # a disk that others use as well would hide what is compared
        temporary_database(_settings(folder), durable=False, valkey=True),
    ):
        began = time.monotonic()
        world = _seed(size)
        tell(f"added {size.agents:,} agents, {size.agents * size.records_each:,} records", began)
        yield world


def _settings(folder: Path) -> Any:
    unlimited = {"REFINE_API_READS_PER_MINUTE": "1000000", "REFINE_CONTEXT_TOKENS": "100000000"}
    return settings_for(folder, REFINE_REHEARSAL="1", **unlimited)


def grow(world: World, agents: int) -> tuple[()]:
    """Add equal agents up to this number; nothing is measured."""
    accounts = [db.session.get_one(Account, id_) for id_ in world.account_ids]
    after = bulk.add_agents(accounts, agents - world.size.agents)
    bulk.fill(after, world.size.records_each, world.size.memories_each)
    return ()


def _seed(size: Size) -> World:
    accounts = [Account.create(f"Account {number}") for number in range(1, ACCOUNTS + 1)]
    special = Account.create("Ledgers")
    user = _site_admin(special)
    sign_in = SignIn.begin(user).secret
    _, platform_token = ApiToken.mint(account=accounts[0])
    _note_clock()
    db.session.commit()
    account_ids = tuple(account.id for account in accounts)
    special_id, user_id = special.id, user.id
    after = bulk.add_agents(accounts, size.agents)
    bulk.fill(after, size.records_each, size.memories_each)
    first_id, second_id = db.session.scalars(
        select(Agent.id).where(Agent.id > after).order_by(Agent.id).limit(2)
    ).all()
    small, large = size.ledgers
    tidied = [add_agent(special_id, texts(small)) for _ in range(size.tidied_agents)]
    for agent_id in tidied:
        _add_records(agent_id, size.records_each)
    large_id = add_agent(special_id, texts(large))
    reader_id = add_agent(special_id, texts(small))
    token = _with_journal(reader_id)
    bulk.settle()
    return World(
        size=size,
        account_ids=account_ids,
        bulk_agent_id=second_id,
        floor_agent_id=first_id,
        tidied_ids=tuple(tidied),
        large_id=large_id,
        reader_id=reader_id,
        grant_id=_add_grant(reader_id, user_id),
        sign_in=sign_in,
        platform_token=platform_token,
        token=token,
    )


def add_agent(account_id: int, contents: Iterable[str], **fields: Any) -> int:
    """Add an agent with these core memories, all genuine; return its id, committed."""
    account = db.session.get_one(Account, account_id)
    usual = {"name": "Tidy", "model_id": _MODEL, "core_token_budget": MAX_CORE_TOKEN_BUDGET}
    agent = Agent(account=account, **{**usual, **fields})
    db.session.add(agent)
    db.session.flush()
    agent_id = agent.id
    _add_memories(agent, contents)
    return agent_id


def texts(count: int, *, first: int = 1) -> list[str]:
    """Return this many different texts of some 90 characters with the same meaning."""
    return [f"{_mark(number)} {_WORDS}" for number in range(first, first + count)]


def _mark(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, len(_MARKS))
        digits += _MARKS[digit]
    return digits


def _add_memories(agent: Agent, contents: Iterable[str], **fields: Any) -> None:
    agent_id, listed = agent.id, list(contents)
    for first in range(0, len(listed), _STORED_AT_ONCE):
        some = listed[first : first + _STORED_AT_ONCE]
        owner = db.session.get_one(Agent, agent_id)
        for id_, content in zip(AgentMemory.next_ids(len(some)), some, strict=True):
            db.session.add(AgentMemory(id=id_, agent=owner, content=content, **fields))
        db.session.commit()
        db.session.expunge_all()


def _with_journal(agent_id: int) -> str:
    """Give the agent a journal of the last days; return a token of the agent."""
    agent = db.session.get_one(Agent, agent_id)
    _, secret = ApiToken.mint(account=agent.account, agent=agent)
    _add_memories(agent, texts(JOURNAL_ENTRIES), **_written(timedelta(days=2)))
    return secret


def _written(ago: timedelta) -> dict[str, Any]:
    at = clock.now() - ago
    return {"memory_type": "journal", "created_at": at, "recorded_at": at, "updated_at": at}


def _site_admin(account: Account) -> User:
    user = User(account=account, email="bench@example.org", site_admin=True)
    user.password_hash = "no password fits"  # noqa: S105
    db.session.add(user)
    db.session.flush()
    return user


def _add_grant(agent_id: int, user_id: int) -> uuid.UUID:
    agent = db.session.get_one(Agent, agent_id)
    at = clock.now() - timedelta(days=3)
    grant = AccessGrant(
        agent=agent,
        user_id=user_id,
        model_id=_MODEL,
        status="ended",
        end_reason="expired",
        reason="agent_asked",
        purpose="to see what a page costs",
        duration_minutes=MIN_MINUTES,
        granted_at=at,
        expires_at=at + timedelta(minutes=MIN_MINUTES),
        ended_at=at + timedelta(minutes=MIN_MINUTES),
    )
    db.session.add(grant)
    db.session.commit()
    return grant.id


def _note_clock() -> None:
    """The clock ticks and verifies, so that no page alarms."""
    at = clock.now()
    PeriodicWork.note("tick", at)
    Verification.begin("clock", at).end(at)


def _add_records(agent_id: int, count: int) -> None:
    """Append genuine records: first one for each memory, then others."""
    agent = db.session.get_one(Agent, agent_id)
    head = ChainHead.all_locked([agent.chain_owner])[0][agent.chain_owner]
    key = agent.data_key()
    ids = db.session.scalars(
        select(_RECORD_IDS.next_value()).select_from(func.generate_series(1, count))
    ).all()
    memories = list(db.session.scalars(agent.ledger.core()))
    link = head.hash
    for number, id_ in enumerate(ids):
        memory = memories[number] if number < len(memories) else None
        changes = [Change(memory.id, None, memory.image())] if memory is not None else []
        data, sealed = recorded(changes, key)
        record = AuditLog(
            id=id_,
            chain_id=head.id,
            sequence=head.sequence + number + 1,
            account_id=agent.account_id,
            agent_id=agent.id,
            action="memory_saved" if memory is not None else "refinement_queued",
            auditable_type="AgentMemory" if memory is not None else None,
            auditable_id=str(memory.id) if memory is not None else None,
            data={**data, "mass_after": number},
            created_at=_moment(number, count),
        )
        keys = {change.memory_id: change.content_key for change in changes}
        event = Event(record.action, sealed=sealed, content_keys=keys)
        record.sealed_text = event.sealed_for(agent.chain, id_)
        record.hash = link = record.link(link)
        db.session.add(record)
    db.session.flush()
    head.sequence, head.hash = head.sequence + count, link
    db.session.commit()
    db.session.expunge_all()


def _moment(number: int, count: int) -> datetime:
    return clock.now() - timedelta(days=700) * (1 - number / count)
