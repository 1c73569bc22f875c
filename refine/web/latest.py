"""The latest runs, as pages show them that are about more than runs."""

from typing import Any, Literal

from sqlalchemy import BigInteger, Select, bindparam

from refine.extensions.statements import plain_query
from refine.models import Agent, MemoryTask, RefinementSession
from refine.models.columns import account_parameter
from refine.web import scope, sessions, tasks

Kind = type[RefinementSession] | type[MemoryTask]
State = Literal["any", "live", "failed"]

_LISTS = {RefinementSession: sessions.of_all_accounts, MemoryTask: tasks.of_all_accounts}


def latest(
    kind: Kind, limit: int, *, state: State = "any", error: str = "", agent: Agent | None = None
) -> list[Any]:
    """Return what lists show of this page's latest runs, newest first.

    ``state``: ``failed`` are those that ended with an error; ``error``: with this one.
    """
    account_id, agent_id = scope.account_id(), agent.id if agent is not None else None
    query = _latest(
        kind,
        limit,
        state,
        has_error=bool(error),
        is_of_agent=agent_id is not None,
        is_of_account=account_id is not None,
    )
    return query.rows(account_id=account_id, agent_id=agent_id, error=error)


@plain_query
def _latest(
    kind: Kind, limit: int, state: State, *, has_error: bool, is_of_agent: bool, is_of_account: bool
) -> Select[*tuple[Any, ...]]:
    account_id = account_parameter(is_of_account=is_of_account)
    found = _LISTS[kind]().where(scope.is_of(account_id, Agent.account_id))
    if state == "live":
        found = found.where(kind.is_live)
    elif state == "failed":
        found = found.where(kind.has_ended_with_error())
    if has_error:
        found = found.where(kind.error_kind == bindparam("error"))
    if is_of_agent:
        found = found.where(kind.agent_id == bindparam("agent_id", type_=BigInteger))
    return found.limit(limit)
