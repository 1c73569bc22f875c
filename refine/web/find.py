"""The search field: finds everything that the user may see, by name, address, number or id."""

import re
from typing import Any
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


@pages.get("/find")
def page() -> str:
    text = request.args.get("q", "").strip()[:_MAX_CHARACTERS]
    return render_template("find/page.html", text=text, found=_found(text) if text else {})


def _found(text: str) -> dict[str, list[Any]]:
    number, uuid = id_in(text.removeprefix("#")), UUID(text) if _UUID.fullmatch(text) else None
    named = Agent.name.label("agent_name")
    queries: dict[str, Select[*tuple[Any, ...]]] = {
        "agents": select(Agent.id, Agent.name, Agent.model_id)
        .where(scope.in_scope(Agent.account_id), contains(text, Agent.name, Agent.model_id))
        .order_by(Agent.name, Agent.id),
        "users": select(User.email)
        .where(scope.in_scope(User.account_id), contains(text, User.email))
        .order_by(User.email),
    }
    if uuid is not None:
        queries["sessions"] = (
            select(RefinementSession.id, RefinementSession.created_at, named)
            .join(RefinementSession.agent)
            .where(scope.in_scope(Agent.account_id), RefinementSession.id == uuid)
        )
    if number is not None:
        queries["memories"] = (
            select(AgentMemory.id, AgentMemory.agent_id, named)
            .join(Agent, Agent.id == AgentMemory.agent_id)
            .where(scope.in_scope(Agent.account_id), AgentMemory.id == number)
        )
        queries["records"] = select(
            AuditLog.id, AuditLog.sequence, AuditLog.action, AuditLog.created_at
        ).where(scope.in_scope(AuditLog.account_id), AuditLog.id == number)
    if scope.user().site_admin:
        queries["accounts"] = (
            select(Account.slug, Account.name)
            .where(contains(text, Account.name, Account.slug))
            .order_by(Account.slug)
        )
    found = {name: db.session.execute(each.limit(_SHOWN)) for name, each in queries.items()}
    return {name: rows for name, each in found.items() if (rows := list(each))}
