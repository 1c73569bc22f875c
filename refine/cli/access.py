"""Access to memories: who asked which agent, and how it answered."""

import click
from sqlalchemy import select
from sqlalchemy.orm import joinedload

from refine.cli.context import application
from refine.cli.output import Field, print_list
from refine.cli.parameters import Narrowing, narrowed
from refine.extensions import db
from refine.models import AccessGrant
from refine.models.runs.access import STATUSES

_LISTED = (
    Field("id", lambda row: row.id, "id"),
    Field("created_at", lambda row: row.created_at, "requested (UTC)"),
    Field("user", lambda grant: grant.user.email, "user"),
    Field("agent_id", lambda row: row.agent_id),
    Field("agent", lambda grant: grant.agent.name, "agent"),
    Field("account", lambda grant: grant.account.slug, "account"),
    Field("reason", lambda row: row.reason, "reason"),
    Field("duration_minutes", lambda row: row.duration_minutes, "minutes"),
    Field("status", lambda grant: grant.current_status, "status"),
    Field("end_reason", lambda grant: grant.current_end_reason, "ended as"),
    Field("granted_at", lambda row: row.granted_at, "from (UTC)"),
    Field("expires_at", lambda row: row.expires_at),
    Field("ended_at", lambda grant: grant.current_ended_at, "until (UTC)"),
)


@click.group()
def access() -> None:
    """List requests for access to memories; only agents grant them."""


@access.command("list")
@click.option("--status", type=click.Choice(STATUSES), help="Only requests with this status.")
@narrowed
def access_list(narrowing: Narrowing, limit: int, as_json: bool, status: str | None) -> None:
    """List requests for access, newest first: who asked which agent, and how it answered.

    Purposes and answers are not shown: they are content.

    Example: refine access list --agent Wren --status granted
    """
    with application("access list"):
        asked = select(AccessGrant).options(
            *(joinedload(each) for each in (AccessGrant.user, AccessGrant.agent)),
            joinedload(AccessGrant.account),
        )
        asked = asked.where(
            *narrowing.conditions(
                AccessGrant.account_id, AccessGrant.agent_id, AccessGrant.created_at
            )
        )
        if status is not None:
            asked = asked.where(AccessGrant.current_status == status)
        newest = asked.order_by(AccessGrant.created_at.desc(), AccessGrant.id)
        print_list(
            _LISTED,
            db.session.scalars(newest.limit(limit + 1)).all(),
            as_json=as_json,
            limit=limit,
            empty="no requests",
        )
