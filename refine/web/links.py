"""The URLs of pages."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit
from uuid import UUID

from flask import current_app, g, has_request_context, request, url_for

from refine import settings

# What stands for any id while the URL of a page is built.
_ANY_ID = 7_777_777_777

# The pages of things that long lists name, with their argument; and those that keep the account.
_PAGES_OF_ONE: dict[str, tuple[str, Any]] = {
    "access.page": ("grant_id", UUID(int=_ANY_ID)),
    "agent.page": ("agent_id", _ANY_ID),
    "audit.record": ("record_id", _ANY_ID),
    "people.invite_again": ("user_id", _ANY_ID),
    "people.update": ("user_id", _ANY_ID),
    "sessions.page": ("session_id", UUID(int=_ANY_ID)),
    "tokens.revoke_form": ("token_id", _ANY_ID),
}

_IN_ACCOUNT = ("people.invite_again", "people.update", "tokens.revoke_form")


def asked_for() -> str:
    """Return the URL of this request as it was sent: all of its path, and its arguments."""
    return request.script_root + request.full_path.rstrip("?")


def public_url(endpoint: str, **values: Any) -> str:
    """Return the address of a page for somebody who is sent it, by a page or by a command."""
    public = settings.current().public_url
    is_asked = has_request_context() and not urlsplit(public).path
    pages = current_app.url_map.bind("", script_name=request.script_root if is_asked else None)
    return public + pages.build(endpoint, values)


def here(**changed: object) -> str:
    """Return the URL of this page with other arguments; None removes one."""
    if "here" not in g:
        g.here = request.script_root + request.path, _encoded(request.args.to_dict())
    path, args = g.here
    wanted = "&".join(filter(None, (args | _encoded(changed)).values()))
    return f"{path}?{wanted}" if wanted else path


def _encoded(args: Mapping[str, object]) -> dict[str, str]:
    """Return each argument as a URL has it, by its name; empty for None."""
    return {name: "" if of is None else urlencode({name: of}) for name, of in args.items()}


def url_in_account(endpoint: str, **values: Any) -> str:
    """Return the URL of another page for the same account."""
    account = request.args.get("account") or None
    if values:
        return url_for(endpoint, account=account, **values)
    path = _path(request.script_root, endpoint)
    return f"{path}?{urlencode({'account': account})}" if account else path


def in_account(url: str, slug: str) -> str:
    """Return a URL that names no account for this one; the same for an empty ``slug``."""
    if not slug:
        return url
    return f"{url}{'&' if '?' in url else '?'}account={quote_plus(slug)}"


# bounded, because a proxy on this machine may pass on any script root
@lru_cache(maxsize=256)
def _path(_script_root: str, endpoint: str) -> str:
    """Return the path of a page without arguments; built once, because every page has a dozen."""
    return url_for(endpoint)


def url_of(id_: object, page: str) -> str:
    """Return the URL of one thing's page; long lists have hundreds, and ``url_for`` is slow."""
    around: dict[str, tuple[str, str]] | None = g.get("around_ids")
    if around is None:
        around = g.around_ids = {}
    if page not in around:
        argument, any_id = _PAGES_OF_ONE[page]
        build = url_in_account if page in _IN_ACCOUNT else url_for
        before, _, after = build(page, **{argument: any_id}).partition(str(any_id))
        around[page] = before, after
    before, after = around[page]
    return f"{before}{id_}{after}"
