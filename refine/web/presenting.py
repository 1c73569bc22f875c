"""What the templates ask about models: predicates, badges, percentages and sentences.

Templates reach these functions as ``view``, so that none of them compares a status or computes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from refine import settings
from refine.llm import clients
from refine.models import AccessGrant, Agent, AuditLog, RefinementSession, User
from refine.models.agent import eligibility
from refine.models.agent.eligibility import why_unanswered
from refine.models.ledger import images_in
from refine.models.ledger.history import shown_data
from refine.models.people.acting import AGENT_OR_SYSTEM
from refine.models.people.recording import CLIENT_KEY
from refine.models.runs import WORKER_LOST
from refine.models.runs.access.grant import NO_LONGER_ALLOWED, REQUEST_LAPSES_AFTER
from refine.rules.personal import mask_ids
from refine.rules.quantities import cost_in_words, in_hours
from refine.web.charts import Amounts

NEARLY_FULL_PERCENT = 80

_Image = Mapping[str, Any]


class Badge(NamedTuple):
    """A state as a word and a shape, since no state is shown by colour alone."""

    word: str
    shape: str
    css_class: str


CONSTITUTIONAL = Badge("constitutional", "◆", "ok")


# -- figures ---------------------------------------------------------------------------------------


def percent(part: Amounts, whole: Amounts) -> int:
    """Return a share in whole percent; 0 if the whole is 0."""
    return round(100 * part / whole) if whole else 0


def before_and_after(before: int, after: int | None = None) -> str:
    """Return two figures as "20 → 19"; the first alone if the second is unknown, or the same."""
    return f"{before:,}" if after in (None, before) else f"{before:,} → {after:,}"


class Gauge(NamedTuple):
    """How full a bar is."""

    used: int
    available: int

    @property
    def percent(self) -> int:
        return percent(self.used, self.available)

    @property
    def width(self) -> int:
        """The bar's width in percent: a bar cannot overflow."""
        return min(self.percent, 100)

    @property
    def limit_x(self) -> float | None:
        """Where the bar's limit is drawn, if more is used: the bar then goes beyond it."""
        if self.used <= self.available:
            return None
        return round(100 * self.available / self.used - 1, 1)

    @property
    def css_class(self) -> str:
        if self.percent > 100:
            return "bad"
        return "warn" if self.percent >= NEARLY_FULL_PERCENT else "ok"


# -- agents and users ------------------------------------------------------------------------------


def is_rehearsed(agent: Agent) -> bool:
    """Tell whether the rehearsal model answers for the agent."""
    return clients.is_rehearsed(agent.model_id, settings.current(), is_demo=agent.account.is_demo)


def can_be_asked(agent: Agent) -> bool:
    """Tell whether a session or access can be requested of the agent."""
    return (
        eligibility.unavailable_reason(agent, automatic=False) is None
        and why_unanswered(agent) is None
    )


def agent_badge(agent: Agent, *, is_erased: bool = False) -> Badge | None:
    """Return why nothing, or nothing automatic, happens; lists do not look for erased agents."""
    if is_erased:
        return Badge("erased", "○", "calm")
    if not agent.active:
        return Badge("not active", "○", "calm")
    return Badge("paused", "‖", "calm") if agent.paused else None


def budget_badge(tokens: int, budget: int) -> Badge:
    """Say whether so many tokens are within a budget, or by how much they are over it."""
    if tokens > budget:
        return Badge(f"{max(1, percent(tokens - budget, budget))}% over budget", "!", "warn")
    return Badge("within budget", "✓", "ok")


def mass_trend(masses: Sequence[int | None]) -> str:
    """Say between which token masses a trend runs."""
    known = [mass for mass in masses if mass is not None]
    return f"from {known[0]:,} to {known[-1]:,} tokens" if known else "no tokens"


def user_badge(user: User) -> Badge:
    if not user.active:
        return Badge("not active", "○", "calm")
    if user.password_hash is None:
        return Badge("invited", "◔", "warn")
    return Badge("active", "✓", "ok")


# -- sessions --------------------------------------------------------------------------------------


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


def again(session: RefinementSession) -> str:
    """Say on a button that another session is asked for."""
    return "Retry" if session.status == "failed" else "Refine now"


def outcome_note(session: RefinementSession) -> str:
    """Say what an ended session left behind, where its reason alone does not."""
    if session.status == "incomplete":
        return "Changes made so far are kept; each was checked and recorded."
    if session.status == "declined":
        except_for = ", except that exact duplicates were removed"
        return f"Nothing was changed{except_for if session.duplicates_removed else ''}."
    if session.status == "failed":
        is_lost = session.error_kind == WORKER_LOST
        return f"The agent changed nothing{'; its worker stopped responding' if is_lost else ''}."
    return ""


