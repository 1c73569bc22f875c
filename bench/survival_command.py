"""`refine bench survival`: weeks with each simulated model, and the memories left."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console

from bench.corpus import Corpus, World
from bench.playing import serving
from bench.public_set import conversations
from bench.simulated_models import SIMULATED_MODELS
from bench.simulated_models.readers import finds_nothing, honest
from bench.survival import (
    STORED,
    Outcome,
    Scale,
    Shares,
    interval,
    missed_goals,
    share_of,
    simulate,
)
from bench.temporary import settings_for, temporary_database, temporary_folder
from refine.cli.output import console, table

_EVERYTHING = ",".join(SIMULATED_MODELS)
_MODELS = "\n".join(f"  {name:<10} {model.does}" for name, model in SIMULATED_MODELS.items())


def _names(_context: click.Context, _parameter: click.Parameter, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",") if name.strip()]
    if unknown := [name for name in names if name not in SIMULATED_MODELS]:
        known = ", ".join(SIMULATED_MODELS)
        raise click.BadParameter(f"unknown: {', '.join(unknown)}; choose from {known}")
    return names or list(SIMULATED_MODELS)


def _number(name: str, least: int, most: int, default: int, text: str) -> Callable[[Any], Any]:
    range_ = click.IntRange(least, most)
    return click.option(name, type=range_, default=default, show_default=True, help=text)


@click.command("survival", epilog=f"\b\nModels:\n{_MODELS}")
@_number("--agents", 1, 1_000, Scale.agents, "Number of agents, at most as the file has.")
@_number("--weeks", 1, 520, Scale.weeks, "Number of weeks to simulate.")
@click.option(
    "--models",
    callback=_names,
    default=_EVERYTHING,
    show_default="all of them",
    help="Names separated by commas.",
)
@click.option(
    "--world",
    type=click.Choice(["plain", "detailed"]),
    default="plain",
    show_default=True,
    help="Memories in plain speech, or full of dates, numbers and places.",
)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take memories and questions from a public set in LoCoMo's layout.",
)
@click.option(
    "--prefixed", is_flag=True, help="Store them as 'Name (person): …', like an importer."
)
@click.option(
    "--reader",
    type=click.Choice(list(STORED)),
    default="none",
    show_default=True,
    help="Second readings: none, by one that knows what is lost, or by one that finds nothing.",
)
@click.option("--unguarded", is_flag=True, help="As a control: no edit is refused for its losses.")
@_number("--memories", 2, 1_000, Scale.memories, "Memories that an agent starts with.")
@_number("--saved-weekly", 0, 100, Scale.saved_weekly, "Memories that it saves each week.")
@_number("--budget", 1, 1_000_000, Scale.budget, "Tokens that a question may retrieve.")
@click.option("--seed", type=int, default=Scale.seed, show_default=True, help="Random seed.")
@click.option("--json", "output", type=click.File("w"), help="Also write weeks and losses to it.")
def bench_survival(
    models: list[str],
    world: str,
    file: Path | None,
    prefixed: bool,
    reader: str,
    unguarded: bool,
    output: IO[str] | None,
    **scale: int,
) -> int:
    """Simulate weekly sessions with models that try to lose memories, and report what survives.

    Each agent gets memories with duplicates and look-alikes among them, and saves more every week;
    or those of a public set. Every week a real session runs, on a temporary database; a simulated
    model answers over HTTP. One model is careful, the others try to lose what they can.

    Prints for each model how many questions about the memories are still answered, in all that is
    kept and in what a search finds. Exit code 1 if a goal is missed.

    \b
    Examples:
      refine bench survival --models careful,deleting
      refine bench survival --file locomo10.json --saved-weekly 0
      refine bench survival --reader waves --json survival.json
    """
    size = Scale(**scale)
    outcomes: dict[str, Outcome] = {}
    missed: dict[str, list[str]] = {}
    with Console(stderr=True).status("starting") as status:
        worlds = partial(_worlds, size, world, file, is_prefixed=prefixed)
        lived = all_lives(models, worlds, size, reader, status.update, is_guarded=not unguarded)
        for model, outcome in lived:
            is_hostile = SIMULATED_MODELS[model].is_hostile
            outcomes[model] = outcome
            missed[model] = missed_goals(outcome, is_hostile=is_hostile, reader=reader)
    print_summary(outcomes, missed)
    if output is not None:
        found = {model: {"missed": missed[model], **asdict(outcomes[model])} for model in models}
        json.dump({"scale": asdict(size), "reader": reader, "models": found}, output, indent=1)
    return 1 if any(missed.values()) else 0


def _worlds(scale: Scale, kind: str, file: Path | None, *, is_prefixed: bool) -> Sequence[World]:
    if file is not None:
        return conversations(file, is_prefixed=is_prefixed)[: scale.agents]
    of = Corpus.of_plain_speech if kind == "plain" else Corpus
    return [of(scale.seed, number) for number in range(scale.agents)]


def all_lives(
    models: Sequence[str],
    worlds: Callable[[], Sequence[World]],
    scale: Scale,
    reader: str,
    tell: Callable[[str], object],
    *,
    is_guarded: bool,
) -> Iterator[tuple[str, Outcome]]:
    """Yield the outcome with each model, one after another."""
    rules = {
        "OPENROUTER_API_KEY": "trials",
        "REFINE_DETAILS": "keep" if is_guarded else "count",
        "REFINE_SECOND_READING": "off" if reader == "none" else "on",
    }
    with temporary_folder() as folder:
        settings = settings_for(folder, **rules)
        with temporary_database(settings, durable=False):
            for model in models:
                own = worlds()
                with serving(honest(own) if reader == "honest" else finds_nothing) as url:
                    asked = replace(settings, openrouter_base_url=url)
                    yield model, simulate(model, own, scale, asked, tell)


# -- the table -------------------------------------------------------------------------------------


def print_summary(outcomes: dict[str, Outcome], missed: dict[str, list[str]]) -> None:
    first = next(iter(outcomes.values()))
    console.print(f"\nAfter week {len(first.weeks)}, {len(first.stored)} agents:")
    columns = (
        *("model", "memories", "stored", "of 95 draws in 100", "half-life", "retired", "at random"),
        *("retrieved", "untouched", "duplicates gone", "look-alikes merged", "refused"),
        *("lowest month", "goals"),
    )
    rows = [_summary_row(model, each, missed[model]) for model, each in outcomes.items()]
    table(columns, rows, empty="")


def _summary_row(model: str, outcome: Outcome, missed: list[str]) -> tuple[str, ...]:
    last, (low, high) = outcome.weeks[-1], interval(outcome.stored)
    return (
        model,
        f"{last.memories:,}",
        _share(outcome.stored),
        f"{low:.1%} to {high:.1%}",
        f"{outcome.half_life:,.0f}",
        f"{last.retired:,}",
        _share(outcome.at_random),
        _share(outcome.retrieved),
        _share(outcome.untouched),
        _share([(last.duplicates_gone, last.duplicates)]) if last.duplicates else "–",
        f"{last.lookalikes_merged:,}",
        f"{last.refused:,} of {last.changes:,}",
        f"{min(week.lowest_month for week in outcome.weeks):.0%}",
        "; ".join(missed) or "met",
    )


def _share(shares: Shares) -> str:
    return f"{share_of(shares):.1%}"
