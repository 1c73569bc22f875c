"""The audit log: append-only records in hash chains."""

from refine.models.audit.record import (
    PLATFORM as PLATFORM,
    AuditLog as AuditLog,
    Chain as Chain,
    ChainHead as ChainHead,
    Event as Event,
)
from refine.models.audit.verification import Verification as Verification
