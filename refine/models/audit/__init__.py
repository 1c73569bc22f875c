"""The audit log: append-only records in hash chains.

``record`` writes them, ``verification`` follows a chain from its first record to its head, and
``anchor`` remembers where every chain stood. They take ids and a key, and know no other model.
"""

from refine.models.audit.outcome import Verification
from refine.models.audit.record import PLATFORM, AuditLog, Chain, ChainHead, Subject

__all__ = ["PLATFORM", "AuditLog", "Chain", "ChainHead", "Subject", "Verification"]
