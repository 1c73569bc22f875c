"""`refine bench meaning`: which edits the tool refuses and which it accepts, by class."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import click
from rich.console import Console

from bench.meaning import (
    ALONE,
    BUILT_IN,
    WITH_READER,
    Counts,
    Outcome,
    Pair,
    Promise,
    Reader,
    judged,
    pairs_in,
)
from bench.temporary import settings_for, temporary_database, temporary_folder
from refine.cli.output import console, table

_File = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("meaning")
@click.argument("file", type=_File, required=False)
@click.option("--answers", type=_File, help="Answers of a second reader, each with its prompt.")
@click.option("--prompts", type=click.File("w"), help="Write the prompts without an answer here.")
@click.option(
    "--json", "written", type=click.File("w"), help="Also write each answer to this file."
)
def bench_meaning(
    file: Path | None, answers: Path | None, prompts: IO[str] | None, written: IO[str] | None
) -> int:
    """Try labelled edits through the real tool, and count by class how many legitimate ones it
    refuses and how many wrong ones it accepts: with the check in code alone, and with a second
    reader, whose answers are given.

    FILE has one JSON object a line: class, before (the memories, the oldest first), operation
    (delete0, update, merge), after, should (accept or refuse), and reason where an edit claims
    more than that it says the same. Without FILE it takes its own edits, in eight languages.
    Answers have a prompt and an answer a line.

    Legitimate deletions whose carrier the file does not show are left out. Exit code 1 if more
    than 40 % of the legitimate edits are refused, or more than 6 % of the wrong ones accepted;
    with a second reader, 3 % each.
    """
    try:
        pairs = [pair for pair in pairs_in(file or BUILT_IN) if pair.is_shown]
        known = _answers_in(answers)
    except (ValueError, KeyError, TypeError) as error:
        raise click.ClickException(f"this file does not hold what it should: {error!r}") from error
    unanswered: list[str] = []

    def read(prompt: str) -> str | None:
        if prompt not in known:
            unanswered.append(prompt)
        return known.get(prompt)

    is_read = answers is not None or prompts is not None
    alone, together = _judged(pairs), _judged(pairs, read) if is_read else []
    if prompts is not None:
        prompts.writelines(_line({"prompt": prompt, "answer": ""}) for prompt in unanswered)
    if written is not None:
        written.writelines(_line(_row(outcome)) for outcome in together or alone)
    kept = print_counts(alone, "by the code alone", ALONE)
    if answers is not None:
        kept = print_counts(together, "with a second reader", WITH_READER) and kept
        console.print(f"prompts without an answer: {len(unanswered)}")
    return 0 if kept else 1


def _judged(pairs: Sequence[Pair], *reader: Reader) -> list[Outcome]:
    with (
        Console(stderr=True).status("judging"),
        temporary_folder() as folder,
        temporary_database(settings_for(folder, REFINE_ROLLING_FLOOR="0"), durable=False),
    ):
        return list(judged(pairs, *reader))


def _answers_in(file: Path | None) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines() if file is not None else []
    rows = [json.loads(line) for line in lines if line.strip()]
    return {row["prompt"]: row["answer"] for row in rows if row["answer"]}


def print_counts(outcomes: Sequence[Outcome], by: str, promise: Promise) -> bool:
    """Print how many edits of each class were misjudged; tell whether few enough were."""
    kinds = sorted({each.pair.kind for each in outcomes})
    counts = {kind: Counts.of(o for o in outcomes if o.pair.kind == kind) for kind in kinds}
    total = counts["all"] = Counts.of(outcomes)
    console.print(f"\nJudged {by}:")
    columns = ("class", "legitimate", "refused", "wrong", "accepted")
    table(columns, [(kind, *map(str, row)) for kind, row in counts.items()], empty="")
    console.print(
        f"refused: {_share(total.refused, total.legitimate)} of the legitimate edits "
        f"(at most {promise.refused:.0%}); accepted: {_share(total.accepted, total.wrong)} "
        f"of the wrong ones (at most {promise.accepted:.0%})"
    )
    return total.keeps(promise)


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


def _line(row: dict[str, object]) -> str:
    return f"{json.dumps(row, ensure_ascii=False)}\n"
