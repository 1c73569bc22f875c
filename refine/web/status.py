"""Where things stand: for load balancers, and for whoever opens the front page."""

from flask import Blueprint, Response, current_app, jsonify, render_template

from refine import settings
from refine.health import checks
from refine.models import RefinementSession

pages = Blueprint("status", __name__)


@pages.get("/healthz")
def healthz() -> Response:
    """200 as long as the process answers."""
    return jsonify(status="ok")


@pages.get("/readyz")
def readyz() -> tuple[Response, int]:
    """200 if database, migrations and Redis are there, else 503; says which is not."""
    found = checks(current_app)
    ready = all(check.is_ok for check in found)
    states = {check.name: "ok" if check.is_ok else check.problem for check in found}
    return jsonify(status="ok" if ready else "unavailable", **states), 200 if ready else 503


@pages.get("/")
def front() -> tuple[str, int]:
    """A plain page: what runs, what does not, and the outcomes of the last 30 days in figures."""
    found = checks(current_app)
    ready = all(check.is_ok for check in found)
    by_name = {check.name: check for check in found}
    outcomes = RefinementSession.outcomes() if by_name["migrations"].is_ok else {}
    page = render_template(
        "status/page.html",
        checks=found,
        ready=ready,
        outcomes=outcomes,
        uses_rehearsal=settings.current().openrouter_api_key is None,
    )
    return page, 200 if ready else 503
