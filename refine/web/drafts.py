"""What somebody typed into a form that could not be accepted: shown again, to be sent again.

Only for forms of our own pages. A form of another site must not become one that the user sends with
a valid token, so it is never shown again.
"""

from dataclasses import asdict, dataclass

from flask import current_app, render_template, request, session
from flask_wtf.csrf import generate_csrf
from itsdangerous import BadData, URLSafeSerializer

from refine.web import browsers
from refine.web.links import asked_for

_MAX_CHARACTERS = 20_000


@dataclass(frozen=True)
class Draft:
    """Where the form was sent, and its fields, without passwords."""

    path: str
    fields: list[tuple[str, str]]

    @classmethod
    def of_request(cls) -> "Draft | None":
        """Return what was typed, if the form is one of ours."""
        if request.method != "POST" or not browsers.is_from_own_page():
            return None
        fields = [each for each in request.form.items(multi=True) if _is_kept(each[0])]
        if sum(len(value) for _, value in fields) > _MAX_CHARACTERS:
            return None
        return cls(asked_for(), fields)

    @classmethod
    def carried(cls) -> "Draft | None":
        """Return the draft that the form sent carries, if this browser's session signed it."""
        try:
            return cls(**_signer().loads(request.form.get("draft", "")))
        except BadData:
            return None

    def signed(self) -> str:
        """Return the draft as text for a form of this browser's session."""
        return str(_signer().dumps(asdict(self)))

    def page(self, heading: str, explanation: str) -> str:
        """Show what was typed, in a form that can be sent."""
        return render_template(
            "errors/stale.html",
            draft=self,
            heading=heading,
            explanation=explanation,
            is_multiline=_is_multiline,
        )


def _is_multiline(text: str) -> bool:
    return "\n" in text


def _is_kept(name: str) -> bool:
    return name not in ("csrf_token", "draft") and "password" not in name


def _signer() -> URLSafeSerializer:
    """Sign for this browser's session, so that nobody can plant a draft in another browser."""
    generate_csrf()  # the session has a token from now on
    assert current_app.secret_key is not None  # noqa: S101 - the settings require one; for mypy
    return URLSafeSerializer(current_app.secret_key, salt=f"draft {session['csrf_token']}")
