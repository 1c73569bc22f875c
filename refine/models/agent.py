"""Agents: the AI personas whose memory is kept."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    Numeric,
    Select,
    Text,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship, validates

from refine import clock
from refine.errors import Ambiguous, InvalidValue, NotFound
from refine.extensions import Base, database_now, db
from refine.models.account import Account
from refine.models.audit import AuditLog
from refine.models.columns import BigId, Created, Name, No, Sealed, SealedText, Updated, Yes
from refine.models.configuring import set_fields
from refine.models.image import Change
from refine.models.memory import AgentMemory, change_memories
from refine.models.wrapped_key import WrappedKey
from refine.prompts import default_prompt
from refine.rules.content import one_line, prompt_text
from refine.rules.numbers import parse_threshold
from refine.sealing import DataKey

if TYPE_CHECKING:
    from refine.models.user import User

DEFAULT_THRESHOLD = Decimal("0.75")
DEFAULT_CORE_TOKEN_BUDGET = 5_000
MAX_CORE_TOKEN_BUDGET = 10_000_000
JOURNAL_SHOWN_FOR = timedelta(days=7)

# What an agent may view and set itself; all but its name have a default.
AUTHORED_FIELDS = (
    "name",
    "system_prompt",
    "reflection_prompt",
    "memory_reflection_prompt",
    "refinement_prompt",
    "refinement_threshold",
)

# What an admin may set, on the dashboard.
ADMIN_FIELDS = ("model_id", "core_token_budget", "refinement_threshold", "paused", "active")

# What an agent's platform may set, over the API: prompts it writes, and never reads.
PLATFORM_FIELDS = (*AUTHORED_FIELDS, "model_id", "core_token_budget", "active", "paused")

PROMPTS = ("system_prompt", "reflection_prompt", "memory_reflection_prompt", "refinement_prompt")


class Composition(NamedTuple):
    """Numbers of an agent's memories; ``core_tokens`` is its token mass."""

    core: int
    core_tokens: int
    constitutional: int
    locked: int
    journal_shown: int
    journal_expired: int
    discarded: int


