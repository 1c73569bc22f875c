"""Moving memories in and out, from the server's own command line."""

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from refine.access import reading
from refine.cli.context import application
from refine.cli.output import console
from refine.errors import InvalidValue, NotFound
from refine.extensions import db
from refine.models import AccessGrant, Agent, AgentMemory
from refine.models.ledger import MEMORY_TYPES
from refine.transfer import own
from refine.transfer.formats import READERS, rows_of
from refine.transfer.importing import import_memories
from refine.transfer.report import Report, memories

_EXPORTED_AT_A_TIME = 500


@click.command("import")
@click.argument("agent_reference", metavar="AGENT")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(READERS)),
    required=True,
    help="letta: an agent file (.af), or passages as its API lists them. mem0: JSON of get_all. "
    "mcp: the memory server's JSON Lines. refine: a full export of Refine.",
)
@click.option(
    "--as",
    "memory_type",
    type=click.Choice(MEMORY_TYPES),
    default="core",
    show_default=True,
    help="What rows become that do not say it; blocks are always core.",
)
@click.option("--dry-run", is_flag=True, help="Count what would be imported; write nothing.")
@click.option("--strict", is_flag=True, help="Import nothing if there is a single bad row.")
def import_(
    agent_reference: str,
    file: Path,
    format_: str,
    memory_type: str,
    dry_run: bool,
    strict: bool,
) -> int:
    """Add the memories of FILE to those of AGENT (id or name).

    What came before is not added again: the same file, imported twice, adds nothing, and an import
    that was interrupted goes on. A row that cannot be read is named by its place, with the reason,
    and does not stop the rest. Nothing of a memory is printed.

    Exit code 0 if anything could be read (or nothing was there), 1 if nothing could, or with
    --strict if anything could not.
    """
    with file.open("rb") as stream, application("import"):
        if not stream.seekable():
            raise click.UsageError("FILE is read more than once: give a file, not a pipe")
        agent = Agent.named(agent_reference)
        report = Report()
        try:
            with _progress(stream) as progress:
                import_memories(
                    agent,
                    partial(rows_of, stream, format_),
                    source=format_,
                    memory_type=memory_type,
                    strict=strict,
                    dry_run=dry_run,
                    report=report,
                    progress=progress,
                )
        except BaseException:
            _say_broken_off(report, dry_run=dry_run)
            raise
        _say(agent, report, dry_run=dry_run)
    if report.is_failure:
        raise InvalidValue(f"nothing in the file could be read as {format_}")
    return 0


@click.command()
@click.argument("agent_reference", metavar="AGENT")
@click.option(
    "--grant",
    "grant_id",
    type=click.UUID,
    help="With what they say, under this grant of the agent's. What is printed is recorded first.",
)
def export(agent_reference: str, grant_id: uuid.UUID | None) -> None:
    """Print what there is to know of AGENT's memories without reading them, as JSON Lines.

    Ids, types, flags, tags, dates and sizes, discarded ones included; content under a grant alone.
    The first line says what the export is, the last one has the number of memories and a digest.
    """
    with application("export"):
        agent = Agent.named(agent_reference)
        if grant_id is None:
            every = itertools.chain.from_iterable(_pages_of(agent))
            lines = own.metadata_lines(agent, every)
        else:
            opened = _opened(agent, grant_id)
            first = list(itertools.islice(opened, 1))  # refused before anything is printed
            lines = own.full_lines(agent, itertools.chain(first, opened))
        for line in lines:
            click.echo(line)


def _opened(agent: Agent, grant_id: uuid.UUID) -> Iterator[tuple[AgentMemory, dict[str, Any]]]:
    """Yield each memory with its contents, as long as the grant lets its user read."""
    grant = db.session.get(AccessGrant, grant_id)
    if grant is None or grant.agent_id != agent.id:
        raise NotFound(f"{agent.name} has no such grant")
    user = grant.user
    for page in _pages_of(agent):
        contents = reading.contents(grant_id, user, [memory.id for memory in page])
        yield from ((memory, contents[memory.id]) for memory in page)


def _pages_of(agent: Agent) -> Iterator[Sequence[AgentMemory]]:
    """Yield them page by page, with no transaction open while somebody reads what was printed."""
    every = db.select(AgentMemory).where(AgentMemory.agent_id == agent.id).order_by(AgentMemory.id)
    after = 0
    while page := db.session.scalars(
        every.where(AgentMemory.id > after).limit(_EXPORTED_AT_A_TIME)
    ).all():
        after = page[-1].id
        for memory in page:
            db.session.expunge(memory)  # what is loaded stays, also behind the commit
        db.session.commit()
        yield page


@contextmanager
def _progress(stream: BinaryIO) -> Iterator[Callable[[], None]]:
    """Yield what shows how much of the file is read, where standard error is a terminal."""
    size = stream.seek(0, 2)
    terminal = Console(stderr=True)
    with Progress(
        *(TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn()),
        console=terminal,
        transient=True,
        disable=not terminal.is_terminal,
    ) as bar:
        task = bar.add_task("reading", total=size)
        yield lambda: bar.update(task, completed=stream.tell())


def _say(agent: Agent, report: Report, *, dry_run: bool) -> None:
    did = "would be imported" if dry_run else "imported"
    console.print(report.headline(f"{did} into {agent.name} (agent {agent.id})"))
    for label, text in report.figures():
        console.print(f"  {label:<14} {text}")
    for bad in report.named_bad_rows:
        console.print(f"    {bad.place}: {bad.reason}")
    if report.unnamed_bad_rows:
        console.print(f"    and {report.unnamed_bad_rows:,} more")
    if dry_run:
        console.print("nothing was written")
        return
    mass, budget = agent.core_token_usage, agent.core_token_budget
    over = "over its budget" if mass > budget else "within its budget"
    console.print(f"{agent.name} now has {mass:,} tokens, {over} of {budget:,}")


def _say_broken_off(report: Report, *, dry_run: bool) -> None:
    if report.added and not dry_run:
        click.echo(
            f"refine: broken off after {memories(report.added.total())}, which stay; the same "
            "command goes on from there",
            err=True,
        )
