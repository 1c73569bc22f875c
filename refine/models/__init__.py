"""Tables, their verbs and their guards. Models never commit and never enqueue.

They lock the agent first, then its session or a platform token, memories by id, and the head of a
chain last.
"""

from sqlalchemy.orm import configure_mappers

from refine.models.agent import Agent
from refine.models.audit import AuditLog, ChainHead, Verification
from refine.models.clients import ApiToken, IdempotencyKey
from refine.models.keys import WrappedKey
from refine.models.ledger import AgentMemory
from refine.models.people import Account, Invitation, PasswordGuess, SignIn, User
from refine.models.runs import (
    AccessAlreadyRequested,
    AccessGrant,
    ClockMark,
    LeaseLost,
    MemoryTask,
    RefinementSession,
    ReflectionAlreadyLive,
    SessionAlreadyLive,
    SessionEntry,
)
from refine.models.runs.session import MAX_MUTATIONS, EditRefused
from refine.models.tally import Tally

__all__ = [
    "MAX_MUTATIONS",
    "AccessGrant",
    "AccessAlreadyRequested",
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
    "PasswordGuess",
    "RefinementSession",
    "ReflectionAlreadyLive",
    "SessionAlreadyLive",
    "SessionEntry",
    "SignIn",
    "Tally",
    "User",
    "Verification",
    "WrappedKey",
]


def configure() -> None:
    """Resolve all mappings now, so that no process pays for it, or fails at it, later."""
    configure_mappers()
