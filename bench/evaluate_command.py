"""Tries a model before agents are given it."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console

from bench.evaluation import Score, evaluate
from bench.temporary import temporary_database, temporary_folder
from refine.cli.context import settings_without_installation
from refine.cli.output import console, table
from refine.errors import ProviderError
from refine.llm.clients import client_for, is_rehearsed, warning_about
from refine.rules.quantities import cost_in_words
from refine.settings import Settings

_COLUMNS = (
    *("agent", "outcome", "duplicates united", "wrong merges", "lost", "changes"),
    *("refused", "for details", "malformed calls", "tokens before", "after"),
    *("prompt tokens", "completion tokens", "cost", "seconds"),
)


@click.command("evaluate")
@click.argument("model_id", metavar="MODEL")
@click.option(
    "--agents",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="Number of agents; each runs one session.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Random seed for the generated memories."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def evaluate_model(model_id: str, agents: int, seed: int, as_json: bool) -> None:
    """Try MODEL on generated memories and report how well it tidies them.

    Runs one session for each agent, with the provider and settings of the environment
    (OPENROUTER_API_KEY, OPENROUTER_BASE_URL, ...), on a temporary database: your data is neither
    read nor changed, and nothing is kept. It costs what sessions cost.

    Each agent has 32 memories in several languages. Compare models by: duplicates united (near
    duplicates that the model merged or deleted; more is better); wrong merges and lost memories
    (fewer is better; a good model has none); changes that were refused because a detail would have
    been lost; malformed calls; cost; time.

    \b
    Examples:
      refine evaluate rehearsal/any                 free, without a provider
      refine evaluate anthropic/claude-sonnet-4.5
      refine evaluate openai/gpt-5 --agents 10 --json
    """
    with temporary_folder() as folder:
        settings = settings_without_installation(folder)
        with client_for(model_id, settings, is_demo=True):
            pass  # without a provider it ends here, before anything starts
        with temporary_database(settings, durable=False):
            try:
                scores = list(_shown(evaluate(model_id, agents, seed, settings), agents))
            except ProviderError as fault:
                raise _explained(fault, model_id, settings) from None
    rehearsed = is_rehearsed(model_id, settings, is_demo=True)
    answered_by = "the rehearsal model" if rehearsed else settings.openrouter_base_url
    if as_json:
        _print_json(model_id, answered_by, scores)
    else:
        console.print(f"{model_id}, answered by {answered_by}:")
        table(_COLUMNS, _rows(scores), empty="")


def _shown(scores: Iterable[Score], agents: int) -> Iterator[Score]:
    """Pass the scores on, and show on a terminal how far they are."""
    screen = Console(stderr=True)
    with screen.status(f"agent 1 of {agents}") as status:
        for done, score in enumerate(scores, start=1):
            screen.print(f"agent {done}: {score.status}, {score.seconds:.0f} s")
            status.update(f"agent {done + 1} of {agents}")
            yield score


def _explained(fault: ProviderError, model_id: str, settings: Settings) -> ProviderError:
    """Return the fault, saying so if the provider does not know the model."""
    warning = warning_about(model_id, settings, is_demo=True)
    if warning is None:
        return fault
    message = f"{warning} ({fault})"
    return ProviderError(message, kind=fault.kind, http_status=fault.http_status)


def _rows(scores: Sequence[Score]) -> Iterator[tuple[str, ...]]:
    for number, score in enumerate(scores, start=1):
        yield (str(number), score.status, *_cells(asdict(score)))
    if len(scores) > 1:
        yield ("all", "", *_cells(_total(scores)))


def _cells(figures: dict[str, Any]) -> tuple[str, ...]:
    counts = ("wrong_merges", "lost", "changes", "refused", "losing", "malformed")
    tokens = ("tokens_before", "tokens_after", "prompt_tokens", "completion_tokens")
    return (
        f"{figures['united']:,} of {figures['duplicates']:,}",
        *(f"{figures[name]:,}" for name in (*counts, *tokens)),
        cost_in_words(figures["cost_usd"], figures["unpriced_calls"]),
        f"{figures['seconds']:.0f}",
    )


def _total(scores: Sequence[Score]) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for score in scores:
        total.update({k: v for k, v in asdict(score).items() if k not in ("status", "reason")})
    return total


def _print_json(model_id: str, answered_by: str, scores: Sequence[Score]) -> None:
    shown = {
        "model": model_id,
        "answered_by": answered_by,
        "agents": [asdict(score) for score in scores],
        "all": _total(scores),
    }
    click.echo(json.dumps(shown, indent=2, default=float))
