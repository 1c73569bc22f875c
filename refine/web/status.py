"""Liveness and readiness, for load balancers."""

from flask import Blueprint, Response, current_app, jsonify

from refine.health import checks, clock_check
from refine.web.scope import public

pages = Blueprint("status", __name__)


@pages.get("/healthz")
@public
def healthz() -> Response:
    return jsonify(status="ok")


@pages.get("/readyz")
@public
def readyz() -> tuple[Response, int]:
    """Answer 200 if all that Refine needs is available, or 503; a stopped clock is ``degraded``."""
    found = checks(current_app)
    ready = all(check.is_ok for check in found)
    found += [clock_check()] if ready else []
    status = "unavailable" if not ready else "ok" if found[-1].is_ok else "degraded"
    states = {check.name: check.problem or "ok" for check in found}
    return jsonify(status=status, **states), 200 if ready else 503
