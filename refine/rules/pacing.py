"""Pauses between sessions: after refusals, and after failures."""

from datetime import timedelta

LONGEST_COOLDOWN = timedelta(days=7)
# After so many fruitless sessions the pause is the longest one, even if it began with an hour.
LONGEST_STREAK = 8

# A session that failed is tried again at most three times before the next slot.
RETRY_PAUSES = (timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2))


def cooldown(hours: int, fruitless_sessions: int) -> timedelta:
    """Return how long an agent over its budget is not asked again after a session.

    ``hours`` (REFINE_COOLDOWN_HOURS) doubles, up to a week, with each refusal or session without
    effect since the last session that removed something.
    """
    doubled = timedelta(hours=hours * 2 ** min(fruitless_sessions, LONGEST_STREAK))
    return min(doubled, LONGEST_COOLDOWN)


def retry_pause(attempt: int) -> timedelta | None:
    """Return the pause after the failed ``attempt`` (1 is the first); None: no retry."""
    return RETRY_PAUSES[attempt - 1] if attempt <= len(RETRY_PAUSES) else None
