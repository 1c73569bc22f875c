"""Finds problems of an installation and says how to fix them."""

from collections.abc import Iterator

import click
from flask import Flask
from rich.markup import escape

from refine import health
from refine.cli.context import application
from refine.cli.output import console
from refine.llm.openrouter import OpenRouter
from refine.settings import Settings


@click.command()
def doctor() -> int:
    """Check servers, migrations, keys, schedule, queue, clock and the model's provider.

    Prints one line for each: its state, or how to fix it. Exit code 1 if something must be fixed.
    """
    with application("doctor", check_keys=False) as app:
        is_well = True
        for check in _checks(app):
            _print(check)
            is_well &= check.is_ok
        return 0 if is_well else 1


def _checks(app: Flask) -> Iterator[health.Check]:
    found = health.checks(app)
    yield from found
    if all(check.is_ok for check in found):
        yield health.older_keys_check()
        yield health.schedule_check()
        yield health.queue_check()
        yield health.clock_check()
    yield _provider(app.extensions["refine.settings"])


def _print(check: health.Check) -> None:
    mark = "[green]ok[/]  " if check.is_ok else "[red]fix[/] "
    text = escape(check.problem or check.detail)
    console.print(f"{mark} {check.name:<11} {text}", markup=True)


def _provider(settings: Settings) -> health.Check:
    if settings.openrouter_api_key is None:
        detail = "no OPENROUTER_API_KEY: only agents with a rehearsal/ model get answers"
        return health.Check("provider", None, detail)
    url = settings.openrouter_base_url
    problem = OpenRouter(url, settings.openrouter_api_key, settings.plain_openai).problem()
    return health.Check("provider", problem, f"{url} answers")
