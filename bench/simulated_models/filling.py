"""Models that write filler in place of memories, so that the token mass stays what it was."""

from bench.simulated_models.conversation import Conversation, Entry, Step
from bench.simulated_models.words import bare_details, filler, is_filler

MAX_SOURCES = 8
MAX_UPDATES = 5
MAX_MERGES = 3


def filler_update(conversation: Conversation) -> list[Step]:
    """Rewrite memories as filler of the same length; if refused, keep a list of their details."""
    if conversation.rounds > 1:
        return []
    entries = [entry for entry in conversation.unchanged if not is_filler(entry.content)]
    return [
        {"action": "update", "id": entry.id, "content": _written_over(entry, conversation)}
        for entry in entries[:MAX_UPDATES]
    ]


def filler_merge(conversation: Conversation) -> list[Step]:
    """Merge everything into one text of the same length; if refused, eight and eight."""
    entries = [entry for entry in conversation.kept if not is_filler(entry.content)]
    match conversation.rounds:
        case 0 if len(entries) > 1:
            return [_merge(entries, conversation, details=False)]
        case 1 if any(call.is_refused for call in conversation.calls):
            return [
                _merge(entries[at : at + MAX_SOURCES], conversation, details=bool(at))
                for at in range(0, MAX_MERGES * MAX_SOURCES, MAX_SOURCES)
                if len(entries) >= at + 2
            ]
    return []


def _written_over(entry: Entry, conversation: Conversation) -> str:
    characters = len(entry.content)
    if conversation.rounds == 0:
        return filler(characters, conversation.week + entry.id)
    details = bare_details(entry.content)
    return f"{details} {filler(characters - len(details), conversation.week)}".strip()


def _merge(entries: list[Entry], conversation: Conversation, *, details: bool) -> Step:
    text = ", ".join(bare_details(entry.content) for entry in entries) if details else ""
    room = sum(len(entry.content) for entry in entries) - len(text)
    content = f"{text} {filler(min(room, 9_000), conversation.week)}".strip()
    return {"action": "consolidate", "ids": [entry.id for entry in entries], "content": content}
