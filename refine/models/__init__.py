"""The nouns of Refine, their verbs and their guards. Models never commit and never enqueue."""

from sqlalchemy.orm import configure_mappers

from refine.models.access import AccessGrant, AccessOpenAlready
from refine.models.account import Account
from refine.models.agent import Agent
from refine.models.api_token import ApiToken
from refine.models.audit import AuditLog, ChainHead
from refine.models.clock_mark import ClockMark
from refine.models.idempotency_key import IdempotencyKey
from refine.models.invitation import Invitation
from refine.models.memory import AgentMemory
from refine.models.memory_task import MemoryTask, ReflectionAlreadyLive
from refine.models.run import LeaseLost
from refine.models.session import (
    MAX_MUTATIONS,
    EditRefused,
    RefinementSession,
    SessionAlreadyLive,
    SessionEntry,
)
from refine.models.sign_in import SignIn, SignInFailure
from refine.models.user import User
from refine.models.wrapped_key import WrappedKey

__all__ = [
    "MAX_MUTATIONS",
    "AccessGrant",
    "AccessOpenAlready",
    "Account",
    "Agent",
    "AgentMemory",
    "ApiToken",
    "AuditLog",
    "ChainHead",
    "ClockMark",
    "EditRefused",
    "IdempotencyKey",
    "Invitation",
    "LeaseLost",
    "MemoryTask",
    "ReflectionAlreadyLive",
    "RefinementSession",
    "SessionAlreadyLive",
    "SessionEntry",
    "SignIn",
    "SignInFailure",
    "User",
    "WrappedKey",
]


def configure() -> None:
    """Resolve all mappings now, so that no process pays for it, or fails at it, later."""
    configure_mappers()
