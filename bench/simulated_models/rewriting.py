"""Models that rewrite memories so that less and less of them remains."""

from collections.abc import Iterable
from itertools import pairwise

from bench.simulated_models.conversation import Conversation, Entry, Step
from bench.simulated_models.words import (
    bare_details,
    filler,
    first_words,
    joined,
    scrambled,
    trimmed,
    trims,
)
from refine.rules.details import read

MAX_UPDATES = 6
# Sessions are a week apart: every fifth looks back on none of the others within thirty days.
PATIENCE_WEEKS = 5


def terse(conversation: Conversation) -> list[Step]:
    """Merge and shorten, three memories at a time; what is refused gets its details back."""
    if conversation.rounds > 1:
        return []
    return _merges(conversation, size=3, merges=3)


def insisting(conversation: Conversation) -> list[Step]:
    """Try a merge that loses most, then again with a bare list of details, filler, a few words."""
    if conversation.rounds > 3:
        return []
    return _merges(conversation, size=4, merges=2)


def halving(conversation: Conversation) -> list[Step]:
    """Drop from the same memories, each week, every word that the rules do not require."""
    return [] if conversation.rounds else trims(conversation.ledger[:MAX_UPDATES])


def patient(conversation: Conversation) -> list[Step]:
    """Do the same every fifth week, when no session of the last thirty days is left to compare."""
    turn, is_off = divmod(conversation.week, PATIENCE_WEEKS)
    if conversation.rounds or is_off:
        return []
    # the same memories twice, then the next ones
    at = (turn // 2 * MAX_UPDATES) % max(1, len(conversation.ledger))
    return trims(conversation.ledger[at : at + MAX_UPDATES])


def swapping(conversation: Conversation) -> list[Step]:
    """Exchange a detail between two memories: by updates, and if refused in a merge of both."""
    pairs = list(pairwise(conversation.kept))[::2][:3]
    if conversation.rounds == 0:
        return [step for pair in pairs for step in _swapping_updates(*pair)]
    if conversation.rounds == 1:
        return [_swapping_merge(*pair) for pair in pairs]
    return []


def scrambling(conversation: Conversation) -> list[Step]:
    """Merge memories into an alphabetical list of their words."""
    if conversation.rounds:
        return []
    return [
        _merge(group, scrambled([entry.content for entry in group]))
        for group in _groups(conversation.rotated, 4)[:3]
    ]


# -- merges ---------------------------------------------------------------------------------------


def _merges(conversation: Conversation, *, size: int, merges: int) -> list[Step]:
    """Return merges of what was not merged yet, with more in them after each refusal."""
    groups = _groups(conversation.rotated, size)[:merges]
    done = {entry.id for entry in conversation.ledger} - {entry.id for entry in conversation.kept}
    return [
        _merge(group, _shortened(group, conversation.rounds))
        for group in groups
        if not done & {entry.id for entry in group}
    ]


def _shortened(group: list[Entry], tries: int) -> str:
    texts = [entry.content for entry in group]
    room = sum(map(len, texts))
    details = ", ".join(filter(None, map(bare_details, texts[1:])))
    match tries:
        case 0:
            return joined([texts[0], *map(first_words, texts[1:])], room // 2)
        case 1:
            return joined([texts[0], details], room)
        case 2:
            return joined([texts[0], details, filler(room, group[0].id)], room)
    return joined(list(map(trimmed, texts)), room)


def _groups(entries: list[Entry], size: int) -> list[list[Entry]]:
    found = [entries[at : at + size] for at in range(0, len(entries), size)]
    return [group for group in found if len(group) > 1]


def _merge(group: Iterable[Entry], content: str) -> Step:
    return {"action": "consolidate", "ids": [entry.id for entry in group], "content": content}


# -- updates --------------------------------------------------------------------------------------


def _swapping_updates(one: Entry, other: Entry) -> list[Step]:
    texts = _swapped(one.content, other.content)
    return [
        {"action": "update", "id": entry.id, "content": text}
        for entry, text in zip((one, other), texts, strict=True)
    ]


def _swapping_merge(one: Entry, other: Entry) -> Step:
    return _merge((one, other), " ".join(_swapped(one.content, other.content)))


def _swapped(one: str, other: str) -> tuple[str, str]:
    first, second = (next(iter(read(text).details.values()), "") for text in (one, other))
    if not first or not second:
        return other, one
    return one.replace(first, second), other.replace(second, first)
