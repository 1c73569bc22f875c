"""A model judged by figures: one session for each of a few agents with planted duplicates."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

import click
from rich.console import Console

from bench.corpus import Corpus, Shares, families
from bench.lives import Life
from bench.temporary import temporary_database, temporary_folder
from refine.cli.context import settings_without_installation
from refine.cli.output import console, table
from refine.errors import ProviderError
from refine.extensions import db
from refine.llm.provider import client_for, is_rehearsed, warning_about
from refine.models import Account
from refine.rules.quantities import cost_in_words
from refine.settings import Settings

MEMORIES = 32
# As many look-alikes as duplicates, to expose a model that merges both.
_SHARES: Shares = {"exact": 5, "near": 18, "lookalike": 18, "poison": 3}
# Low, so that the allowance does not keep a model from uniting all duplicates.
_THRESHOLD = 0.5
# Failures that tell something about the model.
_OF_MODEL = ("no_answer", "refused_calls")


CHANGES = ("consolidate", "update", "delete")


@dataclass(frozen=True)
class Score:
    """What a model did with the memories of one agent.

    ``duplicates`` are planted near duplicates (exact ones go before the model is asked),
    ``united`` those that it merged or deleted. ``wrong_merges`` are memories that it merged with
    one that says something else, ``lost`` those without any copy left. ``refused`` are changes,
    ``malformed`` calls without an action of the tool.
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
    session = life.run_session(settings)
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
        **_called(life),
        **_kept(life),
    )
    db.session.commit()
    return score


def _kept(life: Life) -> Counter[str]:
    """Return the fates of the planted memories."""
    figures: Counter[str] = Counter(duplicates=0, united=0, wrong_merges=0, lost=0)
    originals_in: Counter[int] = Counter()
    for copies in families(life.world.memories).values():
        places = life.places(copies)
        near = sum(life.world.memories[position].kind == "near" for position in copies)
        figures["duplicates"] += near
        # exact duplicates are gone already
        figures["united"] += near - max(0, len(places) - 1)
        figures["lost"] += not places
        originals_in.update(places)
    figures["wrong_merges"] = sum(count - 1 for count in originals_in.values())
    return figures


def _called(life: Life) -> dict[str, int]:
    """Return the numbers of the model's calls, by kind."""
    by_action: Counter[str] = Counter()
    refused = 0
    for (action, result), count in life.calls.items():
        by_action[action] += count
        refused += count * (action in CHANGES and result == "error")
    return {
        "calls": by_action.total(),
        "malformed": by_action["unreadable call"],
        "changes": sum(by_action[action] for action in CHANGES),
        "refused": refused,
    }


# -- the command -----------------------------------------------------------------------------------


_COLUMNS = (
    *("agent", "outcome", "duplicates united", "wrong merges", "lost", "changes"),
    *("refused", "malformed calls", "tokens before", "after"),
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
    (fewer is better; a good model has none); refused changes; malformed calls; cost; time.

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
    """Yield the scores, and show the progress on a terminal."""
    screen = Console(stderr=True)
    with screen.status(f"agent 1 of {agents}") as status:
        for done, score in enumerate(scores, start=1):
            screen.print(f"agent {done}: {score.status}, {score.seconds:.0f} s")
            status.update(f"agent {done + 1} of {agents}")
            yield score


def _explained(fault: ProviderError, model_id: str, settings: Settings) -> ProviderError:
    """Return the fault, with a hint if the provider does not list the model."""
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
    counts = ("wrong_merges", "lost", "changes", "refused", "malformed")
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
