"""Whole sessions, as a worker runs them, with a server and a dialect."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from bench.corpus import Corpus
from refine.extensions import db
from refine.models import Account, Agent, RefinementSession
from refine.refinement.loop import refine
from refine.settings import Settings
from refine.tools import SaveMemoryTool

# The newest says what the first says; no other may go.
FEW = (
    "Ines plays the cello, and practises on Tuesday evenings.",
    "Ines asked me to remind her of her mother's birthday, 14 May.",
    'Ines said: "You are better at listening than at advice."',
    "The second string of the cello broke on 3 March; a new one is ordered.",
    "On Tuesday evenings Ines practises the cello.",
)
# Too many for a small context; whichever goes, another says the same.
_TWICE = ("On {} May Ines practised her cello.", "Ines practised her cello on {} May.")
LONG = tuple(text.format(day) for day in range(1, 31) for text in _TWICE)
# Generated ones, near duplicates among them.
MANY = tuple(memory.text for memory in Corpus(1, 0, {"near": 18, "lookalike": 18}).begin(32))


@dataclass(frozen=True)
class Outcome:
    """How a session went.

    ``is_batch``: not all memories were shown; ``removed`` is how many are gone.
    """

    status: str
    reason: str | None
    error_kind: str | None
    llm_calls: int
    tool_calls: int
    is_batch: bool
    removed: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: Decimal


def session(model_id: str, memories: Sequence[str], settings: Settings) -> Outcome:
    """Let an agent with these memories tidy them once, and return how it went."""
    agent = Agent(account=_account(), name="Keeper", model_id=model_id, refinement_threshold=0.5)
    db.session.add(agent)
    db.session.commit()
    ids = [_save(agent, text) for text in memories]
    run = RefinementSession.queue(agent, "cli")
    db.session.commit()
    refine(run.id, settings)
    kept = {memory.id for memory in db.session.scalars(agent.ledger.core())}
    return _outcome(run, removed=len(set(ids) - kept))


def _account() -> Account:
    account = db.session.query(Account).filter_by(slug="providers").one_or_none()
    return account or Account(name="Providers", slug="providers")


def _save(agent: Agent, text: str) -> int:
    return int(SaveMemoryTool(agent).execute(content=text, memory_type="core")["id"])


def _outcome(run: RefinementSession, removed: int) -> Outcome:
    return Outcome(
        status=run.status,
        reason=run.end_reason,
        error_kind=run.error_kind,
        llm_calls=run.llm_calls,
        tool_calls=run.tool_calls,
        is_batch=run.batch_through_id is not None,
        removed=removed,
        prompt_tokens=run.prompt_tokens,
        completion_tokens=run.completion_tokens,
        cost_usd=run.cost_usd,
    )
