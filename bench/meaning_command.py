"""`refine bench meaning`: which edits the tool refuses and which it accepts, by class."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

import click
from rich.console import Console

from bench.meaning import BUILT_IN, MAX_ACCEPTED, MAX_REFUSED, Outcome, Tally, judged, pairs_in
from bench.temporary import settings_for, temporary_database, temporary_folder
from refine.cli.output import console, table

_COLUMNS = ("class", "legitimate", "refused", "wrong", "accepted")


@click.command("meaning")
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option(
    "--json", "written", type=click.File("w"), help="Also write each answer to this file."
)
def bench_meaning(file: Path | None, written: IO[str] | None) -> int:
    """Try labelled edits through the real tool, with the check in code alone, and count by class
    how many legitimate ones it refuses and how many wrong ones it accepts.

    FILE has one JSON object a line: class, before (the memories, the oldest first), operation
    (delete0, update, merge), after, should (accept or refuse), and reason where an edit claims
    more than that it says the same. Without FILE it takes its own edits, in eight languages.

    Legitimate deletions whose carrier the file does not show are left out. Exit code 1 if more
    than 40 % of the legitimate edits are refused, or more than 6 % of the wrong ones accepted.
    """
    try:
        pairs = pairs_in(file or BUILT_IN)
    except (ValueError, KeyError, TypeError) as error:
        raise click.ClickException(f"{file} does not hold edits: {error!r}") from error
    with (
        Console(stderr=True).status("judging"),
        temporary_folder() as folder,
        temporary_database(settings_for(folder, REFINE_ROLLING_FLOOR="0"), durable=False),
    ):
        outcomes = list(judged(pair for pair in pairs if pair.is_shown))
    if written is not None:
        json.dump([_row(outcome) for outcome in outcomes], written, indent=1, ensure_ascii=False)
    return 0 if print_tallies(outcomes) else 1


def print_tallies(outcomes: Sequence[Outcome]) -> bool:
    """Print how many edits of each class were misjudged; tell whether few enough were."""
    kinds = sorted({each.pair.kind for each in outcomes})
    rows = [_cells(kind, (each for each in outcomes if each.pair.kind == kind)) for kind in kinds]
    table(_COLUMNS, [*rows, _cells("all", outcomes)], empty="")
    total = Tally.of(outcomes)
    console.print(
        f"refused: {_share(total.refused, total.legitimate)} of the legitimate edits "
        f"(at most {MAX_REFUSED:.0%}); accepted: {_share(total.accepted, total.wrong)} "
        f"of the wrong ones (at most {MAX_ACCEPTED:.0%})"
    )
    return total.keeps_promises()


def _cells(kind: str, outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    return (kind, *map(str, Tally.of(outcomes)))


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"


def _row(outcome: Outcome) -> dict[str, object]:
    pair = outcome.pair
    return {
        "class": pair.kind,
        "before": pair.before,
        "after": pair.after,
        "should": "accept" if pair.is_legitimate else "refuse",
        "did": "accepted" if outcome.is_accepted else "refused",
        "error": outcome.error,
    }
