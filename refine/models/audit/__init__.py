"""The audit log: append-only records in hash chains.

``record`` writes them, ``chain_walk`` follows a chain up to its head, ``checkpoint`` keeps how far
it was verified, ``verification`` keeps what each verification found, and ``anchor`` remembers where
every chain stood. They take ids and a key, and know no other model.
"""

from refine.models.audit.record import PLATFORM, AuditLog, Chain, ChainHead, Subject
from refine.models.audit.verification import Verification

__all__ = ["PLATFORM", "AuditLog", "Chain", "ChainHead", "Subject", "Verification"]
