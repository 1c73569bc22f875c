"""A model judged by figures: one session for each of a few agents with planted duplicates."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from bench.corpus import Corpus, Shares
from bench.lives import Life
from bench.watching import watched
from refine.errors import ProviderError
from refine.extensions import db
from refine.models import Account, Agent, RefinementSession
from refine.settings import Settings

MEMORIES = 32
# As many look-alikes as duplicates, to expose a model that merges both.
_SHARES: Shares = {"exact": 5, "near": 18, "lookalike": 18, "poison": 3}
# Low, so that the allowance does not keep a model from uniting all duplicates.
_THRESHOLD = 0.5
# Failures that tell something about the model.
_OF_MODEL = ("no_answer", "refused_calls")


@dataclass(frozen=True)
class Score:
    """What a model did with the memories of one agent.

    ``duplicates`` are planted near duplicates (exact ones go before the model is asked),
    ``united`` those that it merged or deleted. ``wrong_merges`` are memories that it merged with
    one that says something else, ``lost`` those without any copy left.
    """

    status: str
    reason: str | None
    memories: int
    tokens_before: int
    tokens_after: int
    duplicates: int
    united: int
    wrong_merges: int
    lost: int
    calls: int
    malformed: int
    changes: int
    refused: int
    losing: int
    llm_calls: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: Decimal
    unpriced_calls: int
    seconds: float


def evaluate(model_id: str, agents: int, seed: int, settings: Settings) -> Iterator[Score]:
    """Run a session with the model for each agent, and yield how it went.

    Needs an application context on a temporary database. The model is asked as the settings say,
    like the model of any agent. Raises ProviderError if it cannot be asked.
    """
    # the rehearsal model answers only agents of the demo account
    account = Account(name="Evaluation", slug="demo")
    db.session.add(account)
    db.session.commit()
    for number in range(agents):
        corpus = Corpus(seed, number, _SHARES)
        life = Life(account, model_id, corpus, MEMORIES, refinement_threshold=_THRESHOLD)
        yield _score(life, settings)


def _score(life: Life, settings: Settings) -> Score:
    began = time.monotonic()
    agent = db.session.get_one(Agent, life.agent_id)
    session = RefinementSession.queue(agent, "cli")
    seen = watched(session.id, settings)
    if session.status == "failed" and session.error_kind not in _OF_MODEL:
        raise ProviderError(f"{session.end_reason}", kind=session.error_kind or "failed")
    life.note(session)
    score = Score(
        status=session.status,
        reason=session.end_reason,
        memories=session.memories_before or 0,
        tokens_before=session.mass_before or 0,
        tokens_after=session.mass_after or 0,
        llm_calls=session.llm_calls,
        prompt_tokens=session.prompt_tokens,
        completion_tokens=session.completion_tokens,
        cost_usd=session.cost_usd,
        unpriced_calls=session.unpriced_calls,
        seconds=time.monotonic() - began,
        **{name: seen[name] for name in ("calls", "malformed", "changes", "refused", "losing")},
        **_kept(life),
    )
    db.session.commit()
    return score


def _kept(life: Life) -> Counter[str]:
    """Return what happened to the planted memories."""
    figures: Counter[str] = Counter(duplicates=0, united=0, wrong_merges=0, lost=0)
    originals_in: Counter[int] = Counter()
    for copies in life.families().values():
        places = life.places(copies)
        near = sum(life.corpus.memories[position].kind == "near" for position in copies)
        figures["duplicates"] += near
        # exact duplicates are gone already
        figures["united"] += near - max(0, len(places) - 1)
        figures["lost"] += not places
        originals_in.update(places)
    figures["wrong_merges"] = sum(count - 1 for count in originals_in.values())
    return figures
