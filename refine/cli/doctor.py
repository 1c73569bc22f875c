"""What is wrong with this installation, and what to do about it."""

import click
from rich.markup import escape

from refine import health
from refine.cli.context import application
from refine.cli.output import console
from refine.settings import Settings


@click.command()
def doctor() -> int:
    """Check settings, servers, migrations, keys, workers and the model's provider.

    Every line says what is there, or what to do. Exit code 1 if something must be mended.
    """
    with application("doctor", check_keys=False) as app:
        settings = app.extensions["refine.settings"]
        found = [*health.checks(app), health.workers(), _provider(settings)]
        for check in found:
            mark = "[green]ok[/]  " if check.is_ok else "[red]mend[/]"
            said = escape(check.problem or check.detail)
            console.print(f"{mark} {check.name:<11} {said}", markup=True)
        return 0 if all(check.is_ok for check in found) else 1


def _provider(settings: Settings) -> health.Check:
    if settings.openrouter_api_key is None:
        return health.Check(
            "provider",
            None,
            "no OPENROUTER_API_KEY: only agents of rehearsal/ models are answered",
        )
    return health.Check("provider", None, f"{settings.openrouter_base_url}, key set")
