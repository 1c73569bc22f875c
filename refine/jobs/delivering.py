"""Delivers the outbox: each endpoint by a thread that no other endpoint holds up."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial

from flask import Flask, current_app

from refine import stopping
from refine.errors import RowAltered
from refine.extensions import db
from refine.jobs import webhook
from refine.models import Delivery

# How many endpoints are served at the same time.
_THREADS = 8


def deliver_due(at: datetime, deadline: float) -> None:
    """Attempt what is due, until ``deadline`` (``time.monotonic``) or one attempt longer."""
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    due = Delivery.endpoints_due(at)
    db.session.commit()
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(partial(_serve, app, at, deadline), due))


def _serve(app: Flask, at: datetime, deadline: float, endpoint_id: int) -> None:
    """Deliver to one endpoint, oldest first, until an attempt gets no answer."""
    with app.app_context():
        while time.monotonic() < deadline and not stopping.stop_requested():
            claimed = Delivery.claim(at, Delivery.endpoint_id == endpoint_id)
            if claimed is None:
                return
            status = _attempt(claimed)
            claimed.note(at, status)
            db.session.commit()
            if not status.isdigit():
                return


def _attempt(claimed: Delivery) -> str:
    """Send it, with no transaction open meanwhile."""
    endpoint = claimed.endpoint
    try:
        endpoint.require_genuine()
        message = webhook.Message(
            endpoint.url, endpoint.secret or "", claimed.event_id, claimed.body
        )
    except RowAltered:
        return "altered"
    finally:
        db.session.commit()
    return webhook.send(message) if message.secret else "removed"
