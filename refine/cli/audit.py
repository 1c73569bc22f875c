"""The audit log: verified, anchored."""

import json
from itertools import islice
from typing import Any, TextIO

import click

from refine import clock
from refine.cli.context import Group
from refine.cli.output import console
from refine.extensions import db, is_read_only
from refine.models import Verification
from refine.models.audit.anchor import anchor, missing_since, read_anchor
from refine.models.integrity import note_verified, verify_all
from refine.rules.quantities import plural

# There may be a million chains.
_NOTED_AT_ONCE = 200
_NOT_STORED = "refine: the outcome could not be stored: the database is read-only"


@click.group(cls=Group)
def audit() -> None:
    """Verify the audit log, the append-only record of every change."""


@audit.command("verify")
@click.option(
    "--anchor",
    "anchor_file",
    type=click.File(encoding="utf-8"),
    help="Also compare with this output of `refine audit anchor`, to detect removed records.",
)
def auditverify(anchor_file: TextIO | None) -> str:
    """Verify every chain, then compare all memories and protected rows with their records.

    If anything was edited, removed, added or moved outside the application, print the first problem
    and exit with code 1. The outcome is stored: the dashboard, /metrics and /readyz show it. On a
    read-only replica it is only printed.
    """
    anchored = read_anchor(anchor_file.read()) if anchor_file is not None else None
    outcome = verify(anchored)
    if outcome.first_problem is not None:
        raise click.ClickException(outcome.first_problem)
    against = f"; nothing is missing since {anchored['at'][:19]}Z" if anchored else ""
    return (
        f"verified: {plural(outcome.records, 'record')} in {plural(outcome.chains, 'chain')}, "
        f"{plural(outcome.memories, 'memory', 'memories')} as recorded{against}"
    )


def verify(anchored: dict[str, Any] | None) -> Verification:
    """Verify everything, and store the outcome."""
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
def audit_anchor() -> str:
    """Print the head of every chain, to keep on another machine.

    Take one regularly: `refine audit anchor > anchor.json`. It contains ids, counts and hashes, but
    no content. `refine audit verify --anchor anchor.json` then also detects removed records.
    """
    return json.dumps(anchor(), indent=1)
