"""An agent's identity and settings, and who may change them."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import CheckConstraint, Connection, Numeric, Text, event, func, or_, select
from sqlalchemy.orm import Mapped, Mapper, mapped_column, validates

from refine.errors import Ambiguous, InvalidValue, NotFound
from refine.extensions import Base, database_now, db
from refine.models.agent.eligibility import Eligibility
from refine.models.audit import AuditLog, ChainHead
from refine.models.audit.record import Actor
from refine.models.columns import BoolFalse, Created, Sealed, SealedText, Updated, row_id
from refine.models.keys import WrappedKey
from refine.models.people import Account
from refine.models.settings_change import require_allowed, set_fields
from refine.prompts import default_prompt
from refine.rules.content import prompt_text, visible_name
from refine.rules.ids import id_in, looks_personal
from refine.rules.threshold import (
    DEFAULT_THRESHOLD,
    THRESHOLD_DECIMALS,
    parse_threshold,
    threshold_check,
)

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

# Fields that an agent's platform may set over the API; it writes prompts but never reads them.
PLATFORM_FIELDS = (*AUTHORED_FIELDS, "model_id", "core_token_budget", "active", "paused")

PROMPTS = ("system_prompt", "reflection_prompt", "memory_reflection_prompt", "refinement_prompt")
# What makes an agent who it is.
IDENTITY_FIELDS = ("name", "model_id", *PROMPTS)

# The question that asks for access lists the changes by others in this time.
CHANGE_HISTORY_WINDOW = timedelta(days=30)


class Agent(Eligibility, Base):
    """An AI persona: name, model, prompts, settings; its memories and sessions refer to it."""

    __tablename__ = "agents"
    __table_args__ = (
        CheckConstraint(threshold_check("refinement_threshold"), name="refinement_threshold"),
        CheckConstraint(
            f"core_token_budget BETWEEN 1 AND {MAX_CORE_TOKEN_BUDGET}", name="core_token_budget"
        ),
    )

    model_id: Mapped[str] = mapped_column(Text)
    sealed_system_prompt: Mapped[Sealed | None] = mapped_column(
        "system_prompt", deferred=True, deferred_group="prompts"
    )
    sealed_reflection_prompt: Mapped[Sealed | None] = mapped_column(
        "reflection_prompt", deferred=True, deferred_group="prompts"
    )
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
    created_at: Mapped[Created]
    updated_at: Mapped[Updated]

    system_prompt = SealedText(prompt_text)
    reflection_prompt = SealedText(prompt_text)
    memory_reflection_prompt = SealedText(prompt_text)
    refinement_prompt = SealedText(prompt_text)

    digest_columns = (
        "id",
        "account_id",
        "data_key_id",
        "is_bound",
        "name",
        "model_id",
        "sealed_system_prompt",
        "sealed_reflection_prompt",
        "sealed_memory_reflection_prompt",
        "sealed_refinement_prompt",
        "refinement_threshold",
        "core_token_budget",
        "active",
        "paused",
        "reflects_daily",
        "identity_changed_at",
    )

    def __init__(self, *, account: Account, name: str, model_id: str, **fields: Any) -> None:
        # id and key come first: they seal the prompts among the fields
        self.wrapped_key = WrappedKey.for_agent(row_id(self))
        self.is_bound = True
        super().__init__(account=account, name=name, model_id=model_id, **fields)

    @classmethod
    def create(cls, account: Account, *, actor: Mapping[str, Any], **fields: Any) -> "Agent":
        """Add an agent, recorded as ``agent_created``; ``actor`` says in the data who adds it."""
        made = cls(account=account, **fields)
        db.session.add(made)
        db.session.flush()
        about = {"model_id": made.model_id, **actor}
        made.record("agent_created", subject=("Agent", made.id), data=about)
        return made

    # -- finding --------------------------------------------------------------------------------

    @classmethod
    def named(cls, reference: str) -> "Agent":
        """Return the agent of that id or name; NotFound, or Ambiguous with the ids."""
        same = cls.name == reference
        if (agent_id := id_in(reference)) is not None:
            same = or_(cls.id == agent_id, same)
        found = db.session.scalars(select(cls).where(same).order_by(cls.id)).all()
        by_id = [agent for agent in found if str(agent.id) == reference]
        if not found:
            raise NotFound(f"no agent is called {reference!r}; `refine agent list` shows them")
        if len(found) > 1 and not by_id:
            ids = ", ".join(str(agent.id) for agent in found)
            raise Ambiguous(f"several agents are called {reference!r}; use an id: {ids}")
        return by_id[0] if by_id else found[0]

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
    def effective_system_prompt(self) -> str:
        """The agent's own system prompt, or the default."""
        return _own_or_default("system_prompt", self.system_prompt)

    @property
    def effective_refinement_prompt(self) -> str:
        """The agent's own style for sessions, or the conservative default."""
        return _own_or_default("refinement_prompt", self.refinement_prompt)

    @property
    def next_session_at(self) -> datetime | None:
        """When the next scheduled session is due; None if none is."""
        is_served = self.unavailable_reason(automatic=True) is None
        return self.account.next_due_at if is_served else None

    def effective(self, field: str) -> tuple[Any, bool]:
        """Return the effective value of an authored field, and whether it is the default."""
        own = getattr(self, field)
        if field == "refinement_threshold":
            return self.effective_refinement_threshold, own is None
        return _own_or_default(field, own), own is None

    def author(self, field: str, value: object, at: datetime | None = None) -> None:
        """Set a field of ``AUTHORED_FIELDS`` as the agent itself; None restores the default.

        Writing a reflection prompt turns the daily reflection on, the default turns it off.
        Recorded as ``agent_settings_update``, the values sealed. InvalidValue changes nothing.
        """
        if field == "name" and value is None:
            raise InvalidValue("name has no default; give one")
        self.lock()
        before, reflected = getattr(self, field), self.reflects_daily
        setattr(self, field, value)
        after = getattr(self, field)
        data = {"field": field, "by": "agent", "characters": len(str(after or ""))}
        if field == "reflection_prompt":
            self.reflects_daily = after is not None
            data["reflects_daily"] = self.reflects_daily
        if after != before or self.reflects_daily != reflected:
            self._record_settings(at=at, data=data, sealed={"before": before, "after": after})

    def configure(self, *, user: Actor, at: datetime | None = None, **fields: Any) -> list[str]:
        """Set fields of ``ADMIN_FIELDS`` as a user; return the names of those that changed.

        Recorded as ``agent_settings_update``. InvalidValue, also for any other field, changes
        nothing. A new model changes the agent's identity (see ``_mark_identity_change``).
        """
        require_allowed(fields, ADMIN_FIELDS)
        self.lock()
        changes = set_fields(self, fields)
        if changes:
            self._record_settings(user=user, at=at, data={"changes": changes, "by": "user"})
        if self._mark_identity_change(changes):
            self._note_changes_in_journal("An admin", changes, at)
        return list(changes)

    def configure_by_platform(self, actor: Mapping[str, Any], **fields: Any) -> list[str]:
        """Set fields of ``PLATFORM_FIELDS``; return the names of those that changed.

        Recorded as ``agent_settings_update``, each prompt in a sealed record of its own; ``actor``
        names the platform's token in the records. The agent is told in its journal. After
        InvalidValue the caller rolls back. A new name, model or prompt changes the agent's
        identity, as in ``configure``. Removing the ``reflection_prompt`` ends the daily reflection;
        only the agent itself can turn it on.

        A prompt that the platform did not write last counts as changed even by the same words:
        otherwise the platform, or whoever sees the records, would learn that it guessed them.
        """
        require_allowed(fields, PLATFORM_FIELDS)
        self.lock()
        before = {field: getattr(self, field) for field in PROMPTS if field in fields}
        after = {field: fields.pop(field) for field in before}
        unknown = before.keys() - self._prompts_last_written_by("platform")
        changes = set_fields(self, fields)
        if changes:
            self._record_settings(data={"changes": changes, **actor})
        for field, value in after.items():
            if field in unknown:
                setattr(self, field, None)  # the same words are sealed anew
            setattr(self, field, value)
            after[field] = getattr(self, field)
        if "reflection_prompt" in after and after["reflection_prompt"] is None:
            self.reflects_daily = False
        prompts = [
            field
            for field, value in after.items()
            if value != before[field] or (value is not None and field in unknown)
        ]
        for field in prompts:
            self._record_settings(
                data={"field": field, "characters": len(after[field] or ""), **actor},
                sealed={"before": before[field], "after": after[field]},
            )
        changed = [*changes, *prompts]
        self._mark_identity_change(changed)
        if changed:
            self._note_changes_in_journal("My platform", changed)
        return changed

    def clear_refinement_prompt(self, *, user: Actor, at: datetime | None = None) -> bool:
        """Reset the session style to the default without reading it; tell whether it was set."""
        self.lock()
        before = self.refinement_prompt
        if before is None:
            return False
        self.refinement_prompt = None
        self._record_settings(
            user=user,
            at=at,
            data={"field": "refinement_prompt", "by": "user", "characters": 0},
            sealed={"before": before, "after": None},
        )
        self._mark_identity_change(["refinement_prompt"])
        self._note_changes_in_journal("An admin", ["refinement_prompt"], at)
        return True

    def changes_by_others(self) -> list[dict[str, str]]:
        """Return the recent changes of ``IDENTITY_FIELDS``, except for the agent's own.

        Each as its date, what was changed, and by whom: a platform or an admin.
        """
        by = AuditLog.data["by"].as_string()
        recent = select(AuditLog).where(
            AuditLog.agent_id == self.id,
            AuditLog.action == "agent_settings_update",
            by != "agent",
            AuditLog.created_at > database_now() - CHANGE_HISTORY_WINDOW,
        )
        return [
            {
                "at": f"{record.created_at:%Y-%m-%d %H:%M}",
                "what": _label(field),
                "by": "your platform" if record.data["by"] == "platform" else "an admin",
            }
            for record in db.session.scalars(recent.order_by(AuditLog.sequence))
            for field in (*record.data.get("changes", ()), record.data.get("field"))
            if field in IDENTITY_FIELDS
        ]

    def _mark_identity_change(self, changed: Iterable[str]) -> bool:
        """Set when somebody else last changed the identity, if this changes it; tell whether.

        For ``IDENTITY_CHANGE_WAIT`` from then, nobody may request access.
        """
        if is_change := any(field in IDENTITY_FIELDS for field in changed):
            self.identity_changed_at = database_now()
        return is_change

    def _note_changes_in_journal(
        self, who: str, changed: Iterable[str], at: datetime | None = None
    ) -> None:
        labels = ", ".join(map(_label, changed))
        self.ledger.add_journal_note(f"{who} changed my settings: {labels}.", at)

    def characters_of(self, prompt: str) -> int | None:
        """Return the length of one of ``PROMPTS``; None for a default."""
        own = None if self.is_erased else getattr(self, prompt)
        return len(own) if own is not None else None

    def last_prompt_changes(self) -> dict[str, datetime]:
        """Return when each of ``PROMPTS`` was last changed; unchanged ones are left out."""
        field = AuditLog.data["field"].as_string()
        last = (
            select(field, func.max(AuditLog.created_at))
            .where(AuditLog.agent_id == self.id, AuditLog.action == "agent_settings_update")
            .where(field.in_(PROMPTS))
            .group_by(field)
        )
        return dict(db.session.execute(last).all())

    def _prompts_last_written_by(self, who: str) -> set[str]:
        """Return which of ``PROMPTS`` were last written by ``who``, counting what it came with."""
        field, by = AuditLog.data["field"].as_string(), AuditLog.data["by"].as_string()
        written = select(field, by).where(
            AuditLog.agent_id == self.id,
            or_(AuditLog.action == "agent_created", field.in_(PROMPTS)),
        )
        last: dict[str, str] = {}
        for prompt, writer in db.session.execute(written.order_by(AuditLog.sequence)):
            last.update(dict.fromkeys(PROMPTS if prompt is None else [prompt], writer))
        return {prompt for prompt, writer in last.items() if writer == who}

    def _record_settings(self, **about: Any) -> None:
        self.record("agent_settings_update", subject=("Agent", self.id), **about)

    # -- validation -----------------------------------------------------------------------------

    @validates("name", "model_id")
    def _valid_line(self, key: str, value: Any) -> str:
        name = visible_name(value, field=key)
        if key == "model_id" and looks_personal(name) and name != self.model_id:
            raise InvalidValue("model_id must not look like an e-mail address or a phone number")
        return name

    @validates("refinement_threshold")
    def _valid_threshold(self, _key: str, value: Any) -> float | None:
        is_blank = value is None or (isinstance(value, str) and not value.strip())
        return None if is_blank else float(parse_threshold(value))

    @validates("core_token_budget")
    def _valid_budget(self, _key: str, value: Any) -> int:
        if type(value) is not int or not 1 <= value <= MAX_CORE_TOKEN_BUDGET:
            raise InvalidValue(
                f"core_token_budget must be a whole number from 1 to {MAX_CORE_TOKEN_BUDGET:,}"
            )
        return value


@event.listens_for(Agent, "after_insert")
def _begin_chain(_mapper: Mapper[Any], connection: Connection, agent: Agent) -> None:
    ChainHead.begin(agent.chain_owner, connection)


def _own_or_default(field: str, own: str | None) -> str:
    return default_prompt(field) if own is None else own


def _label(field: str) -> str:
    return field.removesuffix("_id").replace("_", " ")
