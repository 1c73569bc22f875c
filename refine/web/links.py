"""The URLs of pages and of static files."""

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from flask import Flask, current_app, has_request_context, request, url_for

from refine import settings


def asked_for() -> str:
    return request.script_root + request.full_path.rstrip("?")


def public_url(endpoint: str, **values: Any) -> str:
    public = settings.current().public_url
    is_asked = has_request_context() and not urlsplit(public).path
    pages = current_app.url_map.bind("", script_name=request.script_root if is_asked else None)
    return public + pages.build(endpoint, values)


def here(**changed: object) -> str:
    wanted = {k: v for k, v in {**request.args.to_dict(), **changed}.items() if v is not None}
    path = request.script_root + request.path
    return f"{path}?{urlencode(wanted)}" if wanted else path


def url_in_account(endpoint: str, **values: Any) -> str:
    return url_for(endpoint, account=request.args.get("account") or None, **values)


def reading_url(grant: Any) -> str:
    """Return where to read what a grant opens."""
    agent_id, ids = grant.agent_id, grant.scope.memory_ids or ()
    if grant.scope.session_id is not None:
        return url_for("sessions.page", session_id=grant.scope.session_id)
    if len(ids) == 1:
        return url_for("ledger.memory_page", agent_id=agent_id, memory_id=min(ids))
    return url_for("ledger.page", agent_id=agent_id)


_A_YEAR_IN_SECONDS = 31_536_000


def register(app: Flask) -> None:
    assert app.static_folder is not None  # noqa: S101 - the application names it; for mypy
    folder = Path(app.static_folder)

    @cache
    def digest(name: str) -> str:
        return sha256((folder / name).read_bytes()).hexdigest()[:12]

    @app.template_global()
    def asset(name: str) -> str:
        return url_for("static", filename=name, v=digest(name))

    def seconds_kept(name: str | None) -> int | None:
        is_current = (folder / str(name)).is_file() and request.args.get("v") == digest(str(name))
        return _A_YEAR_IN_SECONDS if is_current else None

    app.get_send_file_max_age = seconds_kept  # type: ignore[assignment, method-assign]
