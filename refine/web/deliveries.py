"""Deliveries of events to webhooks: what waits, arrived or was given up, and sending it again."""

from flask import render_template
from flask.typing import ResponseReturnValue
from sqlalchemy import select
from sqlalchemy.orm import joinedload

from refine.models import Delivery, Endpoint
from refine.rules.events import KINDS
from refine.web import scope
from refine.web.forms import done
from refine.web.links import url_in_account
from refine.web.lists import Chosen, one_of, page_of
from refine.web.words import DELIVERIES

pages = scope.area("deliveries")

_OUTCOMES = {outcome: badge.word for outcome, badge in DELIVERIES.items()}
_FILTERS = [
    one_of("outcome", "Outcome", _OUTCOMES, lambda name: Delivery.outcome == name),
    one_of("kind", "Event", {k: k for k in KINDS}, lambda kind: Delivery.kind == kind),
]


@pages.get("/deliveries")
@scope.admins_only
def listing() -> str:
    chosen = Chosen(_FILTERS)
    whole = joinedload(Delivery.endpoint).joinedload(Endpoint.account)
    mine = select(Delivery).where(scope.in_scope(Delivery.account_id), *chosen.conditions())
    page = page_of(mine.options(whole).order_by(Delivery.id.desc()))
    rows = [row[0] for row in page.rows]
    return render_template("deliveries/page.html", page=page, deliveries=rows, chosen=chosen)


@pages.post("/deliveries/<int:delivery_id>/replay")
@scope.admins_only
def replay(delivery_id: int) -> ResponseReturnValue:
    scope.found_or_404(Delivery, delivery_id).replay()
    said = f"Delivery {delivery_id} is sent again within a minute."
    return done(said, url_in_account("deliveries.listing"))
