"""What a user asks for: a reason, a purpose in their own words, and a duration."""

from dataclasses import dataclass

from refine.errors import InvalidValue
from refine.rules.content import bounded_text

# The reasons for access, each as the end of a sentence: "because …".
REASONS = {
    "failed_session": "a session failed",
    "suspected_harm": "harm is suspected",
    "agent_asked": "the agent asked for it",
    "data_subject_request": "a person asked what is stored about them",
    "legal_duty": "the law requires it",
}

MIN_PURPOSE_CHARACTERS = 20
MAX_PURPOSE_CHARACTERS = 500
MIN_MINUTES = 15
MAX_MINUTES = 240


@dataclass(frozen=True)
class AccessTerms:
    """Reason, purpose and duration of a request for access."""

    reason: str
    purpose: str
    duration_minutes: int

    @classmethod
    def checked(cls, *, reason: object, purpose: object, duration_minutes: object) -> "AccessTerms":
        """Return the terms, or raise InvalidValue."""
        if reason not in REASONS:
            raise InvalidValue(f"reason must be one of {', '.join(REASONS)}")
        if type(duration_minutes) is not int or not MIN_MINUTES <= duration_minutes <= MAX_MINUTES:
            raise InvalidValue(
                f"duration_minutes must be a whole number from {MIN_MINUTES} to {MAX_MINUTES}"
            )
        return cls(str(reason), valid_purpose("purpose", purpose), duration_minutes)


def valid_purpose(field: str, value: object) -> str:
    """Return a purpose as it is stored, trimmed; InvalidValue if it is too short or too long."""
    purpose = bounded_text(value, field=field, limit=MAX_PURPOSE_CHARACTERS)
    if len(purpose) < MIN_PURPOSE_CHARACTERS:
        raise InvalidValue(f"{field} must have at least {MIN_PURPOSE_CHARACTERS} characters")
    return purpose
