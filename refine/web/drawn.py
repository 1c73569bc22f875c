"""From which values a form was drawn, so that a save does not overwrite what was saved since.

A form carries a version: a keyed digest of the stored values that it shows. The view locks the row
and compares before it saves. What is sent without a version was drawn from nothing, and is saved.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest

from flask import current_app, request
from itsdangerous import Signer

from refine.errors import Refused

FIELD = "drawn_from"


class Outdated(Refused):
    """The values were changed since the form was drawn; ``now`` are those that it would change."""

    def __init__(self, now: Mapping[str, object]) -> None:
        self.now = {name: _in_words(value) for name, value in now.items()}
        super().__init__(
            "this was changed in the meantime, so nothing was saved: check what is stored now, "
            "then send it again"
        )


def version(stored: Mapping[str, object]) -> str:
    """Return the digest of these values, which cannot be computed from a guess."""
    assert current_app.secret_key is not None  # noqa: S101 - the settings require one; for mypy
    signer = Signer(current_app.secret_key, salt="drawn from", digest_method=sha256)
    return signer.get_signature(json.dumps(stored, default=str)).decode()


def require_current(stored: Mapping[str, object], sent: Mapping[str, object]) -> None:
    """Raise Outdated if the form was drawn from other values than these, of a locked row."""
    drawn_from = request.form.get(FIELD)
    if drawn_from is None or compare_digest(drawn_from.encode(), version(stored).encode()):
        return
    raise Outdated({name: stored[name] for name in sent if str(stored[name]) != str(sent[name])})


def version_to_send(stored: Mapping[str, object], error: Exception | None) -> str:
    """Return the version of a form that shows what was typed, or else these stored values.

    Only a form that says what is stored now becomes one that was drawn from it.
    """
    is_told = isinstance(error, Outdated)
    return version(stored) if is_told else request.form.get(FIELD) or version(stored)


def stored_now(error: Exception | None) -> Mapping[str, str]:
    """Return the stored values that a form has to show beside what was typed."""
    return error.now if isinstance(error, Outdated) else {}


def _in_words(value: object) -> str:
    match value:
        case bool():
            return "ticked" if value else "not ticked"
        case None:
            return "empty"
    return str(value)
