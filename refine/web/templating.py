"""The names and filters of the templates, and the signed-in user."""

import re
from collections.abc import Iterator
from inspect import getmembers, isfunction
from types import ModuleType
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from flask import Flask, g
from flask_login import current_user
from flask_wtf.csrf import generate_csrf

from refine import settings
from refine.extensions import db
from refine.models import Agent, Verification, agent_erasure
from refine.models.audit.verification import Watch
from refine.models.people.invitation import VALID_FOR
from refine.models.people.sign_in import CONFIRMED_FOR, FACTOR_FOR, IDLE_FOR, LASTS_FOR
from refine.models.people.user import (
    LOCK_REASONS,
    MAX_VIEW_NAME_CHARACTERS,
    MIN_PASSWORD_CHARACTERS,
)
from refine.models.runs.access.asking_rules import REASONS
from refine.models.runs.session.scheduling import LOOKS_BACK
from refine.rules import causes, quantities
from refine.rules.personal import masked_id
from refine.rules.schedules import describe_schedule
from refine.web import attention, first_steps, links, presenting, scope, words
from refine.web.charts import DAYS_SHOWN
from refine.web.links import here, url_in_account
from refine.web.lists import as_cards, matching, said_once


def register(app: Flask) -> None:
    for module in (quantities, causes, links, words):
        app.jinja_env.filters.update(_functions(module))
    for other in (as_cards, said_once, matching, describe_schedule, masked_id):
        app.add_template_filter(other)
    app.jinja_env.globals.update({name: of for name, of in getmembers(words) if name.isupper()})
    app.jinja_env.globals.update(_NAMES)
    app.context_processor(_of_user)


def _functions(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name, function in getmembers(module, isfunction):
        if function.__module__ == module.__name__ and not name.startswith("_"):
            yield name, function


def _of_user() -> dict[str, Any]:
    names: dict[str, Any] = {
        "is_signed_in": current_user.is_authenticated,
        "csrf_token": generate_csrf,
        "identity_provider": urlsplit(settings.current().oidc_issuer or "").hostname,
        "verification_alarm": lambda: verification_watch().alarm,
    }
    if current_user.is_authenticated:
        names |= {"me": scope.user(), "zone_name": scope.zone().key}
        names["verification_finding"] = verification_finding
    return names


def verification_watch() -> Watch:
    if "verification_watch" not in g:
        g.verification_watch = Verification.watch()
    return cast(Watch, g.verification_watch)


# The chain that a problem is of, and which of its rows.
_FINDING = re.compile(r"agent (\d+): (?:(memory|Agent) (\d+) )?(.+)")


class Finding(NamedTuple):
    """What a verification found first of an agent; ``memory_id``: of this memory of it."""

    agent: Agent
    memory_id: int | None
    joint: str
    problem: str


def verification_finding() -> Finding | None:
    """Return what the current alarm is about, if the user may see whose it is."""
    alarm = verification_watch().alarm
    found = _FINDING.fullmatch(alarm.first_problem or "") if alarm is not None else None
    agent = db.session.get(Agent, int(found[1])) if found is not None else None
    if found is None or agent is None or not scope.user().may_see(agent.account_id):
        return None
    memory_id = int(found[3]) if found[2] == "memory" else None
    return Finding(agent, memory_id, " " if found[2] else ": ", found[4])


_NAMES: dict[str, Any] = {
    "sends_mail": lambda: settings.current().mail_url is not None,
    "ACCESS_REASONS": REASONS,
    "MIN_PASSWORD_CHARACTERS": MIN_PASSWORD_CHARACTERS,
    "CONFIRMED_FOR": CONFIRMED_FOR,
    "IDLE_FOR": IDLE_FOR,
    "LASTS_FOR": LASTS_FOR,
    "LOCK_REASONS": LOCK_REASONS,
    "FACTOR_FOR": FACTOR_FOR,
    "INVITATION_VALID_FOR": VALID_FOR,
    "DAYS_SHOWN": DAYS_SHOWN,
    "LOOKS_BACK": LOOKS_BACK,
    "view": presenting,
    "erasure_request": agent_erasure.last_request,
    "here": here,
    "is_refresh": scope.is_refresh,
    "attention": attention,
    "next_step_with": first_steps.next_with,
    "url_in_account": url_in_account,
    "MAX_VIEW_NAME_CHARACTERS": MAX_VIEW_NAME_CHARACTERS,
}
