"""Finds problems of an installation and says how to fix them."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from flask import Flask
from rich.console import Console
from rich.markup import escape

from refine import health
from refine.cli.context import application, settings_without_installation
from refine.cli.findings import Finding, about_answers, about_provider
from refine.cli.output import console
from refine.cli.trial import Trial
from refine.llm.clients import client_for, configured_provider, is_rehearsed
from refine.llm.provider import Provider
from refine.rules.quantities import plural
from refine.settings import Settings

_COLOURS = {"ok": "green", "warn": "yellow", "fix": "red", "ask": "cyan"}

_CAN_WORK = "Sessions can work with it; `refine evaluate {}` shows how well."
_CANNOT_WORK = "Sessions cannot work like this. Fix what is marked, then ask again."
_REQUESTS = "three short requests or more, a dozen if the server refuses some"


@click.command()
@click.option("--ask", "model_id", metavar="MODEL", help="Ask this model a few questions instead.")
def doctor(model_id: str | None) -> int:
    """Check servers, migrations, keys, schedule, queue, clock, the provider and security settings.

    Prints one line for each: its state, or how to fix it. Exit code 1 if something must be fixed.
    Warnings do not count: a short SECRET_KEY, plain http beyond this machine (PUBLIC_URL,
    OPENROUTER_BASE_URL), a database role that could bypass the guards (`refine db roles`).

    With --ask, checks whether sessions can work with MODEL, and what to set if not: asks it for
    consent and lets it call a tool, over the provider and settings of the environment
    (OPENROUTER_API_KEY, OPENROUTER_BASE_URL, REFINE_DIALECT, ...). It needs no database, uses
    made-up memories, and costs a few short requests; a dozen or more if the server
    refuses some, because other dialects are tried then. Exit code 1 if sessions cannot work.

    \b
    Examples:
      refine doctor
      refine doctor --ask rehearsal/any                    free, without a provider
      refine doctor --ask anthropic/claude-sonnet-4.5
      OPENROUTER_BASE_URL=http://127.0.0.1:8080/v1 OPENROUTER_API_KEY=none \\
        refine doctor --ask my-local-model
    """
    if model_id is not None:
        return _ask(model_id)
    with application("doctor", check_keys=False) as app:
        is_well = True
        for check in _checks(app):
            _print(check)
            is_well &= check.is_ok
        return 0 if is_well else 1


def _ask(model_id: str) -> int:
    """Try the model, with the settings of the environment and without a database."""
    is_well = True
    with TemporaryDirectory(prefix="refine-") as folder:
        settings = settings_without_installation(Path(folder))
        with client_for(model_id, settings, is_demo=True) as provider:
            for found in _findings(provider, model_id, settings):
                _print_line(found.mark, found.name, found.text)
                is_well &= found.mark != "fix"
    console.print(_CAN_WORK.format(model_id) if is_well else _CANNOT_WORK)
    return 0 if is_well else 1


def _findings(provider: Provider, model_id: str, settings: Settings) -> Iterator[Finding]:
    is_free = is_rehearsed(model_id, settings, is_demo=True)
    if is_free:
        yield Finding("provider", "ok", "the rehearsal model answers, without a provider")
    elif (problem := provider.problem()) is not None:
        yield Finding("provider", "fix", problem)
        return
    else:
        yield Finding("provider", "ok", _said_of(provider))
        yield from about_provider(provider, model_id, settings)
        if (warning := health.https_check(settings).warning) is not None:
            yield Finding("https", "warn", warning)
    price = "free of charge" if is_free else "which the provider charges"
    _print_line("ask", "model", f"{model_id}, about made-up memories: {_REQUESTS}, {price}")
    room = provider.catalogue.room(model_id, settings.context_tokens)
    with Console(stderr=True).status("waiting for the model"):
        trial = Trial(provider, model_id, room, settings.max_seconds).run()
    yield from about_answers(trial, settings)


def _checks(app: Flask) -> Iterator[health.Check]:
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
    yield health.signing_check(settings)
    yield health.https_check(settings)
    yield _provider(settings)


def _print(check: health.Check) -> None:
    mark = "fix" if check.problem else "warn" if check.warning else "ok"
    _print_line(mark, check.name, check.problem or check.warning or check.detail)


def _print_line(mark: str, name: str, text: str) -> None:
    shown = f"[{_COLOURS[mark]}]{mark}[/]{' ' * (4 - len(mark))}"
    console.print(f"{shown} {name:<11} {escape(text)}", markup=True)


def _proxies(proxies: int) -> health.Check:
    """Check that the clients' addresses are taken from the proxy that terminates HTTPS."""
    problem = None
    if not proxies:
        problem = (
            "PUBLIC_URL is https but REFINE_PROXIES is 0, so every client appears to have the "
            "proxy's address; set REFINE_PROXIES to the number of proxies"
        )
    return health.Check("proxies", problem, f"{plural(proxies, 'proxy', 'proxies')} trusted")


def _provider(settings: Settings) -> health.Check:
    if (provider := configured_provider(settings)) is None:
        detail = "no OPENROUTER_API_KEY: only agents with a rehearsal/ model get answers"
        return health.Check("provider", None, detail)
    return health.Check("provider", provider.problem(), _said_of(provider))


def _said_of(provider: Provider) -> str:
    return f"{provider.base_url} answers, in the dialect {provider.dialect.name}"
