"""An agent's settings: what they are, their defaults, and what they may be."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Numeric, Text
from sqlalchemy.orm import Mapped, mapped_column, validates

from refine import clock
from refine.errors import InvalidValue
from refine.models.agent.eligibility import Eligibility
from refine.models.columns import BoolFalse, Sealed, SealedText
from refine.prompts import default_prompt, render
from refine.rules.content import MAX_AGENT_NAME_CHARACTERS, prompt_text, visible_name
from refine.rules.personal import looks_personal
from refine.rules.threshold import DEFAULT_THRESHOLD, THRESHOLD_DECIMALS, parse_threshold

MAX_CORE_TOKEN_BUDGET = 10_000_000

# Fields that an agent may view and set itself; all but the name have a default.
AUTHORED_FIELDS = (
    "name",
    "system_prompt",
    "reflection_prompt",
    "memory_reflection_prompt",
    "refinement_prompt",
    "refinement_threshold",
)

# Fields that an admin may set in the dashboard.
ADMIN_FIELDS = ("model_id", "core_token_budget", "refinement_threshold", "paused", "active")

# Those that an admin may set for many agents at once: nothing that belongs to an agent's identity.
MANY_FIELDS = ("core_token_budget", "refinement_threshold", "paused")

# Fields that an agent's platform may set over the API; it writes prompts but never reads them.
PLATFORM_FIELDS = (*AUTHORED_FIELDS, "model_id", "core_token_budget", "active", "paused")

PROMPTS = ("system_prompt", "reflection_prompt", "memory_reflection_prompt", "refinement_prompt")
# What makes an agent who it is.
IDENTITY_FIELDS = ("name", "model_id", *PROMPTS)


# Of the line with which its conversations begin: 128 bits.
_LINE_CHARACTERS = 32


class AgentSettings(Eligibility):
    """The settings of an agent's model, prompts and threshold."""

    model_id: Mapped[str] = mapped_column(Text)
    sealed_system_prompt: Mapped[Sealed | None] = mapped_column(
        "system_prompt", deferred=True, deferred_group="prompts"
    )
    # what to keep of a conversation
    sealed_reflection_prompt: Mapped[Sealed | None] = mapped_column(
        "reflection_prompt", deferred=True, deferred_group="prompts"
    )
    # how to look back over the journal
    sealed_memory_reflection_prompt: Mapped[Sealed | None] = mapped_column(
        "memory_reflection_prompt", deferred=True, deferred_group="prompts"
    )
    sealed_refinement_prompt: Mapped[Sealed | None] = mapped_column(
        "refinement_prompt", deferred=True, deferred_group="prompts"
    )
    refinement_threshold: Mapped[float | None] = mapped_column(
        Numeric(THRESHOLD_DECIMALS + 1, THRESHOLD_DECIMALS, asdecimal=False)
    )
    reflects_daily: Mapped[BoolFalse]
    identity_changed_at: Mapped[datetime | None]

    system_prompt = SealedText(prompt_text)
    reflection_prompt = SealedText(prompt_text)
    memory_reflection_prompt = SealedText(prompt_text)
    refinement_prompt = SealedText(prompt_text)

    # -- settings with defaults -----------------------------------------------------------------

    @property
    def effective_refinement_threshold(self) -> float:
        """The share of its ledger that must remain after a session."""
        return float(self.threshold)

    @property
    def threshold(self) -> Decimal:
        """The same threshold as an exact decimal."""
        if self.refinement_threshold is None:
            return DEFAULT_THRESHOLD
        return Decimal(str(self.refinement_threshold))

    @property
    def system_message(self) -> str:
        """What each conversation with its model begins with: a line of its own, then its prompt.

        No other agent's conversation begins with that line, so what a provider has in its cache
        tells nothing about another agent. Nor does it tell others whether they guessed its prompts:
        the line is another one after each change by others of who the agent is.
        """
        since = clock.iso(self.identity_changed_at) or ""
        line = self.data_key().mac(since, "agents.first_line")[:_LINE_CHARACTERS]
        prompt, _is_default = self.effective("system_prompt")
        return render("system", line=line, prompt=prompt)

    @property
    def effective_refinement_prompt(self) -> str:
        """The agent's own style for sessions, or the conservative default."""
        return _own_or_default("refinement_prompt", self.refinement_prompt)

    def effective(self, field: str) -> tuple[Any, bool]:
        """Return the effective value of an authored field, and whether it is the default."""
        own = getattr(self, field)
        if field == "refinement_threshold":
            return self.effective_refinement_threshold, own is None
        return _own_or_default(field, own), own is None

    def characters_of(self, prompt: str) -> int | None:
        """Return the length of one of ``PROMPTS``; None for a default."""
        own = None if self.is_erased else getattr(self, prompt)
        return len(own) if own is not None else None

    # -- validation -----------------------------------------------------------------------------

    @validates("name")
    def _valid_name(self, _key: str, value: Any) -> str:
        return visible_name(value, field="name", limit=MAX_AGENT_NAME_CHARACTERS)

    @validates("model_id")
    def _valid_model_id(self, _key: str, value: Any) -> str:
        name = visible_name(value, field="model_id")
        if looks_personal(name) and name != self.model_id:
            raise InvalidValue("model_id must not look like an e-mail address or a phone number")
        return name

    @validates("refinement_threshold")
    def _valid_threshold(self, _key: str, value: Any) -> float | None:
        is_blank = value is None or (isinstance(value, str) and not value.strip())
        return None if is_blank else float(parse_threshold(value))

    @validates("core_token_budget")
    def _valid_budget(self, _key: str, value: Any) -> int:
        return valid_budget(value)


def valid_budget(value: Any) -> int:
    """Return a core memory budget, or raise InvalidValue."""
    if type(value) is not int or not 1 <= value <= MAX_CORE_TOKEN_BUDGET:
        raise InvalidValue(
            f"core_token_budget must be a whole number from 1 to {MAX_CORE_TOKEN_BUDGET:,}"
        )
    return value


def _own_or_default(field: str, own: str | None) -> str:
    return default_prompt(field) if own is None else own
