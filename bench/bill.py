"""What a session of ten changes costs in tokens, next to layouts that send more."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bench.corpus import Corpus, Shares
from bench.layouts import Bill, Exchange, ledger_share_after_consent, replayed
from bench.lives import Life
from bench.playing import MODEL_PREFIX, reply
from bench.tidying import CHANGES, tidying
from refine.extensions import db
from refine.llm import rehearsal
from refine.models import Account, Agent, RefinementSession
from refine.refinement.loop import refine
from refine.settings import Settings

CALLS_PER_REPLY = 4

# At most this share of the naive layout's prompt tokens …
NAIVE_SHARE = 0.5
# … and at least this share of the prompts after consent is an unchanged prefix.
UNCHANGED_SHARE = 0.9

REFINE, NAIVE = "Refine", "naive"
# What the other layouts do differently, on the way to the naive one.
_OTHERS = {
    "one call a reply": {"fresh_prompt": False, "one_call": True},
    "fresh prompt": {"fresh_prompt": True, "one_call": False},
    NAIVE: {"fresh_prompt": True, "one_call": True},
}

# No exact duplicates: they would be gone before the model is asked.
_SHARES: Shares = {"near": 20, "lookalike": 12}
_SEED, _AGENT = 1, 1


@dataclass(frozen=True)
class Session:
    """A session that was run, and its bill in each layout."""

    memories: int
    ledger_tokens: int
    changes: int
    ledger_share_after_consent: float
    bills: Mapping[str, Bill]

    @property
    def of_naive(self) -> float:
        """Its prompt tokens as a share of the naive layout's."""
        return self.of_naive_in(REFINE)

    def of_naive_in(self, layout: str) -> float:
        """The prompt tokens of a layout as a share of the naive one's."""
        return self.bills[layout].prompt_tokens / self.bills[NAIVE].prompt_tokens


def measure(memories: int, settings: Settings, calls_per_reply: int = CALLS_PER_REPLY) -> Session:
    """Run a session on a generated ledger, and return what it came to in each layout.

    Needs an application context on a temporary database. The memories are always the same.
    """
    session, exchanges = record(memories, settings, calls_per_reply)
    others = {name: Bill.of(replayed(exchanges, **layout)) for name, layout in _OTHERS.items()}
    measured = Session(
        memories=session.memories_before or 0,
        ledger_tokens=session.mass_before or 0,
        changes=session.mutation_count,
        ledger_share_after_consent=ledger_share_after_consent(exchanges),
        bills={REFINE: Bill.of(exchanges), **others},
    )
    db.session.commit()
    return measured


def record(
    memories: int, settings: Settings, calls_per_reply: int
) -> tuple[RefinementSession, list[Exchange]]:
    """Run such a session over HTTP; return it, and every request with its reply."""
    exchanges: list[Exchange] = []
    play = partial(tidying, calls_per_reply=calls_per_reply)

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        answered = reply(body, play)
        exchanges.append(Exchange(body, answered["choices"][0]["message"]))
        return answered

    with rehearsal.serving(answer) as url:
        asking = replace(settings, openrouter_base_url=url, openrouter_api_key="trials")
        return _run(memories, asking), exchanges


def _run(memories: int, settings: Settings) -> RefinementSession:
    account = Account(name=f"Bill {memories}", slug=f"bill-{memories}")
    db.session.add(account)
    db.session.commit()
    corpus = Corpus(_SEED, _AGENT, _SHARES)
    life = Life(account, f"{MODEL_PREFIX}tidying", corpus, memories)
    session = RefinementSession.queue(db.session.get_one(Agent, life.agent_id), "weekly")
    refine(session.id, settings)
    return session


def broken_promises(sessions: Sequence[Session]) -> Iterator[str]:
    """Yield what the sessions break, in words."""
    for session in sessions:
        on = f"with {session.memories:,} memories"
        after_consent = session.bills[REFINE].unchanged_share_after_consent
        if session.changes != CHANGES:
            yield f"{session.changes} of {CHANGES} changes made {on}"
        if session.of_naive > NAIVE_SHARE:
            yield f"{session.of_naive:.1%} of the naive prompt tokens {on}"
        if after_consent < UNCHANGED_SHARE:
            yield f"{after_consent:.1%} unchanged after consent {on}"
