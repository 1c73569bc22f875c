"""Undoes sessions and restores memories, without showing their content."""

import uuid

import click

from refine.cli.context import application
from refine.cli.output import console
from refine.errors import NotFound, Refused
from refine.extensions import db
from refine.models import AgentMemory, RefinementSession
from refine.refinement import time_machine
from refine.refinement.time_machine import Undo, UndoConflict
from refine.rules.ids import MAX_ID
from refine.rules.quantities import plural


@click.command()
@click.argument("session_id", metavar="SESSION", type=click.UUID)
@click.option("--and-after", is_flag=True, help="Also undo everything that was changed since.")
@click.option("--preview", is_flag=True, help="Print what would be undone; change nothing.")
def undo(session_id: uuid.UUID, and_after: bool, preview: bool) -> None:
    """Undo the ended session SESSION, including its removal of exact duplicates.

    Refused while the agent has a live session, or if one of the memories was changed since; then
    the records that prevent the undo are listed. --and-after undoes those changes too (sessions,
    flag changes, restores; memories saved since stay). Undoing a session twice changes nothing.
    """
    with application("undo"):
        session = _found(session_id)
        try:
            planned = _undone(session, and_after=and_after, preview=preview)
        except UndoConflict as conflict:
            wider = " (--and-after)" if conflict.is_wider_possible else ""
            raise Refused(f"{conflict}{wider}") from conflict
        if planned.is_done:
            console.print(f"session {session_id} {session.undo_summary}; nothing was changed")
        else:
            _print_done("would undo" if preview else "undid", planned)
        db.session.commit()


def _undone(session: RefinementSession, *, and_after: bool, preview: bool) -> Undo:
    if preview:
        return time_machine.preview(session, and_after=and_after)
    return time_machine.undo(session, through="command line", and_after=and_after)


def _found(session_id: uuid.UUID) -> RefinementSession:
    session = db.session.get(RefinementSession, session_id)
    if session is None:
        raise NotFound(f"there is no session {session_id}")
    return session


def _print_done(verb: str, done: Undo) -> None:
    sessions = plural(len(done.sessions), "session")
    console.print(f"{verb} {sessions} of {done.session.agent.name}: {done.effect}")


@click.command()
@click.argument("memory_id", metavar="MEMORY", type=click.IntRange(1, MAX_ID))
def restore(memory_id: int) -> None:
    """Restore the discarded memory MEMORY (an id) without showing it."""
    with application("restore"):
        memory = db.session.get(AgentMemory, memory_id)
        if memory is None:
            raise NotFound(f"there is no memory #{memory_id}")
        was_discarded = memory.discarded
        memory.restore()
        db.session.commit()
        console.print(
            f"memory #{memory_id} of {memory.agent.name} is "
            + ("restored" if was_discarded else "not discarded; nothing was changed")
        )
