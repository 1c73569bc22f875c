"""Liveness and readiness, for load balancers."""

from flask import Blueprint, Response, jsonify

from refine.health import Check, checks, clock_check, verification_check
from refine.web.scope import public

pages = Blueprint("status", __name__)


@pages.get("/healthz")
@public
def healthz() -> Response:
    return jsonify(status="ok")


@pages.get("/readyz")
@public
def readyz() -> tuple[Response, int]:
    """Answer 200 if all that Refine needs is available, or 503.

    A stopped clock and a verification that alarms are ``degraded``; /ops alone says what is wrong.
    """
    found = checks()
    ready = all(check.is_ok for check in found)
    if ready:
        verified = Check("verification", None if verification_check().is_ok else "see /ops")
        found += [clock_check(), verified]
    is_well = all(check.is_ok for check in found)
    status = "unavailable" if not ready else "ok" if is_well else "degraded"
    states = {check.name: check.problem or check.warning or "ok" for check in found}
    return jsonify(status=status, **states), 200 if ready else 503
