"""Import and export on the server's command line."""

import gc
import itertools
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import click
from rich.console import Console

from refine.access import reading
from refine.cli.context import application
from refine.cli.output import console
from refine.cli.parameters import agent_argument
from refine.errors import InvalidValue, NotFound, Refused
from refine.extensions import db
from refine.models import AccessGrant, Agent, AgentMemory
from refine.models.ledger import MEMORY_TYPES
from refine.transfer.importing import FORMATS, Report, import_memories, memory_count, rows_of
from refine.transfer.own import full_lines, metadata_lines, pages_of


@click.command("import")
@agent_argument
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(FORMATS)),
    required=True,
    help=" ".join(f"{name}: {each.files}." for name, each in FORMATS.items()),
)
@click.option(
    "--as",
    "memory_type",
    type=click.Choice(MEMORY_TYPES),
    default="core",
    show_default=True,
    help="Memory type for rows that do not name one; blocks are always core.",
)
@click.option("--dry-run", is_flag=True, help="Report what would be imported; write nothing.")
@click.option("--strict", is_flag=True, help="Import nothing if any row is bad.")
def import_(reference: str, file: Path, format_: str, dry_run: bool, **options: Any) -> int:
    """Add the memories of FILE to those of AGENT (id or name).

    A prefix says what each memory is about: "Alice (person): Speaks Welsh" from the MCP memory
    server, "[human] Keeps bees" from a Letta block.

    Memories that were imported earlier are not added again, so an interrupted import can be
    repeated. Bad rows are listed with position and reason; all others are imported, except for
    those that are deleted, archived, paused, replaced or expired at the source. Memory content is
    never printed.

    Exit code 1 if no row could be read or, with --strict, if any row is bad; 0 otherwise.
    """
    with file.open("rb") as stream, application("import"):
        if not stream.seekable():
            raise click.UsageError("FILE is read more than once: use a file, not a pipe")
        agent = Agent.named(reference)
        report = _run(agent, stream, format_, dry_run=dry_run, **options)
        _print_report(agent, report, dry_run=dry_run)
    if report.is_failure:
        raise InvalidValue(f"nothing in the file could be read as {format_}")
    return 0


def _run(agent: Agent, stream: BinaryIO, format_: str, *, dry_run: bool, **options: Any) -> Report:
    gc.freeze()  # loaded objects stay: scanning them again and again takes long
    report = Report()
    read = partial(rows_of, stream, format_)
    try:
        with Console(stderr=True).status("importing"):
            return import_memories(
                agent, read, source=format_, dry_run=dry_run, report=report, **options
            )
    except BaseException:
        if report.added and not dry_run:
            kept = memory_count(report.added.total())
            said = f"interrupted after {kept}, which are kept; repeat the command to resume"
            click.echo(f"refine: {said}", err=True)
        raise


@click.command()
@agent_argument
@click.option(
    "--grant",
    "grant_id",
    type=click.UUID,
    help="Include content, under this grant. Each read is recorded before it is printed.",
)
def export(reference: str, grant_id: uuid.UUID | None) -> None:
    """Print the metadata of AGENT's memories, discarded ones included, as JSON Lines.

    Metadata is ids, types, flags, tags, dates and sizes; content is included only under a grant.
    The first line describes the export; the last one has the number of memories and a digest.
    """
    with application("export"):
        agent = Agent.named(reference)
        if grant_id is None:
            all_memories = itertools.chain.from_iterable(pages_of(agent))
            lines = metadata_lines(agent, all_memories)
        else:
            readable = _readable(agent, grant_id)
            first = list(itertools.islice(readable, 1))  # refused before anything is printed
            lines = full_lines(agent, itertools.chain(first, readable))
        for line in lines:
            click.echo(line)


def _readable(agent: Agent, grant_id: uuid.UUID) -> Iterator[tuple[AgentMemory, dict[str, Any]]]:
    grant = db.session.get(AccessGrant, grant_id)
    if grant is None or grant.agent_id != agent.id:
        raise NotFound(f"{agent.name} has no such grant")
    user = grant.user
    if grant.session_id is not None:
        raise Refused("this access is to the changes of one session, which its page shows")
    for page in pages_of(agent):
        ids = [memory.id for memory in page if grant.scope.opens(memory_id=memory.id)]
        contents = reading.contents(grant_id, user, ids) if ids else {}
        # erased ones have no contents
        yield from ((each, contents[each.id]) for each in page if each.id in contents)


def _print_report(agent: Agent, report: Report, *, dry_run: bool) -> None:
    verb = "would be imported" if dry_run else "imported"
    console.print(report.headline(f"{verb} into {agent.name} (agent {agent.id})"))
    for label, text in report.rows():
        console.print(f"  {label:<14} {text}")
    if dry_run:
        console.print("nothing was written")
        return
    mass, budget = agent.core_token_usage, agent.core_token_budget
    over = "over its budget" if mass > agent.core_token_budget else "within its budget"
    console.print(f"{agent.name} now has {mass:,} tokens, {over} of {budget:,}")
