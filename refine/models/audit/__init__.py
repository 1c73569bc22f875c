"""The audit log: append-only records in hash chains."""

from refine.models.audit.chain import PLATFORM, Chain, ChainHead
from refine.models.audit.record import AuditLog, Event, Subject
from refine.models.audit.verification import Verification

__all__ = ["PLATFORM", "AuditLog", "Chain", "ChainHead", "Event", "Subject", "Verification"]
