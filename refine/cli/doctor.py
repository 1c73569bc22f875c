"""Finds problems of an installation and says how to fix them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from flask import Flask
from rich.console import Console
from rich.markup import escape
from sqlalchemy import func, select

from refine import health
from refine.cli.context import application, settings_without_installation
from refine.cli.output import console, print_json
from refine.cli.parameters import json_option
from refine.cli.trial import Trial, about_provider
from refine.diagnoses import Finding
from refine.errors import EmbeddedError, SettingsError
from refine.extensions import db
from refine.health import Check, database, machine
from refine.llm.provider import Provider, client_for, configured_provider, is_rehearsed
from refine.models import Agent
from refine.rules.model_names import is_rehearsal_model
from refine.rules.personal import masked_id
from refine.rules.quantities import plural
from refine.settings import Settings, data_dir_in

_COLOURS = {"ok": "green", "warn": "yellow", "fix": "red"}

_CAN_WORK = "Sessions can work with it; `refine evaluate {}` shows how well."
_CANNOT_WORK = "Sessions cannot work like this. Fix what is marked, then ask again."


@click.command()
@click.option("--ask", "model_id", metavar="MODEL", help="Ask this model a few questions instead.")
@click.option("--mail", "address", metavar="ADDRESS", help="Also send a test to this address.")
@json_option
def doctor(model_id: str | None, address: str | None, as_json: bool) -> int:
    """Check settings, servers, migrations, keys, what runs, the provider and this machine.

    Prints one line for each: its state, or what is wrong and how to fix it. Exit code 1 if
    something must be fixed; warnings do not count.

    With --ask, checks whether sessions can work with MODEL, and what to set if not: asks it for
    consent and lets it call a tool, over the provider and settings of the environment
    (OPENROUTER_API_KEY, OPENROUTER_BASE_URL, REFINE_DIALECT, ...). It needs no database, uses
    made-up memories, and costs a few short requests. Exit code 1 if sessions cannot work.

    \b
    Examples:
      refine doctor
      refine doctor --json                                 for programs
      refine doctor --ask rehearsal/any                    free, without a provider
      refine doctor --ask anthropic/claude-sonnet-4.5
      OPENROUTER_BASE_URL=http://127.0.0.1:8080/v1 OPENROUTER_API_KEY=none \\
        refine doctor --ask my-local-model
    """
    if model_id is not None and address is not None:
        raise click.UsageError("--ask checks a model alone: send the test mail without it")
    if model_id is None:
        return 0 if _print(_checks_of_installation(address), as_json=as_json) else 1
    with TemporaryDirectory(prefix="refine-") as folder:
        settings = settings_without_installation(Path(folder))
        with client_for(model_id, settings, is_demo=True) as provider:
            is_well = _print(_trial(provider, model_id, settings), as_json=as_json)
    if not as_json:
        console.print(_CAN_WORK.format(model_id) if is_well else _CANNOT_WORK)
    return 0 if is_well else 1


def _print(checks: Iterable[Check], *, as_json: bool) -> bool:
    done = []
    for check in checks:
        done.append(check)
        if not as_json:
            mark = f"[{_COLOURS[check.state]}]{check.state:<4}[/]"
            console.print(f"{mark} {check.name:<11} {escape(check.text)}", markup=True)
    if as_json:
        print_json([check.as_json() for check in done])
    return all(check.is_ok for check in done)


def _checks_of_installation(address: str | None) -> Iterator[Check]:
    """Where settings or servers stop the application, this is all that can be said."""
    unknown = [Check("settings", "", found) for found in machine.unknown_settings()]
    try:
        with application("doctor", check_keys=False) as app:
            yield from unknown or [Check("settings", "every REFINE_… is known")]
            yield from _checks(app, address)
    except (SettingsError, EmbeddedError) as error:
        yield from unknown
        yield Check("settings", "", Finding.of("settings_bad", said=error))
    except OSError as error:  # of the folder, in which the bundled servers have their data
        about = {"folder": data_dir_in(), "reason": error.strerror}
        yield Check("data folder", "", Finding.of("data_folder", **about))


def _checks(app: Flask, address: str | None) -> Iterator[Check]:
    settings: Settings = app.extensions["refine.settings"]
    found = health.checks()
    yield from found
    by_name = {check.name: check.is_ok for check in found}
    if by_name["database"] and by_name["migrations"]:
        at_fault = database.findings(is_pooled=settings.pooled)
        yield from _each("server", at_fault, "version, rights, guards and indexes are in order")
    if by_name["redis"]:
        yield from _each("eviction", machine.redis_eviction(), "Redis drops nothing")
    if all(by_name.values()):
        yield health.older_keys_check()
        yield health.schedule_check()
        yield health.queue_check()
        yield health.worker_check()
        yield health.clock_check()
        yield health.time_check()
        yield from _each("time zones", machine.time_zones(), "all that accounts use are known")
        yield health.verification_check()
        yield health.role_check(settings)
    if settings.is_https:
        yield health.proxies_check(settings)
    yield health.mail_check(settings, address)
    yield health.signing_check(settings)
    yield health.https_check(settings)
    if settings.embedded_postgres or settings.embedded_valkey:
        yield from _each("data folder", machine.data_folder(settings), "it can be written")
    if (provider := configured_provider(settings)) is None:
        whose = "" if settings.rehearsal else " of the demo account"
        detail = f"no OPENROUTER_API_KEY: only rehearsal/ models{whose} answer"
        yield Check("provider", detail)
        return
    yield (answering := _about(provider))
    if answering.is_ok and all(by_name.values()) and provider.catalogue:
        yield from _each("models", _unlisted(provider), "the provider lists those of active agents")


def _unlisted(provider: Provider) -> Iterator[Finding]:
    """Yield a finding for each model of active agents that the provider's list does not hold."""
    used = select(Agent.model_id, func.count()).where(Agent.active).group_by(Agent.model_id)
    for model_id, count in db.session.execute(used.order_by(Agent.model_id)):
        if not is_rehearsal_model(model_id) and provider.catalogue.find(model_id) is None:
            about = {"model": masked_id(model_id), "agents": plural(count, "active agent")}
            yield Finding.of("model_unlisted", **about)


def _each(name: str, findings: Iterable[Finding], well: str) -> Iterable[Check]:
    return [Check(name, "", found) for found in findings] or [Check(name, well)]


def _about(provider: Provider) -> Check:
    said = f"{provider.base_url} answers, in the dialect {provider.dialect.name}"
    return Check("provider", said, Finding.saying("provider", provider.problem()))


def _trial(provider: Provider, model_id: str, settings: Settings) -> Iterator[Check]:
    if is_rehearsed(model_id, settings, is_demo=True):
        yield Check("provider", "the rehearsal model answers, without a provider")
    else:
        reachable = _about(provider)
        yield reachable
        if not reachable.is_ok:
            return
        yield from about_provider(provider, model_id, settings)
        yield health.https_check(settings)
    with Console(stderr=True).status(f"asking {model_id} about made-up memories"):
        yield from Trial(provider, model_id, settings).checks()
