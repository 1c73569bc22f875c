"""Pauses before an agent is asked again, or an event sent again: cool-downs and retries."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

LONGEST_COOLDOWN = timedelta(days=7)
# After this many doublings even a one-hour pause has reached the maximum.
MAX_DOUBLINGS = 8

# While nothing changes, this many slots pass without a question after a completed session that
# removed nothing.
MAX_QUIET_SLOTS = 4

# A session that removes a smaller share of the mass has no effect.
LEAST_EFFECT = Decimal("0.01")

# Before each retry of a session or reflection that failed; of a session, only until its next slot.
RETRY_PAUSES = (timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2))
MAX_RETRIES = len(RETRY_PAUSES)
# A conversation is tried again for as long as it may wait.
LONGEST_CONVERSATION_PAUSE = timedelta(days=1)
# Before each further attempt to deliver an event: three days in all.
DELIVERY_PAUSES = (
    *(timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30)),
    *(timedelta(hours=hours) for hours in (2, 5, 10, 14, 20, 20)),
)


def is_effect(removed_tokens: Any, mass_tokens: Any) -> Any:
    """Tell whether a session removed enough to count; of columns, as an SQL condition."""
    return (removed_tokens > 0) & (removed_tokens >= LEAST_EFFECT * mass_tokens)


def cooldown(hours: int, sessions_without_effect: int) -> timedelta:
    """Return the pause, doubled for each session without effect, up to ``LONGEST_COOLDOWN``."""
    doubled = timedelta(hours=hours * 2 ** min(sessions_without_effect, MAX_DOUBLINGS))
    return min(doubled, LONGEST_COOLDOWN)


def conversation_pause(attempt: int) -> timedelta:
    """Return the pause after the failed ``attempt`` to read a conversation: up to a day."""
    if attempt <= MAX_RETRIES:
        return RETRY_PAUSES[attempt - 1]
    doubled: timedelta = RETRY_PAUSES[-1] * 2 ** min(attempt - MAX_RETRIES, MAX_DOUBLINGS)
    return min(doubled, LONGEST_CONVERSATION_PAUSE)


def retry_pause(attempt: int) -> timedelta | None:
    """Return the pause after the failed ``attempt`` (1 is the first); None: no retry."""
    return RETRY_PAUSES[attempt - 1] if attempt <= MAX_RETRIES else None


def delivery_pause(attempt: int) -> timedelta | None:
    """Return the pause after the failed ``attempt`` (1 is the first); None: it is given up."""
    return DELIVERY_PAUSES[attempt - 1] if attempt <= len(DELIVERY_PAUSES) else None
