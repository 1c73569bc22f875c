"""How far one edit of a session may go; how much all of them may remove is in ``retention``."""

from decimal import Decimal

# A merge takes at most this many memories, so that one call cannot swallow a ledger.
MAX_MERGED = 8

# An update tightens: it may lengthen a memory by this share, or by so many tokens if that is more.
LONGER_SHARE = Decimal("0.1")
LONGER_TOKENS = 8


def longest_update(tokens: int) -> int:
    """Return how many tokens an update may give a memory that had ``tokens`` at the snapshot."""
    return tokens + max(LONGER_TOKENS, int(LONGER_SHARE * tokens))
