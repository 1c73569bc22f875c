"""The switch between accounts in the header, for site admins."""

from functools import cache, partial
from typing import NamedTuple
from urllib.parse import urlencode

from flask import Flask, request, url_for
from sqlalchemy import select

from refine.extensions import Reading
from refine.models import Account
from refine.web import scope
from refine.web.words import here

# If there are more, an account is found by its name instead.
MOST_CHOICES = 50
_ALL = "All accounts"
# What the URL says besides the account that would mean nothing in another one.
_OF_THIS_ACCOUNT = dict.fromkeys(("page", "agent", "session", "memory"))


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
    """Give every page the switch; it is looked up where the template asks for it."""
    app.context_processor(lambda: {"account_switch": switch})


def switch(listing: str) -> Switch | None:
    """Return the choices for this page, or for the ``listing`` of its area; None for one account.

    A schedule is always that of one account: the user's own, if the URL names none.
    """
    names = dict(_first_accounts().rows())
    if len(names) < 2:  # noqa: PLR2004 - nothing to switch to
        return None
    has_all, is_here = listing != "schedule.page", request.endpoint in (listing, "find.page")
    slug = request.args.get("account", "").strip()
    if not (slug or has_all):
        slug = scope.user().account.slug
    slugs = sorted(names, key=lambda each: names[each].casefold())
    offered = [("", _ALL)] * has_all + [(each, names[each]) for each in slugs]
    url = _of_this_page if is_here else partial(_of_page, url_for(listing))
    return Switch(
        current=names.get(slug, slug or ("all" if is_here else "choose")),
        choices=[Choice(name, url(each), is_here and each == slug) for each, name in offered]
        if len(names) <= MOST_CHOICES
        else [],
    )


def _of_this_page(slug: str) -> str:
    return here(**_OF_THIS_ACCOUNT, account=slug or None)


def _of_page(path: str, slug: str) -> str:
    return f"{path}?{urlencode({'account': slug})}" if slug else path


@cache
def _first_accounts() -> Reading:
    first = select(Account.slug, Account.name).order_by(Account.slug).limit(MOST_CHOICES + 1)
    return Reading(first)
