"""What a session's row holds, the words for its states, and the figures it reports."""

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, get_args

from sqlalchemy import BigInteger, ColumnElement, ForeignKey, Numeric, Text, and_, or_, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, declared_attr, mapped_column, relationship

from refine import clock, settings
from refine.models.agent.eligibility import AutomaticTrigger
from refine.models.columns import Count, Sealed
from refine.models.keys import SealedText
from refine.models.people import User
from refine.models.runs.run import RetriableRun
from refine.rules.content import MAX_STORED_SUMMARY_CHARACTERS, bounded_text, reply_text
from refine.rules.pacing import retry_pause
from refine.rules.prices import Usage
from refine.rules.quantities import plural
from refine.rules.retention import THRESHOLD_DECIMALS, removable_under_threshold

Trigger = Literal["weekly", "over_budget", "manual", "api", "cli"]
TRIGGERS: tuple[Trigger, ...] = get_args(Trigger)
# Sessions that obey pauses and the cost cap.
AUTOMATIC_TRIGGERS: tuple[AutomaticTrigger, ...] = get_args(AutomaticTrigger)

EndStatus = Literal["completed", "rolled_back", "incomplete", "declined", "skipped", "failed"]
ENDED: tuple[EndStatus, ...] = get_args(EndStatus)
# Ends that only a session has whose agent consented (though it can also end ``failed``).
CONSENTED_ENDS = ("completed", "rolled_back", "incomplete")
# The ends of a session whose agent answered the consent question.
ANSWERED = (*CONSENTED_ENDS, "declined")

# The ends that a person should look at; ``models/agent_list.py`` finds the agents.
AttentionStatus = Literal["failed", "rolled_back", "declined"]
NEED_ATTENTION: tuple[AttentionStatus, ...] = get_args(AttentionStatus)

_NOTHING_DONE = {"consolidated": 0, "updated": 0, "deleted": 0, "protected": 0}

# How an undo was requested.
Channel = Literal["dashboard", "command line", "agent"]

# How many mutations a session may make; protecting a memory does not count.
MAX_MUTATIONS = 10

# The period that the floor against slow erosion looks back over.
ROLLING_WINDOW = timedelta(days=30)


def _summary(field: str, value: object) -> str:
    return bounded_text(value, field=field, limit=MAX_STORED_SUMMARY_CHARACTERS)


