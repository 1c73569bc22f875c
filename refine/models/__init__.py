"""Tables, their verbs and their guards. Models never commit and never enqueue.

They lock the agent first, then its session or a platform token, memories by id, and the head of a
chain last.
"""

from refine.models.agent import Agent as Agent
from refine.models.attention import PutAside as PutAside
from refine.models.audit import (
    AuditLog as AuditLog,
    ChainHead as ChainHead,
    Verification as Verification,
)
from refine.models.clients import ApiToken as ApiToken, IdempotencyKey as IdempotencyKey
from refine.models.keys import WrappedKey as WrappedKey
from refine.models.ledger.memory import AgentMemory as AgentMemory
from refine.models.mail import Mail as Mail
from refine.models.notice import Notice as Notice
from refine.models.outbox import Delivery as Delivery, Endpoint as Endpoint
from refine.models.people import (
    Account as Account,
    Invitation as Invitation,
    PasswordGuess as PasswordGuess,
    SecondFactor as SecondFactor,
    SignIn as SignIn,
    User as User,
)
from refine.models.runs.access.grant import (
    AccessAlreadyRequested as AccessAlreadyRequested,
    AccessGrant as AccessGrant,
)
from refine.models.runs.periodic_work import PeriodicWork as PeriodicWork
from refine.models.runs.run import LeaseLost as LeaseLost
from refine.models.runs.session.entry import SessionEntry as SessionEntry
from refine.models.runs.session.judging import EditRefused as EditRefused
from refine.models.runs.session.session import (
    MAX_MUTATIONS as MAX_MUTATIONS,
    RefinementSession as RefinementSession,
    SessionAlreadyLive as SessionAlreadyLive,
)
from refine.models.runs.task import (
    MemoryTask as MemoryTask,
    ReflectionAlreadyLive as ReflectionAlreadyLive,
)
from refine.models.shared_count import SharedCount as SharedCount
