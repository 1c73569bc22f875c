"""What templates know: filters, names, and who is signed in."""

from collections.abc import Callable
from typing import Any

from flask import Flask
from flask_login import current_user

from refine.models.people.invitation import VALID_FOR
from refine.models.people.sign_in import CONFIRMED_FOR
from refine.models.people.user import MIN_PASSWORD_CHARACTERS
from refine.models.runs.access import (
    MAX_PURPOSE_CHARACTERS,
    MIN_PURPOSE_CHARACTERS,
    REASONS,
)
from refine.rules.personal import masked_id
from refine.rules.quantities import cost_in_words, in_days, plural, rough_span
from refine.rules.schedules import describe_schedule
from refine.web import presenting, scope
from refine.web.charts import DAYS_SHOWN
from refine.web.formatting import (
    ago,
    as_of,
    day,
    day_tick,
    first_upper,
    is_about,
    minute,
    month,
    number,
    seconds,
    spaced,
    when,
    when_in,
    with_code,
)
from refine.web.links import here, in_account, url_in_account, url_of
from refine.web.markup import csrf_token, day_bars, plot_bars, plot_marks, post_button, status_badge
from refine.web.presenting import badge, meter, part, share, sparkline, trend, usage
from refine.web.tables import as_cards
from refine.web.words import (
    ACCESS_ENDS,
    ACCESS_STATES,
    ACTIONS,
    MARKS,
    MINUTES_OFFERED,
    RECORD_KINDS,
    ROLES,
    STATUSES,
    TASK_KINDS,
    TRIGGERS,
    VERIFICATION_ALARMS,
    action,
    labelled,
)


def register(app: Flask) -> None:
    for filter_ in _FILTERS:
        app.add_template_filter(filter_)
    app.jinja_env.globals.update(_NAMES)
    app.context_processor(_of_user)


def _of_user() -> dict[str, Any]:
    names: dict[str, Any] = {
        "is_signed_in": current_user.is_authenticated,
        "csrf_token": csrf_token,
    }
    if current_user.is_authenticated:
        names |= {"me": scope.user(), "zone_name": scope.zone().key}
    return names


_FILTERS: list[Callable[..., str | bool]] = [
    as_cards,
    badge,
    day_bars,
    in_account,
    meter,
    part,
    plot_bars,
    post_button,
    plot_marks,
    status_badge,
    url_of,
    usage,
    share,
    sparkline,
    trend,
    when,
    minute,
    when_in,
    day,
    month,
    day_tick,
    ago,
    seconds,
    number,
    cost_in_words,
    plural,
    in_days,
    rough_span,
    action,
    describe_schedule,
    first_upper,
    is_about,
    spaced,
    labelled,
    with_code,
    masked_id,
]

# Each template's, and not each request's: a context is copied for every part of a page.
_NAMES: dict[str, Any] = {
    "STATUSES": STATUSES,
    "TASK_KINDS": TASK_KINDS,
    "TRIGGERS": TRIGGERS,
    "MARKS": MARKS,
    "ROLES": ROLES,
    "ACCESS_STATES": ACCESS_STATES,
    "ACCESS_REASONS": REASONS,
    "ACCESS_ENDS": ACCESS_ENDS,
    "MINUTES_OFFERED": [(minutes, minutes) for minutes in MINUTES_OFFERED],
    "MIN_PURPOSE_CHARACTERS": MIN_PURPOSE_CHARACTERS,
    "MAX_PURPOSE_CHARACTERS": MAX_PURPOSE_CHARACTERS,
    "ACTIONS": ACTIONS,
    "RECORD_KINDS": RECORD_KINDS,
    "VERIFICATION_ALARMS": VERIFICATION_ALARMS,
    "MIN_PASSWORD_CHARACTERS": MIN_PASSWORD_CHARACTERS,
    "CONFIRMED_FOR": CONFIRMED_FOR,
    "INVITATION_VALID_FOR": VALID_FOR,
    "DAYS_SHOWN": DAYS_SHOWN,
    "view": presenting,
    "here": here,
    "as_of": as_of,
    "url_in_account": url_in_account,
}
