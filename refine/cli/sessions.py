"""Refinement sessions: listed, shown, stopped, retried and undone; discarded memories restored."""

import uuid
from collections.abc import Sequence
from typing import Any

import click
from sqlalchemy import Select, select
from sqlalchemy.orm import contains_eager

from refine.cli.context import application
from refine.cli.output import Worded, console, print_list, print_one
from refine.cli.parameters import Columns, json_option, lists
from refine.cli.running import queued_in_words
from refine.errors import NotFound, Refused
from refine.extensions import db
from refine.jobs import runs
from refine.models import Agent, AgentMemory, AuditLog, RefinementSession
from refine.models.ledger.history import effect_tokens
from refine.models.runs import LIVE
from refine.models.runs.session import ENDED, TRIGGERS
from refine.refinement import time_machine
from refine.refinement.time_machine import UndoConflict
from refine.rules.ids import MAX_ID
from refine.rules.personal import masked_id
from refine.rules.quantities import cost_in_words, plural

_LISTED = {
    "id": "id",
    "agent": "agent",
    "account": "account",
    "status": "status",
    "trigger": "trigger",
    "created_at": "requested (UTC)",
    "removed_tokens": "removed",
    "mutation_count": "changes",
    "cost_usd": "cost",
    "end_reason": "reason",
}
_SHOWN = {
    **_LISTED,
    "threshold": "must keep",
    "tokens_left": "may still remove",
    "stop_requested_at": "stop requested (UTC)",
}
_STEPS = {
    "sequence": "record",
    "created_at": "at (UTC)",
    "action": "action",
    "effect_tokens": "tokens",
}


def _row(session: RefinementSession) -> dict[str, Any]:
    return {
        "id": session.id,
        "agent_id": session.agent_id,
        "agent": session.agent.name,
        "account": session.agent.account.slug,
        "status": session.status,
        "trigger": session.trigger,
        "attempt": session.attempt,
        "model_id": masked_id(session.model_id or session.agent.model_id),
        "created_at": session.created_at,
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "undone_at": session.undone_at,
        "memories_before": session.memories_before,
        "memories_after": session.memories_after,
        "mass_before": session.mass_before,
        "mass_after": session.mass_after,
        "removable_tokens": session.removable_tokens,
        "removed_tokens": session.removed_tokens,
        "mutation_count": session.mutation_count,
        "duplicates_removed": session.duplicates_removed,
        "prompt_tokens": session.prompt_tokens,
        "cached_tokens": session.cached_tokens,
        "completion_tokens": session.completion_tokens,
        "cost_usd": Worded(
            session.cost_usd, cost_in_words(session.cost_usd, session.unpriced_calls)
        ),
        "unpriced_calls": session.unpriced_calls,
        "error_kind": session.error_kind,
        "end_reason": session.end_reason,
    }


def _with_steps(session: RefinementSession) -> dict[str, Any]:
    return {
        **_row(session),
        "threshold": session.threshold,
        "tokens_left": session.tokens_left,
        "stop_requested_at": session.stop_requested_at,
        "stats": session.stats,
        "steps": _steps(session),
    }


def _steps(session: RefinementSession) -> Sequence[dict[str, Any]]:
    records = select(AuditLog).where(AuditLog.session_id == session.id)
    return [
        {
            "sequence": record.sequence,
            "created_at": record.created_at,
            "action": record.action,
            "effect_tokens": effect_tokens(record.data),
        }
        for record in db.session.scalars(records.order_by(AuditLog.sequence))
    ]


_session_argument = click.argument("session_id", metavar="SESSION", type=click.UUID)


@click.group()
def session() -> None:
    """List, show, stop and retry refinement sessions."""


@session.command("list")
@click.option(
    "--status", type=click.Choice([*LIVE, *ENDED]), help="Only sessions with this status."
)
@click.option("--trigger", type=click.Choice(TRIGGERS), help="Only sessions with this trigger.")
@lists(
    Columns(
        Agent.account_id,
        RefinementSession.agent_id,
        RefinementSession.created_at,
        RefinementSession.id,
    ),
    _row,
    _LISTED,
    empty="no sessions",
)
def session_list(**equal: str | None) -> Select[Any]:
    """List sessions with their figures, newest first.

    Example: refine session list --status failed --since 2026-03-01
    """
    wanted = select(RefinementSession).join(RefinementSession.agent)
    wanted = wanted.filter_by(**{name: value for name, value in equal.items() if value})
    return wanted.options(contains_eager(RefinementSession.agent).joinedload(Agent.account))


@session.command("show")
@_session_argument
@json_option
def session_show(session_id: uuid.UUID, as_json: bool) -> None:
    """Show SESSION: its figures, and each of its steps with what it changed in tokens."""
    with application("session show"):
        shown = _with_steps(_found(session_id))
        print_one(shown, _SHOWN, as_json=as_json)
        if not as_json:
            console.print()
            print_list(shown["steps"], _STEPS, as_json=False, empty="no steps yet")


@session.command("stop")
@_session_argument
def session_stop(session_id: uuid.UUID) -> None:
    """Stop SESSION before its next step. Changes made so far are kept.

    Its end is recorded as stopped on the command line.
    """
    with application("session stop"):
        stopped = _found(session_id)
        stopped.request_stop()
        is_live, agent = stopped.is_live, stopped.agent.name
        db.session.commit()
        when = "ends before its next step" if is_live else "is skipped; the agent was not asked"
        console.print(f"session {session_id} of {agent} {when}")


@session.command("retry")
@_session_argument
def session_retry(session_id: uuid.UUID) -> None:
    """Queue a new session for the agent of the failed session SESSION; a worker runs it.

    The rules are those of `refine run`: the agent is asked for consent, and may have no other live
    session.
    """
    with application("session retry"):
        failed = _found(session_id)
        if failed.status != "failed":
            raise Refused(f"only a failed session can be retried; this one is {failed.status}")
        queued = runs.refine_later(failed.agent, "cli")
        console.print(queued_in_words(queued))


@click.command()
@_session_argument
@click.option("--and-after", is_flag=True, help="Also undo everything that was changed since.")
@click.option("--preview", is_flag=True, help="Print what would be undone; change nothing.")
def undo(session_id: uuid.UUID, and_after: bool, preview: bool) -> None:
    """Undo the ended session SESSION, including its removal of exact duplicates.

    Refused while the agent has a live session, or if one of the memories was changed since; then
    the records that prevent the undo are listed. --and-after undoes those changes too (sessions,
    flag changes, restores; memories saved since stay). Undoing a session twice changes nothing.
    """
    with application("undo"):
        undone = _found(session_id)
        try:
            if preview:
                planned = time_machine.preview(undone, and_after=and_after)
            else:
                planned = time_machine.undo(undone, through="command line", and_after=and_after)
        except UndoConflict as conflict:
            wider = " (--and-after)" if conflict.is_wider_possible else ""
            raise Refused(f"{conflict}{wider}") from conflict
        if planned.is_done:
            console.print(f"session {session_id} {undone.undo_summary}; nothing was changed")
        else:
            verb = "would undo" if preview else "undid"
            sessions = plural(len(planned.sessions), "session")
            console.print(f"{verb} {sessions} of {planned.session.agent.name}: {planned.effect}")
        db.session.commit()


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


def _found(session_id: uuid.UUID) -> RefinementSession:
    found = db.session.get(RefinementSession, session_id)
    if found is None:
        raise NotFound(f"there is no session {session_id}; `refine session list` shows them")
    return found
