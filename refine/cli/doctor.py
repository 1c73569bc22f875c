"""Finds problems of an installation and says how to fix them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from flask import Flask
from rich.console import Console
from rich.markup import escape

from refine import health
from refine.cli.context import application, settings_without_installation
from refine.cli.output import console
from refine.cli.trial import Trial, about_provider
from refine.health import Check
from refine.llm.provider import Provider, client_for, configured_provider, is_rehearsed
from refine.rules.quantities import plural
from refine.settings import Settings

_COLOURS = {"ok": "green", "warn": "yellow", "fix": "red"}

_CAN_WORK = "Sessions can work with it; `refine evaluate {}` shows how well."
_CANNOT_WORK = "Sessions cannot work like this. Fix what is marked, then ask again."


@click.command()
@click.option("--ask", "model_id", metavar="MODEL", help="Ask this model a few questions instead.")
@click.option("--mail", "address", metavar="ADDRESS", help="Also send a test to this address.")
def doctor(model_id: str | None, address: str | None) -> int:
    """Check servers, migrations, keys, schedule, queue, clock, the provider and security settings.

    Prints one line for each: its state, or how to fix it. Exit code 1 if something must be fixed.
    Warnings do not count: a short SECRET_KEY, plain http beyond this machine (PUBLIC_URL,
    OPENROUTER_BASE_URL), a database role that could bypass the guards (`refine db roles`).

    With --ask, checks whether sessions can work with MODEL, and what to set if not: asks it for
    consent and lets it call a tool, over the provider and settings of the environment
    (OPENROUTER_API_KEY, OPENROUTER_BASE_URL, REFINE_DIALECT, ...). It needs no database, uses
    made-up memories, and costs a few short requests. Exit code 1 if sessions cannot work.

    \b
    Examples:
      refine doctor
      refine doctor --ask rehearsal/any                    free, without a provider
      refine doctor --ask anthropic/claude-sonnet-4.5
      OPENROUTER_BASE_URL=http://127.0.0.1:8080/v1 OPENROUTER_API_KEY=none \\
        refine doctor --ask my-local-model
    """
    if model_id is None:
        with application("doctor", check_keys=False) as app:
            return 0 if _print(_checks(app, address)) else 1
    with TemporaryDirectory(prefix="refine-") as folder:
        settings = settings_without_installation(Path(folder))
        with client_for(model_id, settings, is_demo=True) as provider:
            is_well = _print(_trial(provider, model_id, settings))
    console.print(_CAN_WORK.format(model_id) if is_well else _CANNOT_WORK)
    return 0 if is_well else 1


def _print(checks: Iterable[Check]) -> bool:
    is_well = True
    for check in checks:
        mark = "fix" if check.problem else "warn" if check.warning else "ok"
        text = escape(check.problem or check.warning or check.detail)
        shown = f"[{_COLOURS[mark]}]{mark}[/]{' ' * (4 - len(mark))}"
        console.print(f"{shown} {check.name:<11} {text}", markup=True)
        is_well &= check.is_ok
    return is_well


def _checks(app: Flask, address: str | None) -> Iterator[Check]:
    settings: Settings = app.extensions["refine.settings"]
    found = health.checks()
    yield from found
    if all(check.is_ok for check in found):
        yield health.older_keys_check()
        yield health.schedule_check()
        yield health.queue_check()
        yield health.clock_check()
        yield health.time_check()
        yield health.verification_check()
        yield health.role_check(settings)
    if settings.is_https:
        yield _proxies(settings.proxies)
    yield health.mail_check(settings, address)
    yield health.signing_check(settings)
    yield health.https_check(settings)
    if (provider := configured_provider(settings)) is None:
        detail = "no OPENROUTER_API_KEY: only agents with a rehearsal/ model get answers"
        yield Check("provider", None, detail)
    else:
        yield _about(provider)


def _proxies(proxies: int) -> Check:
    problem = None
    if not proxies:
        problem = (
            "PUBLIC_URL is https but REFINE_PROXIES is 0, so every client appears to have the "
            "proxy's address; set REFINE_PROXIES to the number of proxies"
        )
    return Check("proxies", problem, f"{plural(proxies, 'proxy', 'proxies')} trusted")


def _about(provider: Provider) -> Check:
    said = f"{provider.base_url} answers, in the dialect {provider.dialect.name}"
    return Check("provider", provider.problem(), said)


def _trial(provider: Provider, model_id: str, settings: Settings) -> Iterator[Check]:
    if is_rehearsed(model_id, settings, is_demo=True):
        yield Check("provider", None, "the rehearsal model answers, without a provider")
    else:
        reachable = _about(provider)
        yield reachable
        if not reachable.is_ok:
            return
        yield from about_provider(provider, model_id, settings)
        yield health.https_check(settings)
    with Console(stderr=True).status(f"asking {model_id} about made-up memories"):
        yield from Trial(provider, model_id, settings).checks()
