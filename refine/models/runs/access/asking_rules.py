"""What is asked for when access is requested, and the rules for that."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from refine.errors import InvalidValue
from refine.models.agent import Agent, eligibility
from refine.models.people import User
from refine.rules.content import bounded_text
from refine.rules.model_names import is_rehearsal_model

# The reasons for access, each as the end of a sentence: "because …".
REASONS = {
    "failed_session": "a session failed",
    "suspected_harm": "harm is suspected",
    "agent_asked": "the agent asked for it",
    "data_subject_request": "a person asked what is stored about them",
    "legal_duty": "the law requires it",
}

MIN_PURPOSE_CHARACTERS = 20
MAX_PURPOSE_CHARACTERS = 500
MIN_MINUTES = 15
MAX_MINUTES = 240

# Nobody may request access for this long after others changed who the agent is.
IDENTITY_CHANGE_WAIT = timedelta(hours=24)
# Nor may a user whose password was set through a link: its issuer could be using the account.
PASSWORD_LINK_WAIT = timedelta(hours=24)
# A model that is asked again and again eventually says yes: after a decline, the user waits.
DECLINE_WAIT = timedelta(days=7)


@dataclass(frozen=True)
class AccessScope:
    """Everything, unless it names a session, memories, or both: what that changed of these."""

    session_id: uuid.UUID | None = None
    memory_ids: frozenset[int] | None = None

    @classmethod
    def of(cls, grant: Any) -> "AccessScope":
        ids = grant.memory_ids
        return cls(grant.session_id, frozenset(ids) if ids is not None else None)

    @property
    def is_narrow(self) -> bool:
        return self != AccessScope()

    def opens(self, *, session_id: uuid.UUID | None = None, memory_id: int | None = None) -> bool:
        """Tell whether it opens a text, by the session and memory that the text belongs to. What
        belongs to neither, as prompts do, only access to everything opens.
        """
        is_of_session = self.session_id in (None, session_id)
        return is_of_session and (self.memory_ids is None or memory_id in self.memory_ids)

    def is_within(self, asked: "AccessScope") -> bool:
        is_of_session = asked.session_id in (None, self.session_id)
        if asked.memory_ids is None or not is_of_session:
            return is_of_session
        return self.memory_ids is not None and self.memory_ids <= asked.memory_ids

    def as_data(self) -> dict[str, Any]:
        """Return its ids, as records keep them; nothing if it is everything."""
        data: dict[str, Any] = {}
        if self.session_id is not None:
            data["session_id"] = str(self.session_id)
        if self.memory_ids is not None:
            data["memory_ids"] = sorted(self.memory_ids)
        return data

    def __str__(self) -> str:
        if self.memory_ids is None:
            return "everything" if self.session_id is None else "the changes of one session"
        noun = "memory" if len(self.memory_ids) == 1 else "memories"
        named = f"{noun} {', '.join(f'#{id_}' for id_ in sorted(self.memory_ids))}"
        return named if self.session_id is None else f"the changes of one session to {named}"


@dataclass(frozen=True)
class AccessTerms:
    reason: str
    purpose: str
    duration_minutes: int
    scope: AccessScope = AccessScope()

    @classmethod
    def checked(
        cls,
        *,
        reason: object,
        purpose: object,
        duration_minutes: object,
        scope: AccessScope = AccessScope(),  # noqa: B008
    ) -> "AccessTerms":
        """Return the terms; InvalidValue if one is invalid."""
        if reason not in REASONS:
            raise InvalidValue(f"reason must be one of {', '.join(REASONS)}")
        if type(duration_minutes) is not int or not MIN_MINUTES <= duration_minutes <= MAX_MINUTES:
            raise InvalidValue(
                f"duration_minutes must be a whole number from {MIN_MINUTES} to {MAX_MINUTES}"
            )
        return cls(str(reason), valid_purpose("purpose", purpose), duration_minutes, scope)


def valid_purpose(field: str, value: object) -> str:
    """Return a purpose as it is stored, trimmed; InvalidValue if it is too short or too long."""
    purpose = bounded_text(value, field=field, limit=MAX_PURPOSE_CHARACTERS)
    if len(purpose) < MIN_PURPOSE_CHARACTERS:
        raise InvalidValue(f"{field} must have at least {MIN_PURPOSE_CHARACTERS} characters")
    return purpose


def why_not_ask(agent: Agent, user: User, now: datetime) -> str | None:
    """Return why the user may not ask this agent, whatever was asked before; RowAltered."""
    agent.require_genuine()
    agent.require_own("account")
    reason = user.inability_reason(agent.account_id)
    if reason or (reason := eligibility.unavailable_reason(agent, automatic=False)):
        return reason
    if (until := _end_of(user.password_linked_at, PASSWORD_LINK_WAIT)) > now:
        is_new = f"{user.email} began to sign in at the provider of identities"
        if user.identity_hash is None:
            is_new = f"the password of {user.email} was set through a link"
        return (
            f"{is_new}, or their second factor was reset; they can request access at "
            f"{until:%Y-%m-%d %H:%M} UTC"
        )
    if is_rehearsal_model(agent.model_id) and not agent.account.is_demo:
        return f"{agent.name} uses the rehearsal model, which cannot grant access"
    if (until := _end_of(agent.identity_changed_at, IDENTITY_CHANGE_WAIT)) > now:
        return (
            f"the name, the model or a prompt of {agent.name} was changed; it can be asked at "
            f"{until:%Y-%m-%d %H:%M} UTC"
        )
    return None


def why_not_after_declines(
    declines: Sequence[Any], agent: Agent, user: User, now: datetime
) -> str | None:
    """Return why the user may not ask after these declined requests; None if they may."""
    # they bar users who joined, or got a password through a link, after them, too: whoever was
    # declined could have invited them or made the link
    joined_at = max(user.created_at, user.password_linked_at or user.created_at)
    for decline in declines:
        until = _end_of(decline.ended_at, DECLINE_WAIT)
        is_theirs = decline.user_id == user.id
        if until > now and (is_theirs or joined_at > until - DECLINE_WAIT):
            what = f"a request of {user.email}"
            if not is_theirs:
                what = f"somebody else before {user.email} joined or got a password through a link"
            return (
                f"{agent.name} has declined {what}; they can ask again at "
                f"{until:%Y-%m-%d %H:%M} UTC"
            )
    return None


def _end_of(since: datetime | None, wait: timedelta) -> datetime:
    """Return the end of a wait; the beginning of time if there is none."""
    return since + wait if since is not None else datetime.min.replace(tzinfo=UTC)
