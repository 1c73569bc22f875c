"""The search field: finds agents, sessions, memories and records by name, number or id."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from flask import redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import Row, Select, func, select

from refine.extensions import db
from refine.models import Account, Agent, AgentMemory, AuditLog, RefinementSession
from refine.models.audit import ChainHead
from refine.models.columns import id_in
from refine.web import scope
from refine.web.lists import contains, id_begins
from refine.web.words import action

pages = scope.area("find")

_MAX_CHARACTERS = 100
_SHOWN = 20


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
    sessions = _of_agents(RefinementSession.id).where(id_begins(RefinementSession.id, text))
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
