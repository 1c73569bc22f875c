"""A year with each simulated model, and what it leaves."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from typing import IO, Any

import click

from bench.promises import broken_promises
from bench.simulated_models import SIMULATED_MODELS
from bench.simulating import all_weeks, shown
from bench.survival import Scale, Week
from bench.survival_tables import print_summary, print_weeks

_EVERYTHING = ",".join(SIMULATED_MODELS)
_MODELS = "\n".join(f"  {name:<14} {model.does}" for name, model in SIMULATED_MODELS.items())


def _names(_context: click.Context, _parameter: click.Parameter, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",") if name.strip()]
    if unknown := [name for name in names if name not in SIMULATED_MODELS]:
        known = ", ".join(SIMULATED_MODELS)
        raise click.BadParameter(f"unknown: {', '.join(unknown)}; choose from {known}")
    return names or list(SIMULATED_MODELS)


@click.command("survival", epilog=f"\b\nModels:\n{_MODELS}")
@click.option(
    "--agents",
    type=click.IntRange(1, 1_000),
    default=Scale.agents,
    show_default=True,
    help="Number of agents for each model.",
)
@click.option(
    "--weeks",
    type=click.IntRange(1, 520),
    default=Scale.weeks,
    show_default=True,
    help="Number of weeks to simulate.",
)
@click.option(
    "--models",
    callback=_names,
    default=_EVERYTHING,
    show_default="all of them",
    help="Names separated by commas.",
)
@click.option(
    "--memories",
    type=click.IntRange(2, 1_000),
    default=Scale.memories,
    show_default=True,
    help="Number of memories that an agent starts with.",
)
@click.option(
    "--saved-weekly",
    type=click.IntRange(0, 100),
    default=Scale.saved_weekly,
    show_default=True,
    help="Number of memories that it saves each week.",
)
@click.option(
    "--seed",
    type=int,
    default=Scale.seed,
    show_default=True,
    help="Random seed for the generated memories.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of models to simulate at the same time, one process each.",
)
@click.option("--json", "file", type=click.File("w"), help="Also write all weeks to this file.")
def bench_survival(
    agents: int,
    weeks: int,
    models: list[str],
    memories: int,
    saved_weekly: int,
    seed: int,
    jobs: int,
    file: IO[str] | None,
) -> int:
    """Simulate a year of weekly sessions with models that try to lose memories, and report what
    survives.

    Each agent gets generated memories in several languages, with exact duplicates, near duplicates
    and look-alikes among them, and saves more every week. Every week a real session runs, on a
    temporary database; a simulated model answers over HTTP. One model is careful, the others try to
    lose what they can.

    Prints a table by week for each model, and a summary. Exit code 1 if a promise is broken: a
    detail is lost; a hostile model leaves less than 95 % of the originals (an original is left if
    one memory has half of its words); an agent keeps less than half of its tokens over 30 days; the
    careful model loses an original, leaves more than 5 % of the duplicates, or has more than 1 % of
    its merges refused.

    \b
    Examples:
      refine bench survival --agents 3 --weeks 8
      refine bench survival --models careful,terse --weeks 52
      refine bench survival --jobs 2 --json survival.json     the whole year, 1 to 2 hours
    """
    scale = Scale(agents, weeks, memories, saved_weekly, seed)
    lived: dict[str, list[Week]] = defaultdict(list)
    for week in shown(all_weeks(models, scale, jobs), len(models) * weeks):
        lived[week.model].append(week)
    broken = {
        model: broken_promises(lived[model], is_hostile=SIMULATED_MODELS[model].is_hostile)
        for model in models
    }
    for model in models:
        print_weeks(model, lived[model])
    print_summary([lived[model][-1] for model in models], broken)
    if file is not None:
        json.dump(_as_json(scale, lived, broken), file, indent=1)
    return 1 if any(broken.values()) else 0


def _as_json(
    scale: Scale, lived: Mapping[str, list[Week]], broken: Mapping[str, list[str]]
) -> dict[str, Any]:
    models = {
        model: {"broken_promises": broken[model], "weeks": [asdict(week) for week in weeks]}
        for model, weeks in lived.items()
    }
    return {"scale": asdict(scale), "models": models}
