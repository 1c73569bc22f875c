"""Counts refusals and wrong passwords: a metric, and a record when one client has many."""

from contextlib import suppress
from datetime import timedelta
from typing import Literal, get_args

from flask import Response, g, request
from flask_login import current_user
from sqlalchemy.exc import SQLAlchemyError

from refine.errors import RowAltered
from refine.extensions import db, safe_rollback
from refine.models import SharedCount, User
from refine.models.audit import PLATFORM, AuditLog
from refine.models.audit.record import Client
from refine.models.people.sign_in import address_key

Kind = Literal["forbidden", "not_found", "password"]
KINDS: tuple[Kind, ...] = get_args(Kind)

RECORDED_AT = 10
COUNTED_FOR = timedelta(hours=1)

# Keys: of the total of each kind, and of the latest of each user or address.
_TOTAL_KEY = "refused: "
_RECENT_KEY = "refused lately: "


def client() -> Client:
    """Return where this request comes from; of the browser's name, 200 printable characters."""
    printable = "".join(filter(str.isprintable, request.headers.get("User-Agent", "")))
    return {"address": request.remote_addr or "unknown", "browser": printable[:200]}


def note_other_tenant(found: object) -> None:
    """Note that this 404 hides a row that belongs to somebody else."""
    if found is not None:
        g.is_other_tenants = True


def count_response(answer: Response) -> None:
    """Count this answer if it refuses something; commits, and rolls back the request's work."""
    is_other_tenants = answer.status_code == 404 and g.get("is_other_tenants", False)
    if answer.status_code != 403 and not is_other_tenants:
        return
    try:
        db.session.rollback()
        is_signed_in = not request.path.startswith("/api/") and current_user.is_authenticated
        user = current_user.user if is_signed_in else None
        count("not_found" if is_other_tenants else "forbidden", user=user)
        db.session.commit()
    except SQLAlchemyError:  # the answer stands, counted or not
        safe_rollback()


def count(kind: Kind, *, user: User | None = None) -> None:
    """Count a refusal, and record it if it is number ``RECORDED_AT``; the caller commits."""
    address = client()
    actor = f"user {user.id}" if user is not None else address_key(address["address"])
    recent = _RECENT_KEY + actor
    SharedCount.add([_TOTAL_KEY + kind])
    if SharedCount.add([recent], lasts=COUNTED_FOR)[recent].count != RECORDED_AT:
        return
    data = {"refusals": RECORDED_AT, "last": kind}
    with suppress(RowAltered):  # the chain itself may be altered
        if user is not None:
            user.record("requests_refused", by=user, data=data)
        else:
            AuditLog.record("requests_refused", chain=PLATFORM, client=address, data=data)


def totals() -> dict[str, int]:
    counted = SharedCount.totals(_TOTAL_KEY)
    return {kind: counted.get(kind, 0) for kind in KINDS}
