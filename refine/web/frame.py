"""What stands around every page: the switch between accounts, the alarm, and the theme."""

from typing import NamedTuple, cast

from flask import Blueprint, Flask, flash, g, redirect, request, url_for
from sqlalchemy import select
from werkzeug.wrappers import Response

from refine.extensions import db
from refine.models import Account, Verification
from refine.models.audit.verification import Watch
from refine.web import browsers, scope
from refine.web.links import here, in_account

# If there are more, an account is found by its name instead.
MOST_CHOICES = 50
_ALL = "All accounts"
# What the URL says besides the account that would mean nothing in another one.
_OF_THIS_ACCOUNT = dict.fromkeys(("account", "page", "agent", "session", "memory"))


class Choice(NamedTuple):
    """An account, or all of them, and where to see the page for it."""

    name: str
    url: str
    is_current: bool


class Switch(NamedTuple):
    """Which account the page is about, and the others; no choices if they are too many to list."""

    current: str
    choices: list[Choice]


def register(app: Flask) -> None:
    """Give every page what its frame shows; each is looked up where the template asks for it."""
    app.context_processor(
        lambda: {
            "account_switch": switch,
            "verification_alarm": lambda: verification_watch().alarm,
            "theme": chosen_theme(),
            "THEMES": THEMES,
        }
    )


def switch(listing: str) -> Switch | None:
    """Return the choices for this page, or for the ``listing`` of its area; None for one account.

    A schedule is always that of one account: the user's own, if the URL names none.
    """
    names = _choices()
    if len(names) < 2:  # noqa: PLR2004 - nothing to switch to
        return None
    has_all, is_here = listing != "schedule.page", request.endpoint in (listing, "find.page")
    slug = request.args.get("account", "").strip()
    if not (slug or has_all):
        slug = scope.user().account.slug
    slugs = sorted(names, key=lambda each: names[each].casefold())
    offered = [("", _ALL)] * has_all + [(each, names[each]) for each in slugs]
    url = here(**_OF_THIS_ACCOUNT) if is_here else url_for(listing)
    return Switch(
        current=names.get(slug, slug or ("all" if is_here else "choose")),
        choices=[
            Choice(name, in_account(url, each), is_here and each == slug) for each, name in offered
        ]
        if len(names) <= MOST_CHOICES
        else [],
    )


def _choices() -> dict[str, str]:
    """Return the names of the accounts by their slugs."""
    first = select(Account.slug, Account.name).order_by(Account.slug).limit(MOST_CHOICES + 1)
    return {row.slug: row.name for row in db.session.execute(first)}


def verification_watch() -> Watch:
    """Return what verification has to say; looked up once for a page."""
    if "verification_watch" not in g:
        g.verification_watch = Verification.watch()
    return cast(Watch, g.verification_watch)


THEMES = {"": "as the system", "light": "light", "dark": "dark"}
_COOKIE = "theme"
_A_YEAR_IN_SECONDS = 31_536_000

pages = Blueprint("frame", __name__)


def chosen_theme() -> str:
    """Return the theme that this browser keeps; empty for the system's."""
    kept = browsers.cookie(_COOKIE)
    return kept if kept in THEMES else ""


@pages.post("/profile/theme")
def choose_theme() -> Response:
    """Keep a theme in this browser."""
    wanted = request.form.get("theme", "")
    response = redirect(url_for("signing_in.profile"), 303)
    if wanted in THEMES:
        browsers.keep_cookie(response, _COOKIE, wanted, seconds=_A_YEAR_IN_SECONDS)
        flash(
            f"Pages are now {THEMES[wanted]}." if wanted else "Pages now follow the system's theme."
        )
    return response
