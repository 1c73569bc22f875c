"""Finds problems of an installation and says how to fix them."""

from collections.abc import Iterator

import click
from flask import Flask
from rich.markup import escape

from refine import health
from refine.cli.context import application
from refine.cli.output import console
from refine.llm.clients import configured_provider
from refine.rules.quantities import plural
from refine.settings import Settings


@click.command()
def doctor() -> int:
    """Check servers, migrations, keys, schedule, queue, clock, the provider and security settings.

    Prints one line for each: its state, or how to fix it. Exit code 1 if something must be fixed.
    Warnings do not count: a short SECRET_KEY, plain http beyond this machine (PUBLIC_URL,
    OPENROUTER_BASE_URL), a database role that could get past the guards (`refine db roles`).
    """
    with application("doctor", check_keys=False) as app:
        is_well = True
        for check in _checks(app):
            _print(check)
            is_well &= check.is_ok
        return 0 if is_well else 1


def _checks(app: Flask) -> Iterator[health.Check]:
    settings: Settings = app.extensions["refine.settings"]
    found = health.checks(app)
    yield from found
    if all(check.is_ok for check in found):
        yield health.older_keys_check()
        yield health.binding_check()
        yield health.schedule_check()
        yield health.queue_check()
        yield health.clock_check()
        yield health.verification_check()
        yield health.role_check(settings)
    if settings.is_https:
        yield _proxies(settings.proxies)
    yield health.signing_check(settings)
    yield health.https_check(settings)
    yield _provider(settings)


def _print(check: health.Check) -> None:
    mark = "[red]fix[/] " if check.problem else "[yellow]warn[/]"
    if check.is_ok and not check.warning:
        mark = "[green]ok[/]  "
    text = escape(check.problem or check.warning or check.detail)
    console.print(f"{mark} {check.name:<11} {text}", markup=True)


def _proxies(proxies: int) -> health.Check:
    """Check that the proxy which speaks HTTPS for us tells the addresses of clients."""
    problem = None
    if not proxies:
        problem = (
            "PUBLIC_URL is https, so a proxy stands in front, and all clients seem to have its "
            "address; set REFINE_PROXIES to the number of proxies"
        )
    return health.Check("proxies", problem, f"{plural(proxies, 'proxy', 'proxies')} trusted")


def _provider(settings: Settings) -> health.Check:
    if (provider := configured_provider(settings)) is None:
        detail = "no OPENROUTER_API_KEY: only agents with a rehearsal/ model get answers"
        return health.Check("provider", None, detail)
    said = f"{provider.base_url} answers, in the dialect {provider.dialect.name}"
    return health.Check("provider", provider.problem(), said)
