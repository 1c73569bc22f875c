"""Runs whole sessions through the servers of others, and prints how each went.

Run as ``make providers``; ends with 1 if a session did not go as it must. Words as arguments take
only the sessions whose server or model contains one of them.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from bench.temporary import settings_for, temporary_database, temporary_folder
from refine.cli.output import console, table
from tests.real_providers import servers
from tests.real_providers.sessions import FEW, LONG, MANY, Outcome, session

_COLUMNS = (
    *("server", "dialect", "model", "memories", "context", "batch", "status", "model calls"),
    *("tool calls", "removed", "prompt tokens", "completion tokens", "cost", "as it must"),
)
_SMALL = servers.SMALL_CONTEXT_TOKENS
# US dollars for a token of a prompt and of an answer, as litellm.yaml has them
_TINY_PRICE = (Decimal("0.000001"), Decimal("0.000002"))
_PLAYED_PRICE = (Decimal("0.000003"), Decimal("0.000015"))
_FREE = (Decimal(0), Decimal(0))


@dataclass(frozen=True)
class Case:
    """A session through a server, and what must come of it.

    ``removed`` is how many memories must go; None: some. ``is_batch``: too many for the context.
    ``names_context``: Refine is not told how large that is; the server's list of models says so.
    """

    server: str
    dialect: str
    model: str
    memories: Sequence[str]
    removed: int | None = 1
    price: tuple[Decimal, Decimal] = _FREE
    is_batch: bool = False
    names_context: bool = False
    context_tokens: int = servers.CONTEXT_TOKENS

    def problems(self, outcome: Outcome) -> Iterator[str]:
        """Yield what did not go as it must."""
        if outcome.status != "completed":
            yield f"{outcome.reason} ({outcome.error_kind})"
        if not outcome.removed or outcome.removed != (self.removed or outcome.removed):
            yield f"removed {outcome.removed}"
        if outcome.is_batch != self.is_batch:
            yield "the context was fitted wrongly"
        if not (outcome.prompt_tokens and outcome.completion_tokens):
            yield "tokens were not counted"
        if outcome.cost_usd != self._cost_usd(outcome):
            yield f"not ${self._cost_usd(outcome)}"

    def _cost_usd(self, outcome: Outcome) -> Decimal:
        prompt, completion = self.price
        return prompt * outcome.prompt_tokens + completion * outcome.completion_tokens


CASES = (
    Case("llama-server", "llama-cpp", "tiny", FEW, names_context=True),
    Case(
        *("llama-server", "llama-cpp", "tiny", LONG),
        is_batch=True,
        names_context=True,
        context_tokens=_SMALL,
    ),
    Case("llama-cpp-python", "llama-cpp", "tiny", FEW),
    Case("llama-cpp-python", "llama-cpp", "tiny", FEW, context_tokens=_SMALL),
    Case("litellm", "litellm", "tiny", FEW, price=_TINY_PRICE),
    Case("litellm", "litellm", "tiny-python", FEW, price=_TINY_PRICE),
    Case("litellm", "litellm", "trial/careful", MANY, removed=None, price=_PLAYED_PRICE),
)


def main(words: Sequence[str]) -> int:
    """Run the sessions; return 1 if one did not go as it must."""
    chosen = [case for case in CASES if _is_chosen(case, words)]
    with temporary_folder() as folder, servers.all_running(folder) as urls:
        with temporary_database(settings_for(folder), durable=False):
            ran = [(case, _outcome(case, urls, folder)) for case in chosen]
        console.print(f"{servers.versions()}\n")
    table(_COLUMNS, [_row(case, outcome) for case, outcome in ran], empty="no session was chosen")
    return int(any(any(case.problems(outcome)) for case, outcome in ran))


def _is_chosen(case: Case, words: Sequence[str]) -> bool:
    return not words or any(word in f"{case.server} {case.model}" for word in words)


def _outcome(case: Case, urls: servers.Urls, folder: Path) -> Outcome:
    told = {} if case.names_context else {"REFINE_CONTEXT_TOKENS": str(case.context_tokens)}
    settings = settings_for(
        folder,
        OPENROUTER_BASE_URL=urls[case.server, case.context_tokens],
        OPENROUTER_API_KEY=servers.KEY,
        REFINE_DIALECT=case.dialect,
        **told,
    )
    return session(case.model, case.memories, settings)


def _row(case: Case, outcome: Outcome) -> tuple[object, ...]:
    return (
        *(case.server, case.dialect, case.model, len(case.memories), f"{case.context_tokens:,}"),
        *("yes" if outcome.is_batch else "no", outcome.status),
        *(outcome.llm_calls, outcome.tool_calls, outcome.removed),
        *(f"{outcome.prompt_tokens:,}", f"{outcome.completion_tokens:,}"),
        *(f"${outcome.cost_usd:.6f}", "; ".join(case.problems(outcome)) or "yes"),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
