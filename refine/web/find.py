"""One field that finds whatever the user may see, by name, address, number or id."""

import re
from typing import Any, NamedTuple
from uuid import UUID

from flask import Blueprint, render_template, request
from sqlalchemy import Select, select

from refine.extensions import db
from refine.models import Account, Agent, AgentMemory, AuditLog, RefinementSession, User
from refine.rules.ids import id_in
from refine.web import scope
from refine.web.lists import contains

pages = Blueprint("find", __name__)

_MAX_CHARACTERS = 100
_SHOWN = 20
_UUID = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")


class Found(NamedTuple):
    """The first things of each kind that match."""

    agents: list[Any]
    users: list[Any]
    sessions: list[Any]
    memories: list[Any]
    records: list[Any]
    accounts: list[Any]

    @property
    def is_empty(self) -> bool:
        return not any(self)


@pages.get("/find")
def page() -> str:
    """Show what the words, number or id of the URL's ``q`` are about."""
    text = request.args.get("q", "").strip()[:_MAX_CHARACTERS]
    return render_template("find/page.html", text=text, found=_found(text) if text else None)


def _found(text: str) -> Found:
    number, uuid = id_in(text.removeprefix("#")), UUID(text) if _UUID.fullmatch(text) else None
    agents = select(Agent.id, Agent.name, Agent.model_id).where(
        scope.owns(Agent.account_id), contains(text, Agent.name, Agent.model_id)
    )
    users = select(User.id, User.email).where(
        scope.owns(User.account_id), contains(text, User.email)
    )
    accounts = select(Account.slug, Account.name).where(contains(text, Account.name, Account.slug))
    return Found(
        agents=_rows(agents.order_by(Agent.name, Agent.id)),
        users=_rows(users.order_by(User.email)),
        sessions=_rows(_session(uuid)) if uuid is not None else [],
        memories=_rows(_memory(number)) if number is not None else [],
        records=_rows(_record(number)) if number is not None else [],
        accounts=_rows(accounts.order_by(Account.slug)) if scope.user().site_admin else [],
    )


def _rows(query: Select[*tuple[Any, ...]]) -> list[Any]:
    return list(db.session.execute(query.limit(_SHOWN)))


def _session(id_: UUID) -> Select[*tuple[Any, ...]]:
    return (
        select(RefinementSession.id, RefinementSession.created_at, Agent.name.label("agent_name"))
        .join(RefinementSession.agent)
        .where(scope.owns(Agent.account_id), RefinementSession.id == id_)
    )


def _memory(id_: int) -> Select[*tuple[Any, ...]]:
    return (
        select(AgentMemory.id, AgentMemory.agent_id, Agent.name.label("agent_name"))
        .join(Agent, Agent.id == AgentMemory.agent_id)
        .where(scope.owns(Agent.account_id), AgentMemory.id == id_)
    )


def _record(id_: int) -> Select[*tuple[Any, ...]]:
    return select(AuditLog.id, AuditLog.sequence, AuditLog.action, AuditLog.created_at).where(
        scope.owns(AuditLog.account_id), AuditLog.id == id_
    )
