"""The tables of `refine bench survival`."""

from collections.abc import Mapping, Sequence

from bench.simulated_models import SIMULATED_MODELS
from bench.survival import Week
from refine.cli.output import console, table

SHOWN_WEEKS = (1, 2, 4, 8, 13, 26, 39, 52)


def print_weeks(model: str, weeks: Sequence[Week]) -> None:
    last = weeks[-1].week
    shown = [week for week in weeks if week.week in SHOWN_WEEKS or week.week == last]
    console.print(f"\n{model}: {SIMULATED_MODELS[model].does}")
    columns = (
        *("week", "memories", "tokens", "details left", "facts left", "originals left"),
        *(
            "all facts in one",
            "word for word",
            "duplicates gone",
            "changes",
            "refused",
            "prompt tokens",
        ),
    )
    table(columns, [_week_row(week) for week in shown], empty="")


def _week_row(week: Week) -> tuple[str, ...]:
    return (
        str(week.week),
        f"{week.memories:,}",
        f"{week.tokens:,}",
        f"{week.details_left:,} of {week.details:,}",
        f"{week.facts_left:,} of {week.facts:,}",
        f"{week.originals_left:,} of {week.originals:,}",
        f"{week.originals_whole:,}",
        f"{week.originals_exact:,}",
        f"{week.duplicates_gone:,} of {week.duplicates:,}",
        f"{week.changes:,}",
        f"{week.refused:,}",
        f"{week.prompt_tokens:,}",
    )


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
