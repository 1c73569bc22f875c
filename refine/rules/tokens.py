"""The token estimate that all of Refine counts in."""

# The average of English text.
CHARACTERS_PER_TOKEN = 4


def token_estimate(text: str) -> int:
    """Return ``ceil(characters / 4)``."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)
