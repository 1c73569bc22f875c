"""Import and export on the server's command line."""

import gc
import itertools
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from refine.access import reading
from refine.cli.context import application
from refine.cli.output import console
from refine.cli.parameters import agent_argument
from refine.errors import InvalidValue, NotFound, Refused
from refine.extensions import db
from refine.models import AccessGrant, Agent, AgentMemory
from refine.models.ledger.memory import MEMORY_TYPES
from refine.transfer.exporting import WRITERS, Readable
from refine.transfer.importing import (
    FORMATS,
    Report,
    format_of,
    import_memories,
    memory_count,
    rows_at,
)
from refine.transfer.own import full_lines, metadata_lines, pages_of
from refine.transfer.rows import FIELDS, Row, Wanted
from refine.transfer.sources import sources_of

_Read = tuple[AgentMemory, dict[str, Any]]  # a memory, and its texts


def _fields(_context: object, _parameter: object, given: str | None) -> dict[str, str]:
    """Return what ``--map`` says."""
    fields = dict(each.strip().partition("=")[::2] for each in (given or "").split(",") if each)
    wrong = [name for name, path in fields.items() if name not in FIELDS or not path]
    if wrong:
        raise click.BadParameter(f"write {'=…, '.join(FIELDS)}=…, each with the name of a field")
    return fields


@click.command("import")
@agent_argument
@click.argument("path", metavar="FILE", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(FORMATS)),
    help="Default: recognized by what is in the file. "
    + " ".join(f"{name}: {each.files}." for name, each in FORMATS.items()),
)
@click.option(
    "--map",
    "fields",
    metavar="content=FIELD,date=FIELD,…",
    callback=_fields,
    help=f"How the file calls {', '.join(FIELDS)}; a.b is field b in the object a.",
)
@click.option("--agent", "agent", help="Of a file of several agents: this one (id or name there).")
@click.option("--user", "user", help="Only the memories of this person, by the id in the file.")
@click.option(
    "--include-archived", "archived", is_flag=True, help="Archived and disabled ones, too."
)
@click.option(
    "--as",
    "memory_type",
    type=click.Choice(MEMORY_TYPES),
    default="core",
    show_default=True,
    help="Memory type for rows that do not name one; blocks are always core.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be imported; write nothing.")
@click.option("--strict", is_flag=True, help="Import nothing if any row is bad.")
def import_(reference: str, path: Path, format_: str | None, **options: Any) -> None:
    """Add the memories of FILE, or of the files in a folder or a zip, to those of AGENT.

    A prefix says what each memory is about: "Alice (person): Speaks Welsh" from the MCP memory
    server, "[human] Keeps bees" from a Letta block, "People: Mira runs the farm" from notes with
    headings.

    Memories that were imported earlier are not added again, so an interrupted import can be
    repeated. Bad rows are listed with position and reason; all others are imported, except for
    those that are deleted, archived, paused, replaced or expired at the source. Only --dry-run
    prints what the file says: the first memories as they would be kept.

    Exit code 1 if no row could be read or, with --strict, if any row is bad; 0 otherwise.
    """
    wanted = Wanted(*(options.pop(name) for name in Wanted._fields))
    dry_run, report = options["dry_run"], Report()
    if not (path.is_dir() or path.is_file()):
        raise click.UsageError("FILE is read more than once: use a file, not a pipe")
    with application("import"):
        agent = Agent.named(reference)
        read = partial(rows_at, path, format_, wanted)
        _run(agent, read, report, source=_source(path, format_), **options)
        _print_report(agent, report, dry_run=dry_run)
    if report.is_failure:
        raise InvalidValue(f"nothing in the file could be read{f' as {format_}' * bool(format_)}")


def _source(path: Path, format_: str | None) -> str:
    """Return what the records of an import call its source."""
    if format_ is not None or path.is_dir():
        return format_ or "folder"
    with sources_of(path) as sources:
        first = next(sources, None)
        return (first and first.is_alone and format_of(first)) or "files"


def _run(
    agent: Agent,
    read: Callable[[], Iterator[Row]],
    report: Report,
    *,
    dry_run: bool,
    **options: Any,
) -> None:
    gc.freeze()  # loaded objects stay: scanning them again and again takes long
    try:
        with Console(stderr=True).status("importing"):
            import_memories(agent, read, dry_run=dry_run, report=report, **options)
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
@click.option(
    "--format",
    "format_",
    type=click.Choice(["refine", *WRITERS]),
    default="refine",
    show_default=True,
    help="refine: all that is stored; others: the texts of kept memories, with --grant.",
)
def export(reference: str, grant_id: uuid.UUID | None, format_: str) -> None:
    """Print the metadata of AGENT's memories, discarded ones included, as JSON Lines.

    Metadata is ids, types, flags, tags, dates and sizes; content is included only under a grant.
    The first line describes the export; the last one has the number of memories and a digest.
    """
    if grant_id is None and format_ != "refine":
        raise click.UsageError(f"--format {format_} prints content: it needs --grant")
    with application("export"):
        agent = Agent.named(reference)
        if grant_id is None:
            all_memories = itertools.chain.from_iterable(pages_of(agent))
            lines = metadata_lines(agent, all_memories)
        else:
            readable = _readable(agent, grant_id)
            first = list(itertools.islice(readable, 1))  # refused before anything is printed
            lines = _full_lines(agent, itertools.chain(first, readable), format_)
        for line in lines:
            click.echo(line)


def _full_lines(agent: Agent, memories: Iterator[_Read], format_: str) -> Iterator[str]:
    if format_ == "refine":
        return full_lines(agent, memories)
    kept = [Readable.of(each, read["content"]) for each, read in memories if not each.discarded]
    kept.sort(key=lambda each: (each.memory_type, each.created_at, each.id))
    return WRITERS[format_](agent.name, kept)


def _readable(agent: Agent, grant_id: uuid.UUID) -> Iterator[_Read]:
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
    for line in report.first_rows() if dry_run else ():
        console.print(f"  {line}")
    for label, line in report.rows():
        console.print(f"  {label:<14} {line}")
    more = report.added_core_tokens if dry_run else 0
    mass, budget = agent.core_token_usage + more, agent.core_token_budget
    over = "over its budget" if mass > budget else "within its budget"
    has = "would have" if dry_run else "now has"
    console.print(f"{agent.name} {has} {mass:,} tokens, {over} of {budget:,}")
    if dry_run:
        console.print("nothing was written")
