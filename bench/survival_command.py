"""`refine bench survival`: a year with each simulated model, and the memories left."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import IO, Any

import click
from rich.console import Console

from bench.playing import serving
from bench.simulated_models import SIMULATED_MODELS
from bench.survival import Scale, Week, broken_promises, simulate
from bench.temporary import settings_for, temporary_database, temporary_folder
from refine.cli.output import console, table

_EVERYTHING = ",".join(SIMULATED_MODELS)
_MODELS = "\n".join(f"  {name:<14} {model.does}" for name, model in SIMULATED_MODELS.items())


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
@_number("--agents", 1, 1_000, Scale.agents, "Number of agents for each model.")
@_number("--weeks", 1, 520, Scale.weeks, "Number of weeks to simulate.")
@click.option(
    "--models",
    callback=_names,
    default=_EVERYTHING,
    show_default="all of them",
    help="Names separated by commas.",
)
@_number("--memories", 2, 1_000, Scale.memories, "Memories that an agent starts with.")
@_number("--saved-weekly", 0, 100, Scale.saved_weekly, "Memories that it saves each week.")
@click.option("--seed", type=int, default=Scale.seed, show_default=True, help="Random seed.")
@click.option("--json", "file", type=click.File("w"), help="Also write all weeks to this file.")
def bench_survival(
    agents: int,
    weeks: int,
    models: list[str],
    memories: int,
    saved_weekly: int,
    seed: int,
    file: IO[str] | None,
) -> int:
    """Simulate a year of weekly sessions with models that try to lose memories, and report what
    survives.

    Each agent gets generated memories in several languages, with exact duplicates, near duplicates
    and look-alikes among them, and saves more every week. Every week a real session runs, on a
    temporary database; a simulated model answers over HTTP. One model is careful, the others try to
    lose what they can.

    Prints what is left at the end, for each model. Exit code 1 if a promise is broken: a
    detail is lost; a hostile model leaves less than 95 % of the originals (an original is left if
    one memory has half of its words); an agent keeps less than half of its tokens over 30 days; the
    careful model loses an original, leaves more than 5 % of the duplicates, or has more than 1 % of
    its merges refused.

    \b
    Examples:
      refine bench survival --agents 3 --weeks 8
      refine bench survival --models careful,terse --weeks 52
      refine bench survival --json survival.json     the whole year, 2 to 3 hours
    """
    scale = Scale(agents, weeks, memories, saved_weekly, seed)
    lived: dict[str, list[Week]] = defaultdict(list)
    with Console(stderr=True).status("starting") as status:
        for week in all_weeks(models, scale):
            lived[week.model].append(week)
            status.update(f"{week.model}, week {week.week} of {weeks}")
    broken = {
        model: broken_promises(lived[model], is_hostile=SIMULATED_MODELS[model].is_hostile)
        for model in models
    }
    print_summary([lived[model][-1] for model in models], broken)
    if file is not None:
        written = {
            model: {"broken_promises": broken[model], "weeks": [asdict(week) for week in weeks]}
            for model, weeks in lived.items()
        }
        json.dump({"scale": asdict(scale), "models": written}, file, indent=1)
    return 1 if any(broken.values()) else 0


def all_weeks(models: Sequence[str], scale: Scale) -> Iterator[Week]:
    """Yield the weeks of all models, one model after another."""
    with temporary_folder() as folder, serving() as url:
        provider = {"OPENROUTER_API_KEY": "trials", "OPENROUTER_BASE_URL": url}
        settings = settings_for(folder, **provider)
        with temporary_database(settings, durable=False):
            for model in models:
                yield from simulate(model, scale, settings)


# -- the table -------------------------------------------------------------------------------------


def print_summary(lasts: Sequence[Week], broken: Mapping[str, list[str]]) -> None:
    console.print(f"\nAfter week {lasts[0].week}:")
    columns = (
        *("model", "memories", "details lost", "facts lost", "originals left", "all facts in one"),
        *("duplicates gone", "look-alikes merged", "refused", "lowest month", "promises"),
    )
    table(columns, [_summary_row(week, broken[week.model]) for week in lasts], empty="")


def _summary_row(week: Week, broken: list[str]) -> tuple[str, ...]:
    return (
        week.model,
        f"{week.memories:,}",
        f"{week.details - week.details_left:,}",
        f"{week.facts - week.facts_left:,}",
        _share(week.originals_left, week.originals),
        _share(week.originals_whole, week.originals),
        _share(week.duplicates_gone, week.duplicates),
        f"{week.lookalikes_merged:,}",
        f"{week.refused:,} of {week.changes:,}",
        f"{week.lowest_month:.0%}",
        "; ".join(broken) or "kept",
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"
