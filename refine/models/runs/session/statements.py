"""The statements of an edit: see ``held``."""

from typing import Any, cast

from sqlalchemy import BigInteger, Table, all_, and_, any_, bindparam, func, select, update
from sqlalchemy.dialects.postgresql import ARRAY

from refine.models.agent import Agent
from refine.models.attested import attested_columns
from refine.models.audit import AuditLog, ChainHead
from refine.models.audit.record import APPENDED, RECORD_IDS
from refine.models.keys import WrappedKey
from refine.models.ledger.kept import kept_core
from refine.models.ledger.row import ID_SEQUENCE
from refine.models.ledger.stored import ADDED, ALTERED, COLUMNS, MEMORIES
from refine.models.runs.session.breaker import MUTATIONS
from refine.models.runs.session.entry import COUNTED, ENTRY, SessionEntry
from refine.models.runs.session.session import RefinementSession

_AGENTS, _HEADS = cast(Table, Agent.__table__), cast(Table, ChainHead.__table__)
_KEYS, _LOGS = cast(Table, WrappedKey.__table__), cast(Table, AuditLog.__table__)
_SESSIONS = cast(Table, RefinementSession.__table__)
_ENTRIES = cast(Table, SessionEntry.__table__)

# What ``held`` reads of each row, by attribute.
PARTS: list[dict[str, Any]] = [
    attested_columns(RefinementSession),
    {
        **attested_columns(Agent),
        "core_tokens": _AGENTS.c.core_tokens,
        "ledger_version": _AGENTS.c.ledger_version,
    },
    dict(_HEADS.c.items()),
    {"wrapped": _KEYS.c.wrapped, "wrapped_by": _KEYS.c.wrapped_by},
]
HOLD = (
    select(*(column for part in PARTS for column in part.values()))
    .select_from(
        _SESSIONS.join(_AGENTS, _AGENTS.c.id == _SESSIONS.c.agent_id)
        .join(_KEYS, _KEYS.c.id == _AGENTS.c.data_key_id)
        .join(_HEADS, _HEADS.c.agent_id == _AGENTS.c.id)
    )
    .where(
        _SESSIONS.c.id == bindparam("session_id"),
        _SESSIONS.c.status == "running",
        _SESSIONS.c.lease_token == bindparam("lease_token"),
    )
    # the agent first, as everywhere
    .with_for_update(key_share=True, of=[_AGENTS, _SESSIONS, _HEADS])
)

_IDS = bindparam("ids", type_=ARRAY(BigInteger))
_made = select(func.count()).where(
    _LOGS.c.session_id == bindparam("session_id"), _LOGS.c.action.in_(MUTATIONS)
)
_copy = MEMORIES.alias("copy")
_copy_id = (
    select(_copy.c.id)
    .where(
        _copy.c.agent_id == bindparam("agent_id"),
        _copy.c.content_hash == bindparam("content_hash"),
        kept_core(_copy.c.memory_type, _copy.c.discarded_at),
        _copy.c.id != all_(_IDS),
    )
    .limit(1)
)
LOOK_UP = (
    select(
        *COLUMNS,
        *(_ENTRIES.c[name].label(f"entry_{name}") for name in (*ENTRY, "digest")),
        _made.scalar_subquery().label("made"),
        _copy_id.scalar_subquery().label("copy_id"),
        select(RECORD_IDS.next_value()).scalar_subquery().label("record_id"),
    )
    .select_from(
        MEMORIES.outerjoin(
            _ENTRIES,
            and_(
                _ENTRIES.c.memory_id == MEMORIES.c.id,
                _ENTRIES.c.session_id == bindparam("session_id"),
            ),
        )
    )
    .where(MEMORIES.c.agent_id == bindparam("agent_id"), MEMORIES.c.id == any_(_IDS))
    .order_by(MEMORIES.c.id)
    .with_for_update(of=MEMORIES)
)
LOOK_UP_FOR_MERGE = LOOK_UP.add_columns(
    select(ID_SEQUENCE.next_value()).scalar_subquery().label("new_memory_id")
)

FIGURES = ("id", "stats", "mutation_count", "removed_tokens", "details_lost", "row_digest")
WRITE = (
    update(_SESSIONS)
    .where(_SESSIONS.c.id == bindparam("session_id"))
    .values({name: bindparam(f"session_{name}") for name in FIGURES})
    .add_cte(*APPENDED, ALTERED, COUNTED.columns().cte("counted"))
)
WRITE_WITH_NEW = WRITE.add_cte(ADDED)
