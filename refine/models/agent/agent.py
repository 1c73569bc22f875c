"""An agent: its settings and figures, its key, chain and ledger."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar, Self
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Computed,
    Connection,
    ForeignKey,
    Index,
    Numeric,
    Select,
    Text,
    event,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import (
    Mapped,
    Mapper,
    mapped_column,
    relationship,
    selectinload,
    undefer_group,
    validates,
)

from refine import clock
from refine.errors import Ambiguous, InvalidValue, NotFound
from refine.extensions import Base, db
from refine.models.attested import Attested, ChainOwner
from refine.models.audit import AuditLog, Chain, ChainHead
from refine.models.audit.record import Actor
from refine.models.columns import BigId, BoolFalse, BoolTrue, Created, Name, Sealed, Updated, id_in
from refine.models.keys import SealedText, WrappedKey, key_owner_name, row_id
from refine.models.ledger.ledger import Ledger
from refine.models.people import Account
from refine.prompts import default_prompt, render
from refine.rules.content import MAX_AGENT_NAME_CHARACTERS, prompt_text, visible_name
from refine.rules.personal import looks_personal
from refine.rules.retention import (
    DEFAULT_THRESHOLD,
    THRESHOLD_DECIMALS,
    parse_threshold,
    threshold_check,
)
from refine.sealing import DataKey

PROMPTS = ("system_prompt", "reflection_prompt", "memory_reflection_prompt", "refinement_prompt")
# An agent's identity.
IDENTITY_FIELDS = ("name", "model_id", *PROMPTS)
# Fields that an agent may view and set itself; all but the name have a default.
AUTHORED_FIELDS = ("name", *PROMPTS, "refinement_threshold")
# Fields that an admin may set, for one agent and for many: for many nothing of their identity.
ADMIN_FIELDS = ("model_id", "core_token_budget", "refinement_threshold", "paused", "active")
MANY_FIELDS = ("core_token_budget", "refinement_threshold", "paused")
# Fields that an agent's platform may set over the API; it writes prompts but never reads them.
PLATFORM_FIELDS = (*AUTHORED_FIELDS, "model_id", "core_token_budget", "active", "paused")

DEFAULT_CORE_TOKEN_BUDGET = 5_000
MAX_CORE_TOKEN_BUDGET = 10_000_000
ERASED = "the agent was erased"
# Figures of the ledger and the sessions. Triggers write them in the transaction of each change, and
# ``refine audit verify`` compares them. A session measures its allowance itself.
_FIGURES = (
    *("core_tokens", "core_count", "ledger_version", "last_session_id", "last_session_at"),
    *("last_session_status", "last_session_error_kind"),
    *("last_session_undone_at", "last_session_ended_at", "over_budget_since"),
)
# The first line of its conversations: 128 bits.
_LINE_CHARACTERS = 32

# The only agent whose key may be opened now; None: any agent's.
_holder: ContextVar[int | None] = ContextVar("holder", default=None)


@contextmanager
def only_key_of(agent_id: int | None) -> Iterator[None]:
    """Allow only this agent's key within the block, whatever rows SQL finds; None: any key."""
    before = _holder.set(agent_id)
    try:
        yield
    finally:
        _holder.reset(before)


def _prompt(name: str) -> Any:
    return mapped_column(name, deferred=True, deferred_group="prompts")