# -- access ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AccessView:
    grant: AccessGrant
    user: User

    @property
    def state(self) -> str:
        return self.grant.current_status

    @property
    def is_pending(self) -> bool:
        return self.state == "requested"

    @property
    def is_granted(self) -> bool:
        return self.state == "granted"

    @property
    def permission(self) -> str:
        """What the user of a live grant may do; somebody demoted since may not read."""
        who = "You" if self.is_mine else self.grant.user.email
        verb = (
            "may read"
            if self.grant.permits_reading
            else "cannot read at the moment, although the grant runs"
        )
        return f"{who} {verb} until"

    @property
    def is_over(self) -> bool:
        return self.state == "ended"

    @property
    def is_mine(self) -> bool:
        return self.grant.user_id == self.user.id

    @property
    def can_read(self) -> bool:
        return self.is_mine and self.grant.permits_reading

    @property
    def can_end(self) -> bool:
        return self.is_granted and self.grant.may_be_ended_by(self.user)

    @property
    def can_ask_again(self) -> bool:
        is_idle = not (self.is_pending or self.is_granted)
        return (
            self.is_mine
            and is_idle
            and AccessGrant.refusal_reason(self.grant.agent, self.user) is None
        )

    @property
    def outcome(self) -> str:
        """What became of a request that was not granted, or has not been yet."""
        name, hours = self.grant.agent.name, in_hours(REQUEST_LAPSES_AFTER)
        if self.is_pending and self.grant.started_at is not None:
            return f"Asking {name}."
        if self.grant.error_kind == NO_LONGER_ALLOWED:
            return "The request was no longer allowed; the history says why. Nothing was shown."
        return {
            "requested": f"Waiting for a worker. The request lapses after {hours}.",
            "declined": f"{name} did not consent. Nothing was shown.",
            "failed": f"{name} gave no valid answer. Nothing was shown.",
            "lapsed": f"No worker could ask {name} within {hours}. Nothing was shown.",
        }[self.state]


# -- audit records ---------------------------------------------------------------------------------


def actor(email: str | None, by: str | None, agent_id: int | None) -> str:
    """Name who acted: the user, whoever the record's data names in ``by``, or the likeliest."""
    return email or by or (AGENT_OR_SYSTEM if agent_id is not None else "system")


def access_actor(record: AuditLog, agent: Agent) -> str:
    """Name who took a step of an access: its user, the agent, or the system."""
    answers = ("granted", "declined", "asking_allowed")
    is_answer = record.action.removeprefix("memory_access_") in answers
    if is_answer or record.data.get("end_reason") == "revoked_by_agent":
        return agent.name
    return str(record.user.email) if record.user is not None else "system"


def changed_core_ids(record: AuditLog) -> list[int]:
    """Return the ids of the core memories that a session's step changed."""
    if not record.data.get("operation"):
        return []
    memories = images_in(record.data)
    return [memory["id"] for memory in memories if memory["after"]["memory_type"] == "core"]


class MemoryChange(NamedTuple):
    """A row of a record's table: a memory before and after, each cell as "before → after"."""

    id: int
    memory_type: str
    tokens: str
    state: str
    constitutional: str
    tags: str
    is_new: bool


def memory_changes(record: AuditLog) -> list[MemoryChange]:
    return [_memory_change(memory) for memory in images_in(record.data)]


def _memory_change(memory: _Image) -> MemoryChange:
    before, after = memory["before"], memory["after"]
    tokens = before_and_after(*(each["token_estimate"] for each in (before, after) if each))

    def change(word: Callable[[_Image], str]) -> str:
        words = [word(image) for image in (before, after) if image is not None]
        return " → ".join(dict.fromkeys(words))

    state = change(lambda image: "kept" if image["discarded_at"] is None else "discarded")
    return MemoryChange(
        id=memory["id"],
        memory_type=after["memory_type"],
        tokens=tokens,
        state=state if before else f"created, {state}",
        constitutional=change(lambda image: "yes" if image["constitutional"] else "no"),
        tags=change(lambda image: ", ".join(image["tags"]) or "none"),
        is_new=before is None,
    )


def public_figures(record: AuditLog) -> list[tuple[str, Any]]:
    data = mask_ids(shown_data(record))
    if "cost_usd" in data:
        data["cost"] = cost_in_words(Decimal(data.pop("cost_usd")), data.get("unpriced_calls", 0))
    elsewhere = {"memories", "image_version", CLIENT_KEY}
    return sorted((name, data[name]) for name in data.keys() - elsewhere)
