"""Predicates, badges and sentences about models, in templates as ``view``."""

from decimal import Decimal
from typing import NamedTuple

from refine import settings
from refine.llm import provider
from refine.models import Agent, RefinementSession, User
from refine.models.agent.eligibility import NO_KEY, unavailable_reason, why_unanswered
from refine.models.runs.run import WORKER_LOST
from refine.models.runs.session.judging import CAUSES
from refine.models.runs.session.session import LOOP_EDITS
from refine.rules.quantities import plural
from refine.web.words import SET_A_KEY, Badge, first_upper

NEARLY_FULL_PERCENT = 80
AGENT_OR_SYSTEM = "agent or Refine"
CONSTITUTIONAL = Badge("constitutional", "◆", "locked")


def percent(part: int | Decimal, whole: int | Decimal) -> int:
    return round(100 * part / whole) if whole else 0


def before_and_after(before: int, after: int | None = None) -> str:
    return f"{before:,}" if after in (None, before) else f"{before:,} → {after:,}"


class Gauge(NamedTuple):
    used: int
    available: int

    @property
    def percent(self) -> int:
        return percent(self.used, self.available)

    @property
    def width(self) -> int:
        return min(self.percent, 100)

    @property
    def limit_x(self) -> float | None:
        if self.used <= self.available:
            return None
        return round(100 * self.available / self.used - 1, 1)

    @property
    def css_class(self) -> str:
        if self.percent > 100:
            return "bad"
        return "warn" if self.percent >= NEARLY_FULL_PERCENT else "ok"


def is_rehearsed(agent: Agent) -> bool:
    return provider.is_rehearsed(agent.model_id, settings.current(), is_demo=agent.account.is_demo)


def can_be_asked(agent: Agent) -> bool:
    return unavailable_reason(agent, automatic=False) is None and why_unanswered(agent) is None


def another_try(session: RefinementSession) -> str | None:
    """Name another session, if it is worth asking for rather than would go the same way."""
    words = {"failed": "Retry", "declined": "Refine now"}
    return words.get(session.status) if can_be_asked(session.agent) else None


def readable(session: RefinementSession) -> str | None:
    """Say what access to the session would show; None for nothing."""
    if session.mutation_count or session.duplicates_removed:
        return "its changes"
    has_spoken = session.consented_at is not None or session.status == "declined"
    return "what it said" if has_spoken and not session.is_live else None


def why_not_asked(agent: Agent) -> str | None:
    """Say why nobody answers for it, and what to do; None if somebody does."""
    if (reason := why_unanswered(agent)) is None:
        return None
    said = f"{agent.name} cannot be asked: {reason}."
    return f"{said} {SET_A_KEY}" if reason == NO_KEY else said


def agent_badge(agent: Agent, *, is_erased: bool = False) -> Badge | None:
    if is_erased:
        return Badge("erased", "○", "calm")
    if not agent.active:
        return Badge("not active", "○", "calm")
    return Badge("paused", "‖", "calm") if agent.paused else None


def budget_badge(tokens: int, budget: int) -> Badge:
    if tokens > budget:
        return Badge(f"{max(1, percent(tokens - budget, budget))}% over budget", "!", "warn")
    return Badge("within budget", "✓", "ok")


def user_badge(user: User) -> Badge:
    if user.locked_at is not None:
        return Badge("locked", "✗", "bad")
    if not user.active:
        return Badge("not active", "○", "calm")
    if user.password_hash is None:
        return Badge("invited", "◔", "warn")
    return Badge("active", "✓", "ok")


def progress(session: RefinementSession) -> str:
    name = session.agent.name
    if not session.is_running:
        return "Waiting for a worker."
    if session.mass_before is None:
        return "Removing exact duplicates."
    if session.consented_at is None:
        return f"Asking {name} for consent."
    if session.is_stop_requested:
        return "Stopping before the next step."
    return f"{name} consented and is working."


def outcome(session: RefinementSession) -> str:
    name, reason = session.agent.name, f"{first_upper(session.end_reason or '')}."
    duplicates = session.duplicates_removed
    match session.status:
        case "completed":
            return f"{name} finished{'' if session.has_changes else ' and changed nothing'}."
        case "declined":
            removed = plural(duplicates, "exact duplicate")
            but = f" but {removed}, removed before it was asked" if duplicates else ""
            return f"{name} declined. Nothing was touched{but}."
        case "incomplete":
            return f"{reason} Changes made so far are kept; each was checked."
        case "rolled_back":
            return f"{reason} All of it was undone."
        case "failed":
            lost = "; its worker stopped responding" if session.error_kind == WORKER_LOST else ""
            return f"{reason} {name} changed nothing{lost}."
    return reason


def saving(session: RefinementSession) -> str:
    """Say what it changed for every prompt."""
    tokens = 0 if session.undone_at is not None else session.saved_tokens
    if not tokens:
        return "As many tokens in every prompt as before"
    share = percent(abs(tokens), session.mass_without_it)
    fewer = "fewer" if tokens > 0 else "more"
    return f"{plural(abs(tokens), 'token')} {fewer} in every prompt ({share}%)"


def taken_back(session: RefinementSession) -> str | None:
    if session.undone_at is not None:
        memories = plural(session.memories_at_first, "memory", "memories")
        return f"Undone: {memories}, {plural(session.mass_without_it, 'token')} again"
    return "Rolled back: its edits are taken back" if session.status == "rolled_back" else None


# What else a session's stats count besides its edits.
_JUDGED = {
    "retired": ("Memories retired", "as outdated or wrong"),
    "overruled": ("Doubts cleared", "the rules doubted, the second reading found nothing"),
    "worn": ("Memories that lost words", "a few are allowed each session"),
    "unread": ("Edits without a second reading", "judged by the rules alone"),
}


def refusals(session: RefinementSession) -> dict[str, int]:
    named = {why: session.counted(f"refused_{cause}") for cause, why in CAUSES.items()}
    return {why: count for why, count in named.items() if count}


def judged(session: RefinementSession) -> dict[tuple[str, str], int]:
    """Return counts by a label and what it means."""
    return {label: n for stat, label in _JUDGED.items() if (n := session.counted(stat))}


_BY_AGENTS = {
    *LOOP_EDITS,
    *("memory_refinement_complete", "memory_refinement_declined"),
    *("memory_saved", "memory_promoted"),
    *("memory_access_granted", "memory_access_declined", "memory_access_revoked"),
}
_BY_BREAKER = "memory_refinement_rollback"


def actor(email: str | None, by: str | None, agent_name: str | None, action: str) -> str:
    """Name who acted: the user, whoever the record's data names in ``by``, the agent, the breaker,
    or Refine.
    """
    if by == "agent" or (not by and action in _BY_AGENTS):
        by = agent_name
    return email or by or ("the breaker" if action == _BY_BREAKER else "Refine")
