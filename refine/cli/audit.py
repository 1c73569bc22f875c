"""The audit log, checked."""

import click

from refine.cli.context import application
from refine.cli.output import console
from refine.extensions import db
from refine.models.verification import Verified, stamp, verify_all


@click.group()
def audit() -> None:
    """The append-only record of everything that happens to memories."""


@audit.command("verify")
def audit_verify() -> int:
    """Check every chain, every memory against its last record, and every row's digest.

    Exit code 1 with the first bad record if anything was edited, removed, added or moved past the
    application.
    """
    with application("audit verify"):
        chains: list[Verified] = []
        db.session.commit()
        with console.status("verifying") as status:
            for chain in verify_all():
                if chain.problem is not None:
                    raise click.ClickException(f"{chain.name}: {chain.problem}")
                chains.append(chain)
                status.update(f"verified {chain.name}")
        db.session.commit()
        for chain in chains:
            stamp(chain)
        db.session.commit()
        records = sum(chain.records for chain in chains)
        memories = sum(chain.memories for chain in chains)
        console.print(
            f"verified: {records:,} records in {len(chains):,} chains, "
            f"{memories:,} memories as recorded"
        )
        return 0
