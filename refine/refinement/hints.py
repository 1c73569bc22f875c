"""Where a session may look first: pairs of its memories that are alike."""

from refine.models import RefinementSession
from refine.models.ledger.bulk import core_memories
from refine.models.runs.session.entry import SessionEntry
from refine.rules.alike_texts import LikelyPair
from refine.rules.likely_pairs import likely_pairs

MAX_PAIRS = 20


def pairs_to_look_at(session: RefinementSession) -> list[LikelyPair]:
    """Return at most ``MAX_PAIRS`` pairs of the snapshot's kept memories, without any two locked.

    Pairs that the agent was shown in full come first.
    """
    entries = SessionEntry.of(session)
    texts, locked = dict[int, str](), set[int]()
    for memory in core_memories(session.agent):
        if memory.id in entries:
            texts[memory.id] = memory.content
            locked |= {memory.id} if memory.edit_lock is not None else set()
    shown = {id_: text for id_, text in texts.items() if entries[id_].shown_digest is not None}
    pairs = likely_pairs(shown, MAX_PAIRS, locked=locked)
    if len(shown) < len(texts) and len(pairs) < MAX_PAIRS:
        others = likely_pairs(texts, MAX_PAIRS, locked=locked)
        pairs += [pair for pair in others if not shown.keys() >= {pair.id, pair.other_id}]
    return pairs[:MAX_PAIRS]
