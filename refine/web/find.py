"""The search field: finds agents, sessions, memories and records by name, number or id."""

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from flask import Blueprint, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import Row, Select, func, select

from refine.extensions import db
from refine.models import Account, Agent, AgentMemory, AuditLog, RefinementSession
from refine.models.audit import ChainHead
from refine.models.columns import id_in
from refine.web import scope
from refine.web.lists import contains
from refine.web.words import action

pages = Blueprint("find", __name__)

_MAX_CHARACTERS = 100
_SHOWN = 20
_ID_DIGITS = 32
# So many sessions begin alike with fewer that none is meant.
_MIN_DIGITS = 4


class Found(NamedTuple):
    url: str
    name: str
    agent: str | None
    account: str | None


@pages.get("/find")
def page() -> ResponseReturnValue:
    text = request.args.get("q", "").strip()[:_MAX_CHARACTERS]
    found = list(_found(text)) if text else []
    if len(found) == 1:
        return redirect(found[0].url, 303)
    return render_template("find/page.html", text=text, found=found, most=_SHOWN)


def _found(text: str) -> Iterator[Found]:
    number = id_in(text.removeprefix("#"))
    if not text.startswith("#"):
        for row in _rows(_of_agents().where(contains(text, Agent.name) | (Agent.id == number))):
            url = url_for("agent.page", agent_id=row.agent_id)
            yield Found(url, f"Agent {row.agent_name}", None, row.account_name)
    if (ids := _ids_beginning(text)) is not None:
        sessions = _of_agents(RefinementSession.id).where(RefinementSession.id.between(*ids))
        for row in _rows(sessions.join(RefinementSession)):
            url = url_for("sessions.page", session_id=row.id)
            yield Found(url, f"Session {row.id}", row.agent_name, row.account_name)
    if number is not None:
        yield from _numbered(number)


def _numbered(number: int) -> Iterator[Found]:
    memories = _of_agents().join(AgentMemory).where(AgentMemory.id == number)
    for row in _rows(memories):
        url = url_for("ledger.memory_page", agent_id=row.agent_id, memory_id=number)
        yield Found(url, f"Memory #{number}", row.agent_name, row.account_name)
    agent, account = Agent.name.label("agent_name"), Account.name.label("account_name")
    # by chain, as there is an index of that
    records = select(AuditLog.id, AuditLog.action, agent, account).select_from(ChainHead)
    records = records.join(AuditLog, AuditLog.chain_id == ChainHead.id)
    records = records.outerjoin(Agent, Agent.id == AuditLog.agent_id)
    records = records.outerjoin(Account, Account.id == AuditLog.account_id)
    mine = AuditLog.sequence == number, scope.in_scope(AuditLog.account_id)
    for row in _rows(records.where(*mine).order_by(AuditLog.id.desc())):
        url = url_for("audit.record", record_id=row.id)
        name = f"Record #{number}, {action(row.action)}"
        yield Found(url, name, row.agent_name, row.account_name)


def _of_agents(*columns: Any) -> Select[*tuple[Any, ...]]:
    agent, account = Agent.name.label("agent_name"), Account.name.label("account_name")
    found = select(Agent.id.label("agent_id"), agent, account, *columns).join(Agent.account)
    return found.where(scope.in_scope(Agent.account_id)).order_by(func.lower(Agent.name), Agent.id)


def _rows(query: Select[*tuple[Any, ...]]) -> list[Row[Any]]:
    return list(db.session.execute(query.limit(_SHOWN)))


def _ids_beginning(text: str) -> tuple[UUID, UUID] | None:
    """Return the first and the last session id that begin so."""
    digits = text.replace("-", "").lower()
    if not _MIN_DIGITS <= len(digits) <= _ID_DIGITS or not set(digits) <= set("0123456789abcdef"):
        return None
    return UUID(digits.ljust(_ID_DIGITS, "0")), UUID(digits.ljust(_ID_DIGITS, "f"))
