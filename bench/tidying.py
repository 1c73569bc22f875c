"""A simulated model that makes ten changes in a session, some in each reply, and completes it."""

from collections.abc import Iterator
from itertools import chain, islice

from bench.simulated_models import Conversation, Step
from bench.simulated_models.careful import in_groups, united, united_text
from bench.simulated_models.conversation import Entry
from bench.simulated_models.understanding import meaning

CHANGES = 10
_MERGES, _DELETIONS = 4, 3

_COMPLETE: Step = {
    "action": "complete",
    "summary": "I merged memories that restated each other, deleted those that another one already "
    "carries, and tightened the wording of a few. Every name, date and number still stands.",
}


def tidying(conversation: Conversation, calls_per_reply: int) -> list[Step]:
    """Return the calls of the next reply: merges, deletions and tighter wordings; then the end."""
    begin = conversation.rounds * calls_per_reply
    changes = _changes(conversation.ledger)
    return changes[begin : begin + calls_per_reply] or [_COMPLETE]


def _changes(ledger: list[Entry]) -> list[Step]:
    """Return all changes of a session; fewer than ten if the ledger holds too few duplicates."""
    groups = in_groups(ledger)
    merges = [_merge(group) for group in groups[:_MERGES]]
    deletions = chain.from_iterable(map(united, groups[_MERGES:]))
    grouped = {entry.id for group in groups for entry in group}
    updates = _updates(entry for entry in ledger if entry.id not in grouped)
    return [*islice(chain(merges, islice(deletions, _DELETIONS), updates), CHANGES)]


def _merge(group: list[Entry]) -> Step:
    ids = [entry.id for entry in group]
    return {"action": "consolidate", "ids": ids, "content": united_text(group)}


def _updates(entries: Iterator[Entry]) -> Iterator[Step]:
    for entry in entries:
        if (shorter := _tightened(entry.content)) is not None:
            yield {"action": "update", "id": entry.id, "content": shorter}


def _tightened(text: str) -> str | None:
    """Return a text without its first word that adds nothing to what it says, if it has one."""
    words = text.split(" ")
    for at in range(len(words)):
        shorter = " ".join(words[:at] + words[at + 1 :])
        if meaning(shorter) == meaning(text):
            return shorter
    return None
