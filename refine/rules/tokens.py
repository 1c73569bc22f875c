"""How many tokens a text is reckoned to cost."""

CHARACTERS_PER_TOKEN = 4


def token_estimate(text: str) -> int:
    """Return ``ceil(characters / 4)``, the estimate that the whole of Refine counts in."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)
