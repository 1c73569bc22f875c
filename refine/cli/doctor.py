"""Finds problems of an installation, and says what to do about them."""

import click
from rich.markup import escape

from refine import health
from refine.cli.context import application
from refine.cli.output import console
from refine.llm.openrouter import OpenRouter
from refine.settings import Settings


@click.command()
def doctor() -> int:
    """Check servers, migrations, keys, schedule, queue, clock and the model's provider.

    Prints one line for each: its state, or what to do. Exit code 1 if something must be fixed.
    """
    with application("doctor", check_keys=False) as app:
        settings = app.extensions["refine.settings"]
        found = health.checks(app)
        for check in found:
            _print(check)
        if all(check.is_ok for check in found):
            for examine in (
                health.older_keys_check,
                health.schedule_check,
                health.queue_check,
                health.clock_check,
            ):
                found.append(examine())
                _print(found[-1])
        found.append(_provider(settings))
        _print(found[-1])
        return 0 if all(check.is_ok for check in found) else 1


def _print(check: health.Check) -> None:
    mark = "[green]ok[/]  " if check.is_ok else "[red]fix[/] "
    text = escape(check.problem or check.detail)
    console.print(f"{mark} {check.name:<11} {text}", markup=True)


def _provider(settings: Settings) -> health.Check:
    if settings.openrouter_api_key is None:
        return health.Check(
            "provider",
            None,
            "no OPENROUTER_API_KEY: only agents with a rehearsal/ model get answers",
        )
    url = settings.openrouter_base_url
    problem = OpenRouter(url, settings.openrouter_api_key, settings.plain_openai).problem()
    return health.Check("provider", problem, f"{url} answers")