class Agent(Base):
    """An AI persona: name, model, prompts, settings; its memories and sessions refer to it."""

    __tablename__ = "agents"
    __table_args__ = (
        CheckConstraint(
            "refinement_threshold > 0 AND refinement_threshold <= 1", name="refinement_threshold"
        ),
        CheckConstraint(
            f"core_token_budget BETWEEN 1 AND {MAX_CORE_TOKEN_BUDGET}", name="core_token_budget"
        ),
    )

    id: Mapped[BigId]
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    data_key_id: Mapped[int] = mapped_column(ForeignKey("data_keys.id"), unique=True)
    name: Mapped[Name]
    model_id: Mapped[str] = mapped_column(Text)
    sealed_system_prompt: Mapped[Sealed | None] = mapped_column("system_prompt", deferred=True)
    sealed_reflection_prompt: Mapped[Sealed | None] = mapped_column(
        "reflection_prompt", deferred=True
    )
    sealed_memory_reflection_prompt: Mapped[Sealed | None] = mapped_column(
        "memory_reflection_prompt", deferred=True
    )
    sealed_refinement_prompt: Mapped[Sealed | None] = mapped_column(
        "refinement_prompt", deferred=True
    )
    refinement_threshold: Mapped[float | None] = mapped_column(Numeric(5, 4, asdecimal=False))
    core_token_budget: Mapped[int] = mapped_column(
        default=DEFAULT_CORE_TOKEN_BUDGET, server_default=text(str(DEFAULT_CORE_TOKEN_BUDGET))
    )
    active: Mapped[Yes]
    paused: Mapped[No]
    reflects_daily: Mapped[No]
    last_refinement_at: Mapped[datetime | None]
    identity_changed_at: Mapped[datetime | None]
    created_at: Mapped[Created]
    updated_at: Mapped[Updated]

    account: Mapped[Account] = relationship()
    wrapped_key: Mapped[WrappedKey] = relationship(lazy="joined", innerjoin=True)

    system_prompt = SealedText(prompt_text)
    reflection_prompt = SealedText(prompt_text)
    memory_reflection_prompt = SealedText(prompt_text)
    refinement_prompt = SealedText(prompt_text)

    def __init__(self, *, account: Account, name: str, model_id: str, **fields: Any) -> None:
        # the key comes first: it seals the prompts among the fields
        self.wrapped_key = WrappedKey.new("agent")
        super().__init__(account=account, name=name, model_id=model_id, **fields)

    def data_key(self) -> DataKey:
        """Return the key under which all that the agent owns is sealed."""
        return self.wrapped_key.open()

    @property
    def is_erased(self) -> bool:
        """Whether the data key was destroyed: nothing that it sealed can be read any more."""
        return self.wrapped_key.wrapped is None

    # -- finding --------------------------------------------------------------------------------

    @classmethod
    def named(cls, reference: str) -> "Agent":
        """Return the agent of that id or name; NotFound, or Ambiguous with the ids."""
        same = cls.name == reference
        if reference.isascii() and reference.isdigit() and len(reference) < 19:
            same = or_(cls.id == int(reference), same)
        found = db.session.scalars(select(cls).where(same).order_by(cls.id)).all()
        by_id = [agent for agent in found if str(agent.id) == reference]
        if not found:
            raise NotFound(f"no agent is called {reference!r}; `refine agent list` shows them")
        if len(found) > 1 and not by_id:
            ids = ", ".join(str(agent.id) for agent in found)
            raise Ambiguous(f"several agents are called {reference!r}; use an id: {ids}")
        return by_id[0] if by_id else found[0]

    def lock(self) -> None:
        """Lock and reload this agent until the transaction ends: the first lock of every change."""
        db.session.flush()  # a refresh drops what was not written yet
        db.session.refresh(self, with_for_update={"key_share": True, "of": Agent})

    def memories(self, memory_type: str | None = None) -> Select[AgentMemory]:
        """Return a query for the agent's kept memories, by origin date, then id."""
        kept = select(AgentMemory).where(
            AgentMemory.agent_id == self.id, AgentMemory.discarded_at.is_(None)
        )
        if memory_type is not None:
            kept = kept.where(AgentMemory.memory_type == memory_type)
        return kept.order_by(AgentMemory.created_at, AgentMemory.id)

    def journal(self, at: datetime) -> Select[AgentMemory]:
        """Return a query for the kept journal memories of the week before ``at``."""
        return self.memories("journal").where(AgentMemory.created_at > at - JOURNAL_SHOWN_FOR)

    # -- what the agent sees --------------------------------------------------------------------

    def memory_context(self, at: datetime | None = None) -> str | None:
        """Return the agent's memories as Markdown for its prompts, oldest first; None if none.

        Kept core memories, and kept journal memories of the last week. Lines after the first of a
        memory are indented, so that none can pose as a section or as another memory.
        """
        week_ago = (at or clock.now()) - JOURNAL_SHOWN_FOR
        core = db.session.scalars(self.memories("core")).all()
        journal = [
            memory
            for memory in db.session.scalars(self.memories("journal"))
            if memory.created_at > week_ago
        ]
        sections = [
            _section("Core memories", core),
            _section("Journal of the last week", journal),
        ]
        return "\n\n".join(filter(None, sections)) or None

    @property
    def core_token_usage(self) -> int:
        """The token mass: the estimated tokens of all kept core memories."""
        return self.core_figures()[1]

    def core_figures(self) -> tuple[int, int]:
        """Return how many core memories are kept, and their token mass."""
        kept = self.memories("core").order_by(None).subquery()
        figures = select(func.count(), func.coalesce(func.sum(kept.c.token_estimate), 0))
        count, mass = db.session.execute(figures.select_from(kept)).one()
        return count, int(mass)

    def composition(self, at: datetime | None = None) -> "Composition":
        """Return how many memories there are of each kind."""
        week_ago = (at or clock.now()) - JOURNAL_SHOWN_FOR
        kept = AgentMemory.discarded_at.is_(None)
        core = kept & (AgentMemory.memory_type == "core")
        journal = kept & (AgentMemory.memory_type == "journal")
        counted = select(
            func.count().filter(core),
            func.coalesce(func.sum(AgentMemory.token_estimate).filter(core), 0),
            func.count().filter(core & AgentMemory.constitutional),
            func.count().filter(core & AgentMemory.is_locked),
            func.count().filter(journal & (AgentMemory.created_at > week_ago)),
            func.count().filter(journal & (AgentMemory.created_at <= week_ago)),
            func.count().filter(~kept),
        ).where(AgentMemory.agent_id == self.id)
        return Composition(*db.session.execute(counted).one())

    def remember(
        self,
        content: object,
        memory_type: object,
        tags: object = (),
        at: datetime | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> tuple[AgentMemory, bool]:
        """Save a memory; return it, and whether it is one that was there already.

        An exact duplicate of a kept core memory is not saved again. Recorded as ``memory_saved``,
        with ``data``.
        """
        at = at or clock.now()
        memory = AgentMemory(
            agent=self, content=content, memory_type=memory_type, tags=tags, created_at=at
        )
        self.lock()
        same = self.memories("core").where(AgentMemory.content_hash == memory.content_hash)
        if (existing := db.session.scalar(same.limit(1))) is not None:
            return existing, True
        return self._save(memory, data, at), False

    def tell(self, content: str, at: datetime | None = None) -> AgentMemory:
        """Leave a note in the agent's journal, whatever it remembers already; return it.

        Recorded as ``memory_saved``.
        """
        at = at or clock.now()
        self.lock()
        note = AgentMemory(agent=self, content=content, memory_type="journal", created_at=at)
        return self._save(note, None, at)

    def _save(
        self, memory: AgentMemory, data: Mapping[str, Any] | None, at: datetime
    ) -> AgentMemory:
        db.session.add(memory)
        db.session.flush()
        change_memories(
            "memory_saved",
            [Change(memory.id, None, memory.image())],
            agent=self,
            subject=("AgentMemory", memory.id),
            data=data,
            at=at,
        )
        return memory

    # -- settings with defaults -----------------------------------------------------------------

    @property
    def effective_refinement_threshold(self) -> float:
        """The share of its ledger that a session must leave standing."""
        return float(self.threshold)

    @property
    def threshold(self) -> Decimal:
        """The same as a decimal, for exact reckoning."""
        if self.refinement_threshold is None:
            return DEFAULT_THRESHOLD
        return Decimal(str(self.refinement_threshold))

    @property
    def effective_refinement_prompt(self) -> str:
        """The agent's own style for sessions, or the conservative default."""
        return self.refinement_prompt or default_prompt("refinement_prompt")

    def authored(self, field: str) -> tuple[Any, bool]:
        """Return a field of ``AUTHORED_FIELDS`` as it takes effect, and whether it is unset."""
        own = getattr(self, field)
        if own is not None:
            return own, False
        if field == "refinement_threshold":
            return self.effective_refinement_threshold, True
        return default_prompt(field), True

    def author(self, field: str, value: object, at: datetime | None = None) -> None:
        """Set a field of ``AUTHORED_FIELDS`` as the agent itself; None sets it back to the default.

        A reflection prompt of its own turns its daily reflection on, the default turns it off.
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
            self._record_settings(None, at, data=data, sealed={"before": before, "after": after})

    def configure(self, *, user: "User", at: datetime | None = None, **fields: Any) -> list[str]:
        """Set fields of ``ADMIN_FIELDS`` as a user; return which of them changed.

        Recorded as ``agent_settings_update``. InvalidValue changes nothing. A changed model is a
        changed identity: for a day (the database's) nobody is let in on its word.
        """
        self.lock()
        changes = set_fields(self, fields)
        if "model_id" in changes:
            self.identity_changed_at = database_now()
        if changes:
            self._record_settings(user, at, data={"changes": changes, "by": "user"})
        return list(changes)

    def be_managed(self, hand: Mapping[str, Any], **fields: Any) -> list[str]:
        """Set fields of ``PLATFORM_FIELDS`` as the platform; return which of them changed.

        Recorded as ``agent_settings_update``, each prompt by itself and sealed; ``hand`` says in
        the records who did it. InvalidValue is the caller's to roll back. As with a user's change,
        a new model or prompt is a changed identity. A ``reflection_prompt`` that is taken away ends
        the daily reflection, one that is set does not begin it: that is the agent's.
        """
        self.lock()
        before = {field: getattr(self, field) for field in PROMPTS if field in fields}
        after = {field: fields.pop(field) for field in before}
        changes = set_fields(self, fields)
        if changes:
            self._record_settings(None, None, data={"changes": changes, **hand})
        for field, value in after.items():
            setattr(self, field, value)
            after[field] = getattr(self, field)
        if "reflection_prompt" in after and after["reflection_prompt"] is None:
            self.reflects_daily = False
        prompts = [field for field in after if after[field] != before[field]]
        for field in prompts:
            self._record_settings(
                None,
                None,
                data={"field": field, "characters": len(after[field] or ""), **hand},
                sealed={"before": before[field], "after": after[field]},
            )
        if prompts or "model_id" in changes:
            self.identity_changed_at = database_now()
        return [*changes, *prompts]

    def clear_refinement_prompt(self, *, user: "User", at: datetime | None = None) -> bool:
        """Set the style of sessions back to the default, unread; tell whether there was one."""
        self.lock()
        before = self.refinement_prompt
        if before is None:
            return False
        self.refinement_prompt = None
        self.identity_changed_at = database_now()
        self._record_settings(
            user,
            at,
            data={"field": "refinement_prompt", "by": "user", "characters": 0},
            sealed={"before": before, "after": None},
        )
        return True

    def characters_of(self, prompt: str) -> int | None:
        """Return the length of one of ``PROMPTS``; None where there is none of its own."""
        own = None if self.is_erased else getattr(self, prompt)
        return len(own) if own is not None else None

    def last_prompt_changes(self) -> dict[str, datetime]:
        """Return when each of ``PROMPTS`` was last changed; those never changed are left out."""
        field = AuditLog.data["field"].as_string()
        last = (
            select(field, func.max(AuditLog.created_at))
            .where(AuditLog.agent_id == self.id, AuditLog.action == "agent_settings_update")
            .where(field.in_(PROMPTS))
            .group_by(field)
        )
        return dict(db.session.execute(last).all())

    def _record_settings(self, user: "User | None", at: datetime | None, **record: Any) -> None:
        AuditLog.record(
            "agent_settings_update",
            agent=self,
            user=user,
            subject=("Agent", self.id),
            at=at,
            **record,
        )

    # -- when it is due -------------------------------------------------------------------------

    def needs_refinement(self, at: datetime | None = None) -> bool:
        """Tell whether a session is due: for its account's slot, or because it is over budget."""
        at = at or clock.now()
        may_be_asked = self.active and not self.paused and not self.is_erased
        if not may_be_asked or not self.has_unlocked_core_memory():
            return False
        return self.slot_is_due(at) or self.is_over_budget

    def slot_is_due(self, at: datetime) -> bool:
        """Tell whether the agent was not refined since its account's last slot."""
        if self.last_refinement_at is None:
            return True
        return self.last_refinement_at < self.account.last_slot(at)

    @property
    def is_over_budget(self) -> bool:
        """Whether the token mass exceeds the budget."""
        return self.core_token_usage > self.core_token_budget

    def has_unlocked_core_memory(self) -> bool:
        """Tell whether there is a kept core memory that a session may change."""
        unlocked = self.memories("core").where(~AgentMemory.is_locked).limit(1)
        return db.session.scalar(unlocked) is not None

    # -- validation -----------------------------------------------------------------------------

    @validates("name", "model_id")
    def _valid_line(self, key: str, value: Any) -> str:
        return one_line(value, field=key)

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


def _section(title: str, memories: Sequence[AgentMemory]) -> str | None:
    entries = [
        f"- ({memory.created_at:%Y-%m-%d}) {_indented(memory.content)}" for memory in memories
    ]
    return "\n".join([f"## {title}", "", *entries]) if entries else None


def _indented(content: str) -> str:
    return "\n  ".join(content.splitlines())
