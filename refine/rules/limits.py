"""How far one edit of a session may go; how much all of them may remove is in ``retention``."""

from decimal import Decimal

MAX_MERGED = 8
"""How many memories one merge may take."""

LONGER_SHARE = Decimal("0.1")
"""By what share of its tokens at the snapshot an update may make a memory longer: a tenth."""

LONGER_TOKENS = 8
"""By how many tokens an update may make a memory longer in any case, however short it was."""
