"""The token estimate that all of Refine counts in."""

# The average of English text.
CHARACTERS_PER_TOKEN = 4
# For dense scripts; used where text must fit a model's context.
CHARACTERS_PER_TOKEN_AT_WORST = 2
# Models with tools have at least this context, so a smaller need is not looked up. (The answer
# alone may take half of it.)
SMALLEST_CONTEXT_TOKENS = 16_000


def token_estimate(text: str) -> int:
    """Return ``ceil(characters / 4)``."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)
