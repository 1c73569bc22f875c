"""Verification of the audit log."""

import json
from typing import TextIO

import click

from refine.cli.context import application
from refine.cli.output import console
from refine.extensions import db
from refine.models.audit.anchor import anchor, missing_since, read_anchor
from refine.models.integrity import Verified, stamp, verify_all
from refine.rules.quantities import plural


@click.group()
def audit() -> None:
    """Verify the audit log, the append-only record of every change."""


@audit.command("verify")
@click.option(
    "--anchor",
    "anchor_file",
    type=click.File(encoding="utf-8"),
    help="Also compare with this output of `refine audit anchor`, to detect removed records.",
)
def audit_verify(anchor_file: TextIO | None) -> int:
    """Verify every chain, every memory against its last record, and every row's digest.

    If anything was edited, removed, added or moved outside the application, name the first bad
    record and exit with code 1.
    """
    with application("audit verify"):
        anchored = read_anchor(anchor_file.read()) if anchor_file is not None else None
        chains: list[Verified] = []
        db.session.commit()
        with console.status("verifying") as status:
            for chain in verify_all():
                if chain.problem is not None:
                    raise click.ClickException(f"{chain.name}: {chain.problem}")
                chains.append(chain)
                status.update(f"verified {chain.name}")
            for missing in missing_since(anchored) if anchored is not None else ():
                raise click.ClickException(missing)
        db.session.commit()
        for chain in chains:
            stamp(chain)
            db.session.commit()
        records = sum(chain.records for chain in chains)
        memories = sum(chain.memories for chain in chains)
        against = f"; nothing is missing since {anchored['at'][:19]}Z" if anchored else ""
        console.print(
            f"verified: {plural(records, 'record')} in {plural(len(chains), 'chain')}, "
            f"{plural(memories, 'memory', 'memories')} as recorded{against}"
        )
        return 0


@audit.command("anchor")
def audit_anchor() -> None:
    """Print the head of every chain, to keep on another machine.

    Take one regularly: `refine audit anchor > anchor.json`. It contains ids, counts and hashes, but
    no content. `refine audit verify --anchor anchor.json` then also detects removed records.
    """
    with application("audit anchor"):
        click.echo(json.dumps(anchor(), indent=1))