class SessionState(RetriableRun):
    """The columns of a session, and properties derived from them."""

    __tablename__ = "refinement_sessions"

    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    threshold: Mapped[Decimal] = mapped_column(Numeric(THRESHOLD_DECIMALS + 1, THRESHOLD_DECIMALS))
    mass_before: Mapped[int | None]
    mass_after: Mapped[int | None]
    memories_before: Mapped[int | None]
    memories_after: Mapped[int | None]
    # how many of them the agent was shown; NULL before the snapshot
    shown_memories: Mapped[int | None]
    duplicates_removed: Mapped[Count]
    removable_tokens: Mapped[Count]
    removed_tokens: Mapped[Count]
    mutation_count: Mapped[Count]
    details_lost: Mapped[Count]
    stats: Mapped[dict[str, int]] = mapped_column(
        JSONB,
        default=lambda: dict(_NOTHING_DONE),
        server_default=text(f"'{json.dumps(_NOTHING_DONE)}'"),
    )

    turns: Mapped[Count]
    stop_requested_at: Mapped[datetime | None]
    stop_requested_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    consented_at: Mapped[datetime | None]
    batch_through_id: Mapped[int | None] = mapped_column(BigInteger)
    sealed_summary: Mapped[Sealed | None] = mapped_column(
        "summary", deferred=True, deferred_group="sealed"
    )
    sealed_consent_reply: Mapped[Sealed | None] = mapped_column(
        "consent_reply", deferred=True, deferred_group="sealed"
    )

    undone_at: Mapped[datetime | None]
    undone_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    undone_through: Mapped[str | None] = mapped_column(Text)

    # who acknowledged how it ended
    seen_at: Mapped[datetime | None]
    seen_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))

    summary = SealedText(_summary)
    consent_reply = SealedText(reply_text)

    @declared_attr
    def user(self) -> Mapped[User | None]:
        """Who requested the session, if a person did."""
        return relationship(foreign_keys="RefinementSession.user_id")

    @declared_attr
    def stop_requested_by(self) -> Mapped[User | None]:
        """Who requested the stop, if a user did."""
        return relationship(foreign_keys="RefinementSession.stop_requested_by_id")

    @declared_attr
    def undone_by(self) -> Mapped[User | None]:
        """Who undid the session, if a user of the dashboard did."""
        return relationship(foreign_keys="RefinementSession.undone_by_id")

    @declared_attr
    def seen_by(self) -> Mapped[User | None]:
        """Who acknowledged how the session ended, if anybody did."""
        return relationship(foreign_keys="RefinementSession.seen_by_id")

    # -- predicates ------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether a worker has the session."""
        return self.status == "running"

    @property
    def duration(self) -> timedelta | None:
        """How long a session that has ended took; None if it never started."""
        if self.started_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.started_at

    @property
    def is_stop_requested(self) -> bool:
        """Whether somebody asked the session to stop."""
        return self.stop_requested_at is not None

    @property
    def stop_reason(self) -> str:
        """What the end of a session says that somebody asked to stop."""
        by_user = self.stop_requested_by_id is not None
        return "stopped on request" if by_user else "stopped on the command line"

    @property
    def stopped_status(self) -> EndStatus:
        """How a session ends that somebody asked to stop."""
        return "skipped" if self.consented_at is None else "incomplete"

    @property
    def can_stop(self) -> bool:
        """Whether a stop can still be requested."""
        return self.is_live and not self.is_stop_requested

    @property
    def can_undo(self) -> bool:
        """Whether the session has ended with changes that are not undone yet."""
        return self.has_changes and not self.is_live and self.undone_at is None

    @hybrid_property
    def has_changes(self) -> bool:
        """Whether the session left changes: exact duplicates removed, edits, protection.

        The edits of a session that was rolled back are gone.
        """
        edits = self.mutation_count + self.stats["protected"]
        return self.duplicates_removed > 0 or (self.status != "rolled_back" and edits > 0)

    @has_changes.inplace.expression
    @classmethod
    def _has_changes(cls) -> ColumnElement[bool]:
        edits: ColumnElement[int] = cls.mutation_count + cls.stats["protected"].as_integer()
        return or_(cls.duplicates_removed > 0, and_(cls.status != "rolled_back", edits > 0))

    @hybrid_property
    def is_automatic(self) -> bool:
        """Whether the clock or a sweep queued it, so that it obeys pauses and the cost cap."""
        return self.trigger in AUTOMATIC_TRIGGERS

    @is_automatic.inplace.expression
    @classmethod
    def _is_automatic(cls) -> ColumnElement[bool]:
        return cls.trigger.in_(AUTOMATIC_TRIGGERS)

    @hybrid_property
    def may_be_retried(self) -> bool:
        """Whether this is a failed automatic session, which may be retried."""
        return self.status == "failed" and self.is_automatic

    @may_be_retried.inplace.expression
    @classmethod
    def _may_be_retried(cls) -> ColumnElement[bool]:
        return and_(cls.status == "failed", cls.is_automatic)

    @property
    def retry_at(self) -> datetime | None:
        """When a failed session may be tried again, at the earliest; None if it may not."""
        pause = retry_pause(self.attempt) if self.may_be_retried else None
        return self.ended_at + pause if self.ended_at is not None and pause is not None else None

    @property
    def needs_attention(self) -> bool:
        """Whether it ended so that a person should look, and nobody has acknowledged it."""
        return self.status in NEED_ATTENTION and self.seen_at is None

    @property
    def had_effect(self) -> bool:
        """Whether the agent agreed and something was removed, exact duplicates included."""
        return self.status != "declined" and self.removed_tokens + self.duplicates_removed > 0

    @property
    def is_limited_by_floor(self) -> bool:
        """Whether the rolling floor, not the threshold, limits what the session may remove."""
        by_threshold = removable_under_threshold(self.mass_before or 0, self.threshold)
        return self.removable_tokens < by_threshold

    @property
    def part_shown(self) -> str | None:
        """Which part of its ledger the agent was shown, why, and what to do; None for all of it."""
        if self.batch_through_id is None or self.status == "skipped":
            return None
        shown = "some" if self.shown_memories is None else f"{self.shown_memories:,}"
        return (
            f"Of {self.memories_before:,} memories, only {shown} were shown, because the model's "
            "context is too small for all of them. Once the agent has agreed to a session, its "
            "next one goes on where that one ended. To show more at once, give the agent a model "
            "with a larger context or, if the provider's list names no context for its model, "
            f"raise `REFINE_CONTEXT_TOKENS` (now {settings.current().context_tokens:,})."
        )

    # -- figures ---------------------------------------------------------------------------------

    @property
    def tokens_left(self) -> int:
        """How many tokens the session may still remove."""
        return self.removable_tokens - self.removed_tokens

    @property
    def operations_left(self) -> int:
        """How many mutations the session may still make."""
        return MAX_MUTATIONS - self.mutation_count

    def count_call(self, usage: Usage) -> None:
        """Add what one call of the model cost; calls after the consent are turns."""
        super().count_call(usage)
        self.turns += self.consented_at is not None

    def summary_line(self) -> str:
        """Return the measured outcome: ``Refinement session: 100 → 99 memories, …``."""
        saved = (self.mass_before or 0) - (self.mass_after or 0)
        facts = [f"{count} {verb}" for verb, count in self.stats.items() if count]
        if self.details_lost:
            facts.append(f"{plural(self.details_lost, 'detail')} lost")
        if self.status == "rolled_back":
            facts.append("all undone")
        done = ", ".join(facts)
        return (
            f"Refinement session: {self.memories_before} → {self.memories_after} memories, "
            f"{abs(saved)} tokens {'saved' if saved >= 0 else 'added'} ({done or 'no changes'})."
        )

    def measured(self) -> dict[str, Any]:
        """Return the figures that the record of the session's end keeps."""
        return {
            "status": self.status,
            "reason": self.end_reason,
            "trigger": self.trigger,
            "mass_before": self.mass_before,
            "mass_after": self.mass_after,
            "memories_before": self.memories_before,
            "memories_after": self.memories_after,
            "duplicates_removed": self.duplicates_removed,
            "threshold": f"{self.threshold:.{THRESHOLD_DECIMALS}f}",
            "removable_tokens": self.removable_tokens,
            "removed_tokens": self.removed_tokens,
            "mutation_count": self.mutation_count,
            "details_lost": self.details_lost,
            "stats": dict(self.stats),
            **self.usage(),
            "started_at": clock.iso(self.started_at),
        }

    def facts(self) -> dict[str, Any]:
        """Return what the log line of the ended session says: ids and figures."""
        lasted = (self.ended_at or self.created_at) - (self.started_at or self.created_at)
        return {
            "session_id": str(self.id),
            "agent_id": self.agent_id,
            "account_id": self.agent.account_id,
            "model_id": self.model_id,
            "attempt": self.attempt,
            "error_kind": self.error_kind,
            "tool_calls": self.tool_calls,
            "seconds": round(lasted.total_seconds(), 3),
            **self.measured(),
        }

    @property
    def undone_by_label(self) -> str:
        """Who undid the session: a user's e-mail address, or the channel."""
        return self.undone_by.email if self.undone_by is not None else f"the {self.undone_through}"

    @property
    def undo_summary(self) -> str:
        """When the session was undone, and by whom."""
        return f"was undone on {self.undone_at:%Y-%m-%d at %H:%M} UTC by {self.undone_by_label}"
