"""Why a chain cannot be verified: which row of it, or of its owner, cannot even be loaded."""

from typing import Any

from rq.timeouts import BaseTimeoutException
from sqlalchemy import ColumnElement, select

from refine.errors import RefineError
from refine.extensions import db
from refine.models.attested_rows import rows_of_accounts, rows_of_agents
from refine.models.audit import AuditLog, ChainHead
from refine.models.audit.verification import ChainResult
from refine.models.ledger import AgentMemory

_BATCH = 500


def unverifiable(chain_id: int, error: Exception) -> ChainResult:
    """Return that a chain cannot be verified because of this error, and which row is to blame."""
    said = str(error) if isinstance(error, RefineError) else type(error).__name__
    unreadable = _first_unreadable(chain_id)
    problem = f"{unreadable} cannot be read" if unreadable else f"it cannot be verified: {said}"
    is_readable = _can_be_read(ChainHead, ChainHead.id == chain_id)
    name = db.session.get_one(ChainHead, chain_id).name if is_readable else f"chain {chain_id}"
    return ChainResult(name, records=0, memories=0, problem=problem, chain_id=chain_id)


def _first_unreadable(chain_id: int) -> str | None:
    """Return the name of the first row that cannot be loaded, of a chain and its owner."""
    if not _can_be_read(ChainHead, ChainHead.id == chain_id):
        return "the chain's head"
    head = db.session.get_one(ChainHead, chain_id)
    mine_of: dict[Any, ColumnElement[bool]] = {AuditLog: AuditLog.chain_id == chain_id}
    rows_of = rows_of_agents([head.agent_id]) if head.agent_id else {}
    rows_of |= rows_of_accounts([head.account_id]) if head.account_id else {}
    mine_of |= {kind: mine for kind, (_, mine) in rows_of.items()}
    if head.agent_id is not None:
        mine_of[AgentMemory] = AgentMemory.agent_id == head.agent_id
    for kind, mine in mine_of.items():
        if not _can_be_read(kind, mine):
            return f"{kind.__name__} {_first_unreadable_id(kind, mine)}"
    return None


def _first_unreadable_id(kind: Any, mine: ColumnElement[bool]) -> object:
    """Return the id of the first row that cannot be loaded; halves the rows until it is left."""
    ids = db.session.scalars(select(kind.id).where(mine).order_by(kind.id)).all()
    while len(ids) > 1:
        half = ids[: len(ids) // 2]
        is_later = _can_be_read(kind, mine, kind.id.between(half[0], half[-1]))
        ids = ids[len(half) :] if is_later else half
    return ids[0]


def _can_be_read(kind: Any, *mine: Any) -> bool:
    rows = select(kind).where(*mine).execution_options(yield_per=_BATCH, populate_existing=True)
    try:
        with db.session.begin_nested(), db.session.scalars(rows) as found:
            for _ in found:
                pass
    except BaseTimeoutException:
        raise
    except Exception:
        return False
    return True
