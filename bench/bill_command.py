"""What a session costs in tokens, compared with a naive layout of its prompts."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import IO, Any

import click

from bench.bill import (
    CALLS_PER_REPLY,
    NAIVE_SHARE,
    REFINE,
    UNCHANGED_SHARE,
    Session,
    broken_promises,
    measure,
)
from bench.temporary import settings_for, temporary_database, temporary_folder
from refine.cli.output import console, table

_SMALLEST, _LARGEST = 50, 2_000

_COLUMNS = (
    *("memories", "layout", "requests", "prompt tokens", "completion tokens"),
    *("of naive", "unchanged prefix", "after consent", "new tokens"),
)


def _sizes(_context: click.Context, _parameter: click.Parameter, value: str) -> list[int]:
    sizes = [size.strip() for size in value.split(",")]
    if not all(size.isdecimal() and _SMALLEST <= int(size) <= _LARGEST for size in sizes):
        raise click.BadParameter(f"numbers from {_SMALLEST} to {_LARGEST:,}, separated by commas")
    return sorted({int(size) for size in sizes})


_LAYOUTS = """\b
Layouts:
  Refine            what was sent: one conversation, several calls a reply
  one call a reply  the same conversation, but each reply makes one call
  fresh prompt      a new prompt after consent (system prompt, ledger, brief)
  naive             a new prompt after consent, and one call a reply
"""


@click.command("bill", epilog=_LAYOUTS)
@click.option(
    "--memories",
    "sizes",
    callback=_sizes,
    default="100,500",
    show_default=True,
    help="Sizes of the ledgers, separated by commas. If one exceeds the context, a part is shown.",
)
@click.option(
    "--calls",
    type=click.IntRange(1, 10),
    default=CALLS_PER_REPLY,
    show_default=True,
    help="How many tool calls the model makes in a reply.",
)
@click.option("--json", "file", type=click.File("w"), help="Also write all figures to this file.")
def bench_bill(sizes: list[int], calls: int, file: IO[str] | None) -> int:
    """Count the tokens of a session with ten changes, and compare them with a naive layout.

    For each size of ledger, a real session runs on a temporary database. A simulated model answers
    over HTTP: it agrees, makes four merges, three deletions and three updates, several in a reply,
    and completes. Every request is recorded. The same calls and results are then laid out in the
    ways that are listed below.

    Prints, for each layout: the requests; the tokens of all prompts and replies; the prompt tokens
    compared with the naive layout; the share of the prompts that repeats the beginning of an
    earlier request word for word, so that a provider's prompt cache can serve it; the same for the
    requests after consent; and the rest of the prompts, which no cache can serve. Tokens are
    estimated as a quarter of the characters.

    Exit code 1 if a promise is broken: the session has more than half of the prompt tokens of the
    naive layout, or less than 90 % of the prompts after consent is such a repetition. Fewer than
    four calls in a reply break the first one.

    \b
    Examples:
      refine bench bill
      refine bench bill --memories 50,1000 --calls 3
      refine bench bill --json bill.json
    """
    with temporary_folder() as folder:
        settings = settings_for(folder)
        with temporary_database(settings, durable=False):
            sessions = [measure(size, settings, calls) for size in sizes]
    broken = list(broken_promises(sessions))
    table(_COLUMNS, [row for session in sessions for row in _rows(session)], empty="")
    _print_promises(sessions, broken)
    if file is not None:
        json.dump(_as_json(sessions, calls, broken), file, indent=1)
    return 1 if broken else 0


def _rows(session: Session) -> Iterator[tuple[str, ...]]:
    for layout, bill in session.bills.items():
        yield (
            f"{session.memories:,}",
            layout,
            f"{bill.requests:,}",
            f"{bill.prompt_tokens:,}",
            f"{bill.completion_tokens:,}",
            f"{session.of_naive_in(layout):.1%}",
            f"{bill.unchanged_share:.1%}",
            f"{bill.unchanged_share_after_consent:.1%}",
            f"{bill.new_tokens:,}",
        )


def _print_promises(sessions: Sequence[Session], broken: Sequence[str]) -> None:
    of_naive = max(session.of_naive for session in sessions)
    unchanged = min(session.bills[REFINE].unchanged_share_after_consent for session in sessions)
    ledger = min(session.ledger_share_after_consent for session in sessions)
    console.print(
        f"\nAt most {NAIVE_SHARE:.0%} of the naive prompt tokens: {of_naive:.1%}"
        f"\nAt least {UNCHANGED_SHARE:.0%} an unchanged prefix after consent: {unchanged:.1%}"
        f" ({ledger:.1%} for providers that cache up to the mark at the end of the ledger)"
        f"\nPromises: {'; '.join(broken) or 'kept'}"
    )


def _as_json(sessions: Sequence[Session], calls: int, broken: Sequence[str]) -> dict[str, Any]:
    ledgers = [asdict(session) for session in sessions]
    return {"calls_per_reply": calls, "ledgers": ledgers, "broken_promises": list(broken)}
