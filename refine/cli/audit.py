"""The audit log: listed, verified, anchored."""

import json
import uuid
from itertools import islice
from typing import Any, TextIO

import click
from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.orm import joinedload

from refine import clock
from refine.cli.completion import actors_like
from refine.cli.context import application
from refine.cli.output import console
from refine.cli.parameters import Columns, lists
from refine.errors import NotFound
from refine.extensions import db, is_read_only
from refine.models import AuditLog, User, Verification
from refine.models.audit.anchor import anchor, missing_since, read_anchor
from refine.models.audit.kinds import ACTIONS_OF_KIND
from refine.models.exported import EXPORTED
from refine.models.integrity import note_verified, verify_all
from refine.models.people.acting import OTHER_ACTORS, is_by
from refine.rules.quantities import plural

# There may be a million chains.
_NOTED_AT_ONCE = 200
_NOT_STORED = "refine: the outcome could not be stored: the database is read-only"


_HEADINGS = {
    "id": "id",
    "at": "at (UTC)",
    "action": "action",
    "agent": "agent",
    "by": "by",
    "subject_type": "about",
    "subject_id": "its id",
}


def _row(record: AuditLog) -> dict[str, Any]:
    """Return a record as the dashboard exports it, with names."""
    return {
        **{name: value_of(record) for name, value_of in EXPORTED.items()},
        "agent": record.agent.name if record.agent is not None else None,
        "by": record.user.email if record.user is not None else record.data.get("by"),
    }


@click.group()
def audit() -> None:
    """List and verify the audit log, the append-only record of every change."""


@audit.command("list")
@click.option(
    "--kind",
    type=click.Choice(tuple(ACTIONS_OF_KIND)),
    help="Only records of this kind (the tabs of the dashboard's Audit page).",
)
@click.option("--action", help="Only records of this action, such as memory_access_granted.")
@click.option(
    "--who",
    shell_complete=actors_like,
    help=f"Only records by this user (e-mail address), or by: {', '.join(OTHER_ACTORS)}.",
)
@click.option("--session", "session_id", type=click.UUID, help="Only records of this session.")
@lists(
    Columns(AuditLog.account_id, AuditLog.agent_id, AuditLog.created_at, AuditLog.id),
    _row,
    _HEADINGS,
    empty="no records",
)
def audit_list(
    kind: str | None, action: str | None, who: str | None, session_id: uuid.UUID | None
) -> Select[Any]:
    """List records, newest first: what was done, when, and who did it. Contents stay sealed.

    The dashboard's *Audit* exports all records; this lists at most 10,000.

    Example: refine audit list --kind settings --who ada@example.org --since 2026-03-01 --json
    """
    records = select(AuditLog).options(joinedload(AuditLog.agent), joinedload(AuditLog.user))
    if kind is not None:
        records = records.where(AuditLog.action.in_(ACTIONS_OF_KIND[kind]))
    if who is not None:
        records = records.where(_is_by(who))
    if action is not None:
        records = records.where(AuditLog.action == action)
    if session_id is not None:
        records = records.where(AuditLog.session_id == session_id)
    return records


def _is_by(who: str) -> ColumnElement[bool]:
    """Return the condition; NotFound for a name that nobody has."""
    if "@" in who or who.isdigit():
        return AuditLog.user_id == User.named(who).id
    name = who.replace("-", " ")  # as shells complete it
    if name not in OTHER_ACTORS:
        raise NotFound(
            f"no records are by {who!r}: give the e-mail address of a user, or one of "
            f"{', '.join(OTHER_ACTORS)}"
        )
    return is_by(name, None)


@audit.command("verify")
@click.option(
    "--anchor",
    "anchor_file",
    type=click.File(encoding="utf-8"),
    help="Also compare with this output of `refine audit anchor`, to detect removed records.",
)
def audit_verify(anchor_file: TextIO | None) -> int:
    """Verify every chain, then compare all memories and protected rows with their records.

    If anything was edited, removed, added or moved outside the application, print the first problem
    and exit with code 1. The outcome is stored: the dashboard, /metrics and /readyz show it. On a
    read-only replica it is only printed.
    """
    with application("audit verify"):
        anchored = read_anchor(anchor_file.read()) if anchor_file is not None else None
        outcome = _verify(anchored)
        if outcome.first_problem is not None:
            raise click.ClickException(outcome.first_problem)
        against = f"; nothing is missing since {anchored['at'][:19]}Z" if anchored else ""
        console.print(
            f"verified: {plural(outcome.records, 'record')} in "
            f"{plural(outcome.chains, 'chain')}, "
            f"{plural(outcome.memories, 'memory', 'memories')} as recorded{against}"
        )
        return 0


def _verify(anchored: dict[str, Any] | None) -> Verification:
    """Verify everything, and store the outcome unless the database is read-only."""
    outcome = Verification.begin("command", clock.now())
    is_stored = not is_read_only()
    db.session.commit()
    results = verify_all()
    with console.status("verifying") as status:
        while some := list(islice(results, _NOTED_AT_ONCE)):
            outcome.add(some)
            status.update(f"verified {some[-1].name}")
            if is_stored:
                note_verified(some, outcome.started_at)
            db.session.commit()
    for problem in missing_since(anchored) if anchored is not None else ():
        outcome.note_problem(problem)
    if is_stored:
        outcome.end(clock.now())
        db.session.commit()
    else:
        click.echo(_NOT_STORED, err=True)
    return outcome


@audit.command("anchor")
def audit_anchor() -> None:
    """Print the head of every chain, to keep on another machine.

    Take one regularly: `refine audit anchor > anchor.json`. It contains ids, counts and hashes, but
    no content. `refine audit verify --anchor anchor.json` then also detects removed records.
    """
    with application("audit anchor"):
        click.echo(json.dumps(anchor(), indent=1))
