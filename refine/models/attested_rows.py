"""Which attested rows the chain of an agent, or of an account, records."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, and_, select

from refine.models.agent import Agent
from refine.models.attested import Attested
from refine.models.audit import Verification
from refine.models.clients import ApiToken
from refine.models.people import Account, Invitation, SignIn, User
from refine.models.runs.access import AccessGrant
from refine.models.runs.session import RefinementSession

# The owner of a kind's rows, and which of them are meant.
OwnedRows = dict[type[Attested], tuple[Any, ColumnElement[bool]]]


def attested_kinds() -> list[type[Attested]]:
    """Return every kind of row with a digest."""
    return [*dict.fromkeys((*rows_of_accounts(()), *rows_of_agents(()))), Verification]


def rows_of_agents(ids: Collection[int]) -> OwnedRows:
    """Return which rows the chains of these agents record, by kind."""
    owner_ids: dict[type[Attested], Any] = {
        Agent: Agent.id,
        RefinementSession: RefinementSession.agent_id,
        AccessGrant: AccessGrant.agent_id,
        ApiToken: ApiToken.agent_id,
    }
    return {kind: (owner_id, owner_id.in_(ids)) for kind, owner_id in owner_ids.items()}


def rows_of_accounts(ids: Collection[int]) -> OwnedRows:
    """Return which rows the chains of these accounts record, by kind."""
    users = select(User.id).where(User.account_id.in_(ids))
    their = {
        kind: select(User.account_id).where(User.id == kind.user_id).scalar_subquery()
        for kind in (Invitation, SignIn)
    }
    mine = and_(ApiToken.account_id.in_(ids), ApiToken.agent_id.is_(None))
    return {
        Account: (Account.id, Account.id.in_(ids)),
        User: (User.account_id, User.account_id.in_(ids)),
        ApiToken: (ApiToken.account_id, mine),
        Invitation: (their[Invitation], Invitation.user_id.in_(users)),
        SignIn: (their[SignIn], SignIn.user_id.in_(users)),
    }
