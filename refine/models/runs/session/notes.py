"""What a session tells its agent at its end, in the agent's own voice; why it was rolled back."""

from decimal import Decimal

from refine import settings
from refine.models.runs.session.state import CONSENTED_ENDS, ROLLING_WINDOW, SessionState
from refine.rules.quantities import in_days, in_percent, share_in_percent


def closing_note(session: SessionState, rollback_note: str | None = None) -> str | None:
    """Return the journal note of a session that has just ended; None if there is nothing to tell.

    An agent that consented is told the outcome, and any agent is told of the exact duplicates that
    were removed, however the session ended.
    """
    if session.status not in CONSENTED_ENDS and not session.duplicates_removed:
        return None
    outcome = rollback_note or _outcome(session)
    if not session.duplicates_removed:
        return outcome
    return (
        f"{outcome} Exact duplicates among my core memories, removed unread at the start of the "
        f"session: {session.duplicates_removed}. One copy of each stays."
    )


def rollback_reason(session: SessionState, attempted_tokens: int) -> str:
    """Return why the circuit breaker fired: figures, and the setting that was the limit."""
    share = share_in_percent(attempted_tokens, session.mass_before or 0)
    limit = f"refinement_threshold is {_plain(session.threshold)}"
    if session.is_limited_by_floor:
        limit = (
            f"REFINE_ROLLING_FLOOR is {_plain(settings.current().rolling_floor)} for all sessions "
            f"of {in_days(ROLLING_WINDOW)} together"
        )
    return (
        f"it would have removed {attempted_tokens} of {session.mass_before} tokens ({share}); "
        f"at most {session.removable_tokens} may be removed, because {limit}"
    )


def rollback_note(session: SessionState, reason: str, operations: str) -> str:
    """Return the note that tells the agent what the session did, and that it was undone."""
    return (
        f"My refinement session was rolled back entirely: {reason}. Its operations were: "
        f"{operations}. All of it was undone; every memory is as it was before them. "
        f"{_governing_setting(session)}"
    )


def _outcome(session: SessionState) -> str:
    if session.status == "completed":
        return session.summary or ""
    if session.status == "incomplete":
        return f"{session.summary} It ended early: {session.end_reason}. What was done stays."
    if session.status == "declined":
        return "I declined a refinement session."
    verb = "was skipped" if session.status == "skipped" else "failed"
    return f"A refinement session {verb}: {session.end_reason}."


def _governing_setting(session: SessionState) -> str:
    """Say which setting was the limit, and whose it is."""
    if session.is_limited_by_floor:
        floor = in_percent(settings.current().rolling_floor)
        return (
            f"At least {floor} of the tokens must remain after all sessions of "
            f"{in_days(ROLLING_WINDOW)} together: that is REFINE_ROLLING_FLOOR, an operator's "
            f"setting. My own refinement_threshold ({_plain(session.threshold)}) would have "
            "allowed more."
        )
    return (
        f"At least {in_percent(session.threshold)} of the tokens must remain after each session: "
        "that is my refinement_threshold, which I can change with self_authoring."
    )


def _plain(number: Decimal) -> str:
    """Return the number without trailing zeros: 0.7500 is 0.75."""
    return f"{number.normalize():f}"
