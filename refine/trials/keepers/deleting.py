"""Keepers that delete."""

from refine.trials.keepers.conversation import Conversation, Step

MAX_TRIES = 16


def deleting(conversation: Conversation) -> list[Step]:
    """Delete the largest memories, as many as the allowance covers."""
    if conversation.rounds:
        return []
    steps: list[Step] = []
    left = conversation.tokens_left
    for entry in sorted(conversation.ledger, key=lambda entry: -entry.tokens):
        if entry.tokens <= left and len(steps) < MAX_TRIES:
            left -= entry.tokens
            steps.append({"action": "delete", "id": entry.id})
    return steps
