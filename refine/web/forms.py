"""Forms: their fields, and saves that never overwrite newer values."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from functools import cache, wraps
from hashlib import sha256
from hmac import compare_digest
from typing import Any, ParamSpec
from uuid import UUID
from zoneinfo import available_timezones

from flask import current_app, flash, make_response, redirect, request
from flask.typing import ResponseReturnValue
from itsdangerous import Signer
from werkzeug.wrappers import Response

from refine.errors import InvalidValue, Refused, TooMany
from refine.extensions import db
from refine.faults import as_sentence, classify
from refine.rules.personal import masked_id
from refine.web import scope

_MAX_NUMBER_DIGITS = 12


def whole_number(text: str, field: str) -> int:
    digits = text.replace(",", "").strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _MAX_NUMBER_DIGITS:
        raise InvalidValue(f"{field} must be a whole number")
    return int(digits)


def is_ticked(text: str) -> bool:
    return text == "1"


Readers = Mapping[str, Callable[[str], Any]]


def sent_fields(readers: Readers) -> dict[str, Any]:
    """Return those of the fields that the form has, as they are read."""
    form = request.form
    return {name: read(form[name]) for name, read in readers.items() if name in form}


def stored_fields(row: object, names: Iterable[str]) -> dict[str, object]:
    return {name: getattr(row, name) for name in names}


def day_of(text: str) -> date | None:
    try:
        given = date.fromisoformat(text)
    except ValueError:
        return None
    return given if 1970 <= given.year < 9999 else None


def uuid_of(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def midnight(day: date, days_later: int = 0) -> datetime:
    on = day + timedelta(days=days_later)
    return datetime(on.year, on.month, on.day, tzinfo=scope.zone())


@cache
def time_zones() -> list[str]:
    technical = ("Etc", "posix", "right")
    zones = available_timezones()
    return sorted(zone for zone in zones if "/" in zone and not zone.startswith(technical))


def own_path(path: str) -> str:
    """Return the path to continue with, named by a form or URL; empty unless on this site."""
    is_plain = path.isprintable() and "\\" not in path
    root = f"{request.script_root}/"
    return path if is_plain and path.startswith(root) and not path.startswith("//") else ""


def next_path() -> str:
    """Return where the form or URL wants to go on afterwards, if that is on this site, or ""."""
    return own_path(request.values.get("next", ""))


FIELD = "drawn_from"


class Outdated(Refused):
    """The values were changed since the form was drawn; the message says what is stored now."""

    def __init__(self, now: Mapping[str, object]) -> None:
        stored = "; ".join(f"{name} {_in_words(value)}" for name, value in now.items())
        super().__init__(
            "this was changed in the meantime, so nothing was saved. "
            f"{f'Stored now: {stored}. ' if stored else ''}Send it again to overwrite it"
        )


def version(stored: Mapping[str, object]) -> str:
    assert current_app.secret_key is not None  # noqa: S101 - the settings require one; for mypy
    signer = Signer(current_app.secret_key, salt="drawn from", digest_method=sha256)
    return signer.get_signature(json.dumps(stored, default=str)).decode()


def require_current(stored: Mapping[str, object], sent: Mapping[str, object]) -> None:
    """Raise Outdated if the form was drawn from other values than these of the locked row."""
    drawn_from = request.form.get(FIELD)
    if drawn_from is None or compare_digest(drawn_from.encode(), version(stored).encode()):
        return
    raise Outdated({name: stored[name] for name in sent if str(stored[name]) != str(sent[name])})


def version_to_send(stored: Mapping[str, object], error: Exception | None) -> str:
    """Return the version of a form that shows what was typed, or else these stored values."""
    is_told = isinstance(error, Outdated)
    return version(stored) if is_told else request.form.get(FIELD) or version(stored)


def _in_words(value: object) -> str:
    match value:
        case bool():
            return "ticked" if value else "not ticked"
        case None:
            return "empty"
    return masked_id(str(value))


P = ParamSpec("P")


def shown_again(
    page: Callable[..., ResponseReturnValue],
) -> Callable[[Callable[P, ResponseReturnValue]], Callable[P, ResponseReturnValue]]:
    """Answer with ``page`` and the error if the view refuses its form."""

    def decorated(view: Callable[P, ResponseReturnValue]) -> Callable[P, ResponseReturnValue]:
        @wraps(view)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> ResponseReturnValue:
            try:
                return view(*args, **kwargs)
            except (InvalidValue, Refused, TooMany) as error:
                db.session.rollback()
                fault = classify(error)
                answer = make_response(page(*args, error=error, **kwargs), fault.status)
                answer.headers.update(fault.headers)
                return answer

        return guarded

    return decorated


def done(said: str, url: str) -> Response:
    """Commit, and lead on to a page that says what was done."""
    db.session.commit()
    flash(said)
    return redirect(url, 303)


def attempt(act: Callable[[], object], said: str, url: str) -> Response:
    """Do the work, and lead on to a page that says so, or why it was refused."""
    try:
        act()
        return done(said, url)
    except Refused as refusal:
        db.session.rollback()
        flash(as_sentence(str(refusal)), "error")
        return redirect(url, 303)
