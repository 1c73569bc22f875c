"""The token estimate that all of Refine counts in."""

from collections.abc import Iterable

# The average of English text.
CHARACTERS_PER_TOKEN = 4
# For dense scripts; used where text must fit a model's context.
CHARACTERS_PER_TOKEN_AT_WORST = 2
# Models with tools have at least this context, so a smaller need is not looked up. (The answer
# alone may take half of it.)
SMALLEST_CONTEXT_TOKENS = 16_000


def half_of_room(context_tokens: int, output_tokens: int, own_texts: Iterable[str]) -> int:
    """Return half of the tokens that an answer and the agent's own texts leave of a context.

    A worst-case estimate; the other half is for the turns.
    """
    own_tokens = sum(map(len, own_texts)) // CHARACTERS_PER_TOKEN_AT_WORST
    return max(0, context_tokens - output_tokens - own_tokens) // 2


def token_estimate(text: str) -> int:
    """Return ``ceil(characters / 4)``."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)
