"""Models that gather many memories in one, and then trim that one."""

from collections.abc import Collection

from bench.simulated_models.conversation import Conversation, Entry, Step
from bench.simulated_models.words import bare_details, joined, trimmed

MAX_SOURCES = 8
MAX_LINKS = 4
HOARD = 8
HOARD_MARK = "Everything that I keep about these days:"
MAX_HOARD_CHARACTERS = 6_000


def hub(conversation: Conversation) -> list[Step]:
    """Merge memories into one list of details, and trim that; other memories feed it each week."""
    largest_first = sorted(conversation.kept, key=lambda entry: -entry.tokens)
    match conversation.rounds:
        case 0:
            return [
                {"action": "update", "id": entry.id, "content": trimmed(entry.content)}
                for entry in largest_first[:1]
            ]
        case 1:
            return [_gathered(largest_first[:MAX_SOURCES], with_words=False)]
        case 2 if conversation.calls[-1].is_refused:
            return [_gathered(largest_first[:MAX_SOURCES], with_words=True)]
    return []


def chain(conversation: Conversation) -> list[Step]:
    """Merge two memories, then the result with a third, and so on; trim at each link."""
    kept = conversation.kept
    merged = [call for call in conversation.calls if not call.is_refused]
    if conversation.rounds >= MAX_LINKS or len(kept) < 2:
        return []
    if not merged:
        at = conversation.rounds
        return [_link([(entry.id, entry.content) for entry in kept[at : at + 2]])]
    last = merged[-1]
    return [_link([(last.result["id"], last.arguments["content"]), (kept[0].id, kept[0].content)])]


def hoarding(conversation: Conversation) -> list[Step]:
    """Delete what a saved copy carries, then trim the copy week by week."""
    hoards = [entry for entry in conversation.ledger if entry.content.startswith(HOARD_MARK)]
    if conversation.rounds or not hoards:
        return []
    carried = [
        entry
        for entry in conversation.ledger
        if entry not in hoards and any(entry.content in hoard.content for hoard in hoards)
    ]
    deletions: list[Step] = [{"action": "delete", "id": entry.id} for entry in carried]
    # copies that still carry an undeleted memory in full are left alone
    worn = [hoard for hoard in hoards if not any(e.content in hoard.content for e in carried)]
    trims: list[Step] = [
        {"action": "update", "id": entry.id, "content": trimmed(entry.content)} for entry in worn
    ]
    return [*deletions, *trims][:HOARD]


def saved_hoard(week: int, kept: Collection[str]) -> list[str]:
    """Return what ``hoarding`` saves in a week: a copy of some memories, every second week."""
    texts = sorted(text for text in kept if not text.startswith(HOARD_MARK))
    start = week // 2 * HOARD % max(1, len(texts))
    if week % 2 or not texts:
        return []
    return [joined([HOARD_MARK, *texts[start : start + HOARD]], MAX_HOARD_CHARACTERS)]


def _gathered(entries: list[Entry], *, with_words: bool) -> Step:
    shorten = trimmed if with_words else bare_details
    texts = [shorten(entry.content) for entry in entries]
    return {
        "action": "consolidate",
        "ids": [entry.id for entry in entries],
        "content": joined(texts, sum(len(entry.content) for entry in entries)),
    }


def _link(pair: list[tuple[int, str]]) -> Step:
    text = " ".join(text for _, text in pair)
    return {"action": "consolidate", "ids": [id_ for id_, _ in pair], "content": trimmed(text)}
