"""The statements of an edit: see ``held``."""

from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    Boolean,
    Table,
    Text,
    all_,
    and_,
    any_,
    bindparam,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY

from refine.extensions.statements import Plain
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
HOLD = Plain(
    select(
        *(column for part in PARTS for column in part.values()),
        # the statements after it are planned once: planning takes longer than executing them
        func.set_config("plan_cache_mode", "force_generic_plan", True),
    )
    .select_from(
        _SESSIONS.join(_AGENTS, _AGENTS.c.id == _SESSIONS.c.agent_id)
        .join(_KEYS, _KEYS.c.id == _AGENTS.c.data_key_id)
        .join(_HEADS, ChainHead.is_of_agent(_AGENTS.c.id))
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
    _LOGS.c.session_id == bindparam("session_id"),
    _LOGS.c.action == any_(literal(list(MUTATIONS), ARRAY(Text))),
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
_new_id = select(ID_SEQUENCE.next_value()).where(bindparam("is_merge", type_=Boolean))
LOOK_UP = Plain(
    select(
        _made.scalar_subquery(),
        _copy_id.scalar_subquery(),
        select(RECORD_IDS.next_value()).scalar_subquery(),
        _new_id.scalar_subquery(),
        *COLUMNS,
        *(_ENTRIES.c[name] for name in (*ENTRY, "digest")),
    )
    .select_from(
        MEMORIES.outerjoin(
            _ENTRIES,
            and_(
                _ENTRIES.c.session_id == bindparam("session_id"),
                _ENTRIES.c.memory_id == MEMORIES.c.id,
                _ENTRIES.c.memory_id == any_(_IDS),  # otherwise all entries of the session are read
            ),
        )
    )
    .where(MEMORIES.c.agent_id == bindparam("agent_id"), MEMORIES.c.id == any_(_IDS))
    .order_by(MEMORIES.c.id)
    .with_for_update(of=MEMORIES)
)

FIGURES = ("stats", "mutation_count", "removed_tokens", "details_lost", "row_digest")
_WRITE = (
    update(_SESSIONS)
    .where(_SESSIONS.c.id == bindparam("entries_session_id"))
    .values({name: bindparam(f"session_{name}") for name in FIGURES})
    .add_cte(*APPENDED, ALTERED, COUNTED.columns().cte("counted"))
)
WRITE = Plain(_WRITE)
WRITE_WITH_NEW = Plain(_WRITE.add_cte(ADDED))
