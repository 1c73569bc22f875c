"""The careful model: it unites what says the same, and loses nothing."""

from collections import defaultdict
from collections.abc import Iterator

from bench.simulated_models.conversation import Conversation, Entry, Step, consolidation, deletion
from bench.simulated_models.understanding import meaning, sentences

MAX_SOURCES = 8

_SHORTEST_STATEMENT = 4


def careful(conversation: Conversation) -> list[Step]:
    """Return all steps of a session; none after it."""
    steps = [step for group in in_groups(conversation.ledger) for step in united(group)]
    return steps[: conversation.operations_left]


def in_groups(ledger: list[Entry]) -> list[list[Entry]]:
    """Return the groups of memories whose first sentences say the same."""
    groups: dict[frozenset[str], list[Entry]] = defaultdict(list)
    for entry in ledger:
        first = meaning(sentences(entry.content)[0])
        if len(first) >= _SHORTEST_STATEMENT:
            groups[first].append(entry)
    return [group[:MAX_SOURCES] for group in groups.values() if len(group) > 1]


def united(group: list[Entry]) -> Iterator[Step]:
    text = united_text(group)
    same = [entry for entry in group if entry.content == text]
    if same:
        yield from (deletion(entry) for entry in group if entry is not same[0])
    else:
        yield consolidation(group, text)


def united_text(group: list[Entry]) -> str:
    """Return the longest text, and the sentences of the others that it does not say."""
    longest = max(group, key=lambda entry: len(entry.content))
    said = set(map(meaning, sentences(longest.content)))
    text = longest.content
    for entry in group:
        for sentence in sentences(entry.content):
            if meaning(sentence) not in said:
                said.add(meaning(sentence))
                text = f"{text} {sentence}"
    return text
