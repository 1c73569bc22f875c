"""The audit log: append-only records in hash chains.

``chain`` has the chains and their heads. ``record`` writes records and links each to the one
before. ``walk`` verifies the records of a chain, ``verification`` stores outcomes, ``anchor``
prints where every chain ends. ``kinds`` sorts the actions.
They take ids and a key, and know no other model.
"""

from refine.models.audit.chain import PLATFORM, Chain, ChainHead
from refine.models.audit.record import AuditLog, Event, Subject
from refine.models.audit.verification import Verification

__all__ = ["PLATFORM", "AuditLog", "Chain", "ChainHead", "Event", "Subject", "Verification"]
