"""Refinement sessions: listed, shown, stopped and undone."""

import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import click
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import contains_eager

from refine.cli.context import Group, InApplication
from refine.cli.output import Field, console, print_json, print_list, print_one, row_of
from refine.cli.parameters import account_option, json_option, limit_option
from refine.errors import NotFound, Refused
from refine.extensions import db
from refine.models import Account, Agent, AuditLog, RefinementSession
from refine.models.ledger.history import effect_tokens
from refine.models.runs.run import LIVE
from refine.models.runs.session.judging import CAUSES
from refine.models.runs.session.session import ENDED, TRIGGERS
from refine.refinement import time_machine
from refine.refinement.time_machine import UndoConflict
from refine.rules.personal import masked_id
from refine.rules.quantities import cost_in_words, plural

_LISTED = (
    Field("id", "id"),
    Field("agent_id"),
    Field("agent", "agent", "agent.name"),
    Field("account", "account", "agent.account.slug"),
    Field("status", "status"),
    Field("trigger", "trigger"),
    Field("attempt"),
    Field("model_id", None, lambda session: masked_id(session.model_id or session.agent.model_id)),
    Field("created_at", "requested"),
    Field("started_at"),
    Field("ended_at"),
    Field("undone_at"),
    Field("memories_before"),
    Field("memories_after"),
    Field("mass_before"),
    Field("mass_after"),
    Field("removable_tokens"),
    Field("removed_tokens"),
    Field("saved_tokens", "saved"),
    Field("mutation_count", "changes"),
    Field("duplicates_removed"),
    Field("prompt_tokens"),
    Field("cached_tokens"),
    Field("completion_tokens"),
    Field("cost_usd", "cost", words=lambda run: cost_in_words(run.cost_usd, run.unpriced_calls)),
    Field("unpriced_calls"),
    Field("error_kind"),
    Field("end_reason", "reason"),
)
_SHOWN = (
    *_LISTED,
    Field("threshold"),
    Field("tokens_left"),
    Field("stop_requested_at"),
    Field("stats", "edits and refusals", words=lambda run: _in_words(run.stats)),
    Field("reading_calls", "second readings"),
    Field("reading_prompt_tokens"),
    Field("reading_completion_tokens"),
    Field("reading_cost_usd"),
)
_STEPS = (
    Field("sequence", "record"),
    Field("created_at", "at"),
    Field("action", "action"),
    Field("effect_tokens", "tokens", lambda record: effect_tokens(record.data)),
)


_TIME = click.DateTime(
    ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M%z", "%Y-%m-%dT%H:%M:%S%z"]
)


def _in_words(stats: Mapping[str, int]) -> str:
    refused = {f"refused_{cause}": f"refused {words}" for cause, words in CAUSES.items()}
    return ", ".join(
        f"{count:,} {refused.get(stat, stat.replace('_', ' '))}"
        for stat, count in stats.items()
        if count
    )


_session_argument = click.argument("session_id", metavar="SESSION", type=click.UUID)


@click.group(cls=Group)
def session() -> None:
    """List, show and stop refinement sessions."""


@session.command("list")
@account_option
@click.option("--agent", "reference", metavar="AGENT", help="Only this agent (id or name).")
@click.option(
    "--status", type=click.Choice([*LIVE, *ENDED]), help="Only sessions with this status."
)
@click.option("--trigger", type=click.Choice(TRIGGERS), help="Only sessions with this trigger.")
@click.option("--since", type=_TIME, help="Only from this date or time (UTC).")
@click.option("--until", type=_TIME, help="Only before this date or time (UTC).")
@limit_option
@json_option
def session_list(*, limit: int, as_json: bool, **chosen: Any) -> None:
    """List sessions with their figures, newest first.

    Example: refine session list --status failed --since 2026-03-01
    """
    given = {name: value for name, value in chosen.items() if value is not None}
    wanted = (
        select(RefinementSession)
        .join(RefinementSession.agent)
        .options(contains_eager(RefinementSession.agent).joinedload(Agent.account))
        .where(*(_CONDITIONS[name](value) for name, value in given.items()))
        .order_by(RefinementSession.created_at.desc(), RefinementSession.id.desc())
    )
    found = db.session.scalars(wanted.limit(limit + 1)).all()
    print_list(found, _LISTED, as_json=as_json, limit=limit, empty="no sessions")


# By option: which sessions are listed where it has a value.
_CONDITIONS: Mapping[str, Callable[[Any], ColumnElement[bool]]] = {
    "slug": lambda slug: Agent.account_id == Account.by_slug(slug).id,
    "reference": lambda reference: RefinementSession.agent_id == Agent.named(reference).id,
    "since": lambda since: RefinementSession.created_at >= _in_utc(since),
    "until": lambda until: RefinementSession.created_at < _in_utc(until),
    "status": lambda status: RefinementSession.status == status,
    "trigger": lambda trigger: RefinementSession.trigger == trigger,
}


def _in_utc(given: datetime) -> datetime:
    return given if given.tzinfo is not None else given.replace(tzinfo=UTC)


@session.command("show")
@_session_argument
@json_option
def session_show(session_id: uuid.UUID, as_json: bool) -> None:
    """Show SESSION: its figures, and each of its steps with what it changed in tokens."""
    shown = _found(session_id)
    records = select(AuditLog).where(AuditLog.session_id == session_id)
    steps = db.session.scalars(records.order_by(AuditLog.sequence)).all()
    if as_json:
        listed = [row_of(step, _STEPS) for step in steps]
        print_json({**row_of(shown, _SHOWN), "steps": listed})
    else:
        print_one(shown, _SHOWN)
        console.print()
        print_list(steps, _STEPS, as_json=False, empty="no steps yet")


@session.command("stop")
@_session_argument
def session_stop(session_id: uuid.UUID) -> str:
    """Stop SESSION before its next step. Changes made so far are kept.

    Its end is recorded as stopped on the command line.
    """
    stopped = _found(session_id)
    stopped.request_stop()
    ended = "ended" if stopped.has_begun else "is skipped; the agent was not asked"
    when = "ends before its next step" if stopped.is_live else ended
    return f"session {session_id} of {stopped.agent.name} {when}"


@click.command(cls=InApplication)
@_session_argument
@click.option("--and-after", is_flag=True, help="Also undo everything that was changed since.")
def undo(session_id: uuid.UUID, and_after: bool) -> str:
    """Undo the ended session SESSION, including its removal of exact duplicates.

    Refused while the agent has a live session, or if one of the memories was changed since; then
    the records that prevent the undo are listed. --and-after undoes those changes too (sessions,
    flag changes, restores; memories saved since stay). Undoing a session twice changes nothing.
    """
    undone = _found(session_id)
    try:
        done = time_machine.undo(undone, through="command line", and_after=and_after)
    except UndoConflict as conflict:
        wider = " (--and-after)" if conflict.is_wider_possible else ""
        raise Refused(f"{conflict}{wider}") from conflict
    if done.is_done:
        before = f"{undone.undone_at:%Y-%m-%d at %H:%M} UTC by {undone.undone_by_label}"
        return f"session {session_id} was undone on {before}; nothing was changed"
    sessions = plural(len(done.sessions), "session")
    return f"undid {sessions} of {done.session.agent.name}: {done.effect}"


def _found(session_id: uuid.UUID) -> RefinementSession:
    found = db.session.get(RefinementSession, session_id)
    if found is None:
        raise NotFound(f"there is no session {session_id}; `refine session list` shows them")
    return found
