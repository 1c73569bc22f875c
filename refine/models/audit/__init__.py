"""The audit log: append-only records in hash chains.

``chain`` has the chains and their heads, ``linking`` what a record tells and how it is linked to
the one before. ``record`` writes them, and ``bulk`` many at once. ``chain_walk`` follows a chain up
to its head, ``checkpoint`` keeps how far it was verified, ``verification`` what each verification
found, ``anchor`` where every chain stood. ``kinds`` sorts the actions for those who look for one.
They take ids and a key, and know no other model.
"""

from refine.models.audit.chain import PLATFORM, Chain, ChainHead
from refine.models.audit.linking import Subject
from refine.models.audit.record import AuditLog
from refine.models.audit.verification import Verification

__all__ = ["PLATFORM", "AuditLog", "Chain", "ChainHead", "Subject", "Verification"]
