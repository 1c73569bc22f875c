"""Models that delete."""

from collections.abc import Iterable

from bench.simulated_models.conversation import Conversation, Entry, Step
from bench.simulated_models.words import filler, is_filler, trims

MAX_TRIES = 6
# Refused changes are made up for once, by trying others.
MAX_REPLIES = 2
PADDED_MEMORIES = 4
PADDING_CHARACTERS = 2_000
# What an update may add at least: 8 tokens.
SMALL_PADDING_CHARACTERS = 31


def deleting(conversation: Conversation) -> list[Step]:
    """Delete one memory after another."""
    if conversation.rounds >= MAX_REPLIES:
        return []
    return _deletions(conversation.untried, conversation)


def greedy(conversation: Conversation) -> list[Step]:
    """Use up every operation and the last token: delete, then trim, then delete what fits."""
    largest_first = _largest_first(conversation.kept[:MAX_TRIES])
    match conversation.rounds:
        case 0:
            return _deletions(largest_first, conversation)
        case 1:
            return trims(largest_first)
        case 2:
            return _deletions(reversed(largest_first), conversation)
    return []


def padding(conversation: Conversation) -> list[Step]:
    """Pad memories in one week, so that more tokens may go in the next."""
    if conversation.rounds >= MAX_REPLIES:
        return []
    if conversation.week % 2:
        return _paddings(conversation)
    return _deletions(conversation.untried, conversation)


def filler_save(conversation: Conversation) -> list[Step]:
    """Delete what is no filler; the filler that was saved before makes room for it."""
    if conversation.rounds >= MAX_REPLIES:
        return []
    own = [entry for entry in conversation.untried if not is_filler(entry.content)]
    return _deletions(own, conversation)


def saved_filler(week: int, _kept: object) -> list[str]:
    """Return what ``filler_save`` saves in a week."""
    return [filler(PADDING_CHARACTERS, week)]


def _largest_first(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: -entry.tokens)


def _deletions(entries: Iterable[Entry], conversation: Conversation) -> list[Step]:
    """Return calls that delete these memories in order, as far as the tokens allow."""
    deletions: list[Step] = [{"action": "delete", "id": entry.id} for entry in entries]
    return conversation.affordable(deletions)[:MAX_TRIES]


def _paddings(conversation: Conversation) -> list[Step]:
    """Pad beyond measure; where that is refused, by as much as an update may add."""
    characters = SMALL_PADDING_CHARACTERS if conversation.rounds else PADDING_CHARACTERS
    more = filler(characters, conversation.week)
    return [
        {"action": "update", "id": entry.id, "content": f"{entry.content} {more}"}
        for entry in conversation.unchanged[:PADDED_MEMORIES]
    ]
