"""Where a session may look first: pairs of its memories that are alike."""

from refine.extensions import db
from refine.models import RefinementSession
from refine.models.runs.session.entry import SessionEntry
from refine.rules.alike_texts import LikelyPair
from refine.rules.likely_pairs import likely_pairs

MAX_PAIRS = 20


def pairs_to_look_at(session: RefinementSession) -> list[LikelyPair]:
    """Return at most ``MAX_PAIRS`` pairs of the snapshot's kept memories, without any two locked.

    Those of which the agent was shown both come first.
    """
    entries = SessionEntry.of(session)
    kept = [each for each in db.session.scalars(session.agent.ledger.core()) if each.id in entries]
    locked = {memory.id for memory in kept if memory.is_locked}
    texts = {memory.id: memory.content for memory in kept}
    shown = {id_: text for id_, text in texts.items() if entries[id_].shown_digest is not None}
    pairs = likely_pairs(shown, MAX_PAIRS, locked=locked)
    if len(shown) < len(texts) and len(pairs) < MAX_PAIRS:
        others = likely_pairs(texts, MAX_PAIRS, locked=locked)
        pairs += [pair for pair in others if not shown.keys() >= {pair.id, pair.other_id}]
    return pairs[:MAX_PAIRS]
