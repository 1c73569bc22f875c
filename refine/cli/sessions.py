"""Refinement sessions: listed, shown, stopped and retried."""

import uuid
from collections.abc import Sequence

import click
from sqlalchemy import select
from sqlalchemy.orm import contains_eager

from refine.cli.context import application
from refine.cli.output import Field, console, print_list, print_one
from refine.cli.parameters import Narrowing, json_option, narrowed
from refine.cli.running import queued_in_words
from refine.errors import NotFound, Refused
from refine.extensions import db
from refine.jobs import runs
from refine.models import Agent, AuditLog, RefinementSession
from refine.models.ledger.history import effect_tokens
from refine.models.runs import LIVE
from refine.models.runs.session import ENDED, TRIGGERS
from refine.rules.personal import masked_id
from refine.rules.quantities import cost_in_words

_LISTED = (
    Field("id", lambda row: row.id, "id"),
    Field("agent_id", lambda row: row.agent_id),
    Field("agent", lambda session: session.agent.name, "agent"),
    Field("account", lambda session: session.agent.account.slug, "account"),
    Field("status", lambda row: row.status, "status"),
    Field("trigger", lambda row: row.trigger, "trigger"),
    Field("attempt", lambda row: row.attempt),
    Field("model_id", lambda session: masked_id(session.model_id or session.agent.model_id)),
    Field("created_at", lambda row: row.created_at, "requested (UTC)"),
    Field("started_at", lambda row: row.started_at),
    Field("ended_at", lambda row: row.ended_at),
    Field("undone_at", lambda row: row.undone_at),
    Field("memories_before", lambda row: row.memories_before),
    Field("memories_after", lambda row: row.memories_after),
    Field("mass_before", lambda row: row.mass_before),
    Field("mass_after", lambda row: row.mass_after),
    Field("removable_tokens", lambda row: row.removable_tokens),
    Field("removed_tokens", lambda row: row.removed_tokens, "removed"),
    Field("mutation_count", lambda row: row.mutation_count, "changes"),
    Field("duplicates_removed", lambda row: row.duplicates_removed),
    Field("prompt_tokens", lambda row: row.prompt_tokens),
    Field("cached_tokens", lambda row: row.cached_tokens),
    Field("completion_tokens", lambda row: row.completion_tokens),
    Field(
        "cost_usd",
        lambda row: row.cost_usd,
        "cost",
        words=lambda each: cost_in_words(each.cost_usd, each.unpriced_calls),
    ),
    Field("unpriced_calls", lambda row: row.unpriced_calls),
    Field("error_kind", lambda row: row.error_kind),
    Field("end_reason", lambda row: row.end_reason, "reason"),
)

_STEPS = (
    Field("sequence", lambda row: row.sequence, "record"),
    Field("created_at", lambda row: row.created_at, "at (UTC)"),
    Field("action", lambda row: row.action, "action"),
    Field("effect_tokens", lambda record: effect_tokens(record.data), "tokens"),
)


def _steps(session: RefinementSession) -> Sequence[AuditLog]:
    records = select(AuditLog).where(AuditLog.session_id == session.id)
    return db.session.scalars(records.order_by(AuditLog.sequence)).all()


_SHOWN = (
    *_LISTED,
    Field("threshold", lambda row: row.threshold, "must keep"),
    Field("tokens_left", lambda row: row.tokens_left, "may still remove"),
    Field("stop_requested_at", lambda row: row.stop_requested_at, "stop requested (UTC)"),
    Field("stats", lambda row: row.stats),
    Field(
        "steps",
        lambda session: [
            {field.name: field.of(record) for field in _STEPS} for record in _steps(session)
        ],
    ),
)


_session_argument = click.argument("session_id", metavar="SESSION", type=click.UUID)


@click.group()
def session() -> None:
    """List, show, stop and retry refinement sessions."""


@session.command("list")
@click.option(
    "--status", type=click.Choice([*LIVE, *ENDED]), help="Only sessions with this status."
)
@click.option("--trigger", type=click.Choice(TRIGGERS), help="Only sessions with this trigger.")
@narrowed
def session_list(narrowing: Narrowing, limit: int, as_json: bool, **equal: str | None) -> None:
    """List sessions with their figures, newest first.

    Example: refine session list --status failed --since 2026-03-01
    """
    with application("session list"):
        wanted = select(RefinementSession).join(RefinementSession.agent)
        wanted = wanted.filter_by(**{name: value for name, value in equal.items() if value})
        wanted = wanted.where(
            *narrowing.conditions(
                Agent.account_id, RefinementSession.agent_id, RefinementSession.created_at
            )
        )
        with_names = wanted.options(
            contains_eager(RefinementSession.agent).joinedload(Agent.account)
        )
        newest = with_names.order_by(RefinementSession.created_at.desc(), RefinementSession.id)
        print_list(
            _LISTED,
            db.session.scalars(newest.limit(limit + 1)).all(),
            as_json=as_json,
            limit=limit,
            empty="no sessions",
        )


@session.command("show")
@_session_argument
@json_option
def session_show(session_id: uuid.UUID, as_json: bool) -> None:
    """Show SESSION: its figures, and each of its steps with what it changed in tokens."""
    with application("session show"):
        shown = _found(session_id)
        print_one(_SHOWN, shown, as_json=as_json)
        if not as_json:
            console.print()
            print_list(_STEPS, _steps(shown), as_json=False, empty="no steps yet")


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


def _found(session_id: uuid.UUID) -> RefinementSession:
    found = db.session.get(RefinementSession, session_id)
    if found is None:
        raise NotFound(f"there is no session {session_id}; `refine session list` shows them")
    return found
