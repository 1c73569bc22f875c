"""The audit log: append-only records in hash chains."""

from refine.models.audit.chain import PLATFORM as PLATFORM, Chain as Chain, ChainHead as ChainHead
from refine.models.audit.record import AuditLog as AuditLog, Event as Event, Subject as Subject
from refine.models.audit.verification import Verification as Verification