class Agent(Attested, Base):
    """An AI persona: name, model, prompts, settings; its memories and sessions refer to it."""

    __tablename__ = "agents"
    __table_args__ = (
        CheckConstraint(threshold_check("refinement_threshold"), name="refinement_threshold"),
        CheckConstraint(
            f"core_token_budget BETWEEN 1 AND {MAX_CORE_TOKEN_BUDGET}", name="core_token_budget"
        ),
        Index("ix_agents_name", func.lower(text("name")), "id"),
        Index("ix_agents_account_id_name", "account_id", func.lower(text("name")), "id"),
        Index(
            "ix_agents_over_budget", "account_id", postgresql_where=text("over_budget AND active")
        ),
        Index("ix_agents_erase_at", "erase_at", postgresql_where=text("erase_at IS NOT NULL")),
        Index("ix_agents_last_session_status", "last_session_status", "account_id"),
        Index(
            "ix_agents_last_session_error_kind",
            "last_session_error_kind",
            "account_id",
            postgresql_where=text("last_session_error_kind IS NOT NULL"),
        ),
    )

    # the figures are read when they are needed: triggers count what is added with the agent
    __mapper_args__ = {**Attested.__mapper_args__, "eager_defaults": False}

    id: Mapped[BigId]
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    data_key_id: Mapped[int] = mapped_column(ForeignKey("data_keys.id"), unique=True)
    name: Mapped[Name]
    model_id: Mapped[str] = mapped_column(Text)
    sealed_system_prompt: Mapped[Sealed | None] = _prompt("system_prompt")
    # what to keep of a conversation
    sealed_reflection_prompt: Mapped[Sealed | None] = _prompt("reflection_prompt")
    # how to look back over the journal
    sealed_memory_reflection_prompt: Mapped[Sealed | None] = _prompt("memory_reflection_prompt")
    sealed_refinement_prompt: Mapped[Sealed | None] = _prompt("refinement_prompt")
    refinement_threshold: Mapped[float | None] = mapped_column(
        Numeric(THRESHOLD_DECIMALS + 1, THRESHOLD_DECIMALS, asdecimal=False)
    )
    core_token_budget: Mapped[int] = mapped_column(
        default=DEFAULT_CORE_TOKEN_BUDGET, server_default=text(str(DEFAULT_CORE_TOKEN_BUDGET))
    )
    active: Mapped[BoolTrue]
    paused: Mapped[BoolFalse]
    reflects_daily: Mapped[BoolFalse]
    identity_changed_at: Mapped[datetime | None]
    # the clock erases it then, for good
    erase_at: Mapped[datetime | None]
    last_refinement_at: Mapped[datetime | None]
    created_at: Mapped[Created]
    updated_at: Mapped[Updated]

    # figures
    core_tokens: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    core_count: Mapped[int] = mapped_column(server_default=text("0"))
    # rises with every change of a memory
    ledger_version: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    over_budget: Mapped[bool] = mapped_column(
        Computed("core_tokens > core_token_budget", persisted=True)
    )
    over_budget_since: Mapped[datetime | None]
    # of the latest session, regardless of status
    last_session_id: Mapped[UUID | None]
    last_session_at: Mapped[datetime | None]
    last_session_status: Mapped[str | None] = mapped_column(Text)
    last_session_error_kind: Mapped[str | None] = mapped_column(Text)
    last_session_undone_at: Mapped[datetime | None]
    last_session_ended_at: Mapped[datetime | None]

    system_prompt = SealedText(prompt_text)
    reflection_prompt = SealedText(prompt_text)
    memory_reflection_prompt = SealedText(prompt_text)
    refinement_prompt = SealedText(prompt_text)

    account: Mapped[Account] = relationship()
    wrapped_key: Mapped[WrappedKey] = relationship(lazy="joined", innerjoin=True)
    # by name, because this module may not import it
    access_grants: Mapped[list[Any]] = relationship(
        "AccessGrant", viewonly=True, order_by="AccessGrant.created_at"
    )

    unsigned: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(_FIGURES, "written by triggers"),
        "last_refinement_at": "says when a session is due, not what it may do",
        "updated_at": "set by every update, also of unsigned columns",
    }

    def __init__(self, *, account: Account, name: str, model_id: str, **fields: Any) -> None:
        # id and key come first: they are needed to seal the prompts among the fields
        self.wrapped_key = WrappedKey.for_agent(row_id(self))
        super().__init__(account=account, name=name, model_id=model_id, **fields)

    @classmethod
    def create(cls, account: Account, *, actor: Mapping[str, Any], **fields: Any) -> "Agent":
        """Add an agent, recorded as ``agent_created``; ``actor`` says in the data who adds it."""
        made = cls(account=account, **fields)
        db.session.add(made)
        db.session.flush()
        about = {"model_id": made.model_id, **actor}
        made.record("agent_created", data=about)
        return made

    @classmethod
    def named(cls, reference: str) -> "Agent":
        """Return the agent of an id or name, exact ones first; NotFound, or Ambiguous."""
        same = func.lower(cls.name) == func.lower(reference)
        if (agent_id := id_in(reference)) is not None:
            same = or_(cls.id == agent_id, same)
        found = db.session.scalars(select(cls).where(same).order_by(cls.id)).all()
        if not found:
            raise NotFound(f"no agent is called {reference!r}; `refine agent list` shows them")
        by_id = [agent for agent in found if str(agent.id) == reference]
        best = by_id or [agent for agent in found if agent.name == reference] or found
        if len(best) > 1:
            ids = ", ".join(str(agent.id) for agent in best)
            raise Ambiguous(f"several agents are called {reference!r}; use an id: {ids}")
        return best[0]

    # -- its key and its chain -------------------------------------------------------------------

    def data_key(self) -> DataKey:
        """Open the agent's key; RowAltered if it was altered, or is outside ``only_key_of``."""
        holder = _holder.get()
        self.require_genuine(id=self.id if holder is None else holder)
        return self.wrapped_key.open(key_owner_name(self.id))

    @property
    def is_erased(self) -> bool:
        return self.wrapped_key.wrapped is None

    def erase(self, at: datetime | None = None, *, by: str | None = None) -> None:
        """Destroy the data key for good, recorded as ``agent_erased`` with ``by`` in its data."""
        self.lock()
        if not self.is_erased:
            at = at or clock.now()
            self.wrapped_key.wrapped, self.wrapped_key.destroyed_at = None, at
            self.erase_at = None
            self.end_access(ERASED, None)
            about = {"by": by} if by is not None else None
            self.record("agent_erased", data=about, at=at)

    def end_access(self, why: str, by: Actor | None) -> None:
        """End every request and grant for good; the agent is locked."""
        for grant in self.access_grants:
            grant.end_for_good(why, by)

    @property
    def chain_owner(self) -> ChainOwner:
        return ChainOwner(agent_id=self.id)

    @property
    def is_unusable(self) -> bool:
        """Whether nothing can be sealed or opened: the agent was erased, or its row altered."""
        return self.is_erased or not self.is_genuine

    @property
    def chain(self) -> Chain:
        key = None if self.is_unusable else self.data_key()
        return Chain(account_id=self.account_id, agent_id=self.id, key=key)

    def record(self, action: str, **about: Any) -> AuditLog:
        """Append a record to the agent's chain; about the agent, if no subject is given."""
        return AuditLog.record(action, chain=self.chain, **{"subject": self, **about})

    @classmethod
    def lock_due(
        cls, due: Select[int], ids: Sequence[int], *, wait: bool = False
    ) -> Sequence[Self]:
        """Lock and return the agents among ``ids`` still ``due``; skip locked ones, or ``wait``."""
        mine = due.where(cls.id.in_(ids)).order_by(cls.id)
        lock = mine.with_for_update(key_share=True, skip_locked=not wait, of=cls)
        locked_ids = db.session.scalars(lock).all()
        # a new statement sees changes that were committed before the lock
        still_due = due.with_only_columns(cls, maintain_column_froms=True)
        return (
            db.session.scalars(
                still_due.where(cls.id.in_(locked_ids))
                .order_by(cls.id)
                .options(undefer_group("prompts"), selectinload(cls.account))
                .execution_options(populate_existing=True)
            )
            .unique()
            .all()
        )

    # -- its memories and its budget -------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        return Ledger(self)

    def memory_context(self, at: datetime | None = None) -> str | None:
        return self.ledger.context(at or clock.now())

    @property
    def core_token_usage(self) -> int:
        """The token mass: the estimated tokens of all kept core memories."""
        return self.ledger.core_totals()[1]

    @property
    def is_over_budget(self) -> bool:
        return self.core_token_usage > self.core_token_budget

    @hybrid_property
    def budget_share(self) -> float:
        """The token mass as a share of the budget, by the figures on the row."""
        return self.core_tokens * 1.0 / self.core_token_budget

    # set by ``eligibility``, which imports this class
    needs_refinement: ClassVar[Callable[..., bool]]

    # -- settings with defaults ------------------------------------------------------------------

    @property
    def effective_refinement_threshold(self) -> float:
        """The share of its ledger that must remain after a session."""
        return float(self.threshold)

    @property
    def threshold(self) -> Decimal:
        if self.refinement_threshold is None:
            return DEFAULT_THRESHOLD
        return Decimal(str(self.refinement_threshold))

    @property
    def effective_refinement_prompt(self) -> str:
        """The agent's own style for sessions, or the conservative default."""
        own = self.refinement_prompt
        return default_prompt("refinement_prompt") if own is None else own

    def effective(self, field: str) -> tuple[Any, bool]:
        """Return the effective value of an authored field, and whether it is the default."""
        own = getattr(self, field)
        if field == "refinement_threshold":
            return self.effective_refinement_threshold, own is None
        return (default_prompt(field), True) if own is None else (own, False)

    @property
    def system_message(self) -> str:
        prompt, _is_default = self.effective("system_prompt")
        return self.first_message(prompt)

    def first_message(self, prompt: str) -> str:
        """The first message of each conversation: a line unknown to others, then the prompt. It
        keeps providers' prompt caches apart, and changes when others change the identity.
        """
        since = clock.iso(self.identity_changed_at) or ""
        line = self.data_key().mac(since, "agents.first_line")[:_LINE_CHARACTERS]
        return render("system", line=line, prompt=prompt)

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
    if type(value) is not int or not 1 <= value <= MAX_CORE_TOKEN_BUDGET:
        raise InvalidValue(
            f"core_token_budget must be a whole number from 1 to {MAX_CORE_TOKEN_BUDGET:,}"
        )
    return value


@event.listens_for(Agent, "after_insert")
def _begin_chain(_mapper: Mapper[Any], _connection: Connection, agent: Agent) -> None:
    ChainHead.begin(agent.chain_owner)
