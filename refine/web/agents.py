"""The list of agents: searched, filtered and sorted by the URL."""

from typing import cast, get_args

from flask import Blueprint, render_template, request

from refine.models import Agent
from refine.models.agent_list import (
    STATES,
    Order,
    in_order,
    is_in,
    listed_agents,
    name_or_model_contains,
)
from refine.web import scope
from refine.web.paging import page_of

pages = Blueprint("agents", __name__)

# The columns by which the list can be sorted, and in which direction.
_SORTS: dict[str, tuple[Order, str]] = {
    "Agent": ("name", "ascending"),
    "Tokens": ("tokens", "descending"),
    "Of budget": ("share", "descending"),
    "Last session": ("last", "descending"),
}


@pages.get("/agents")
def listing() -> str:
    text = request.args.get("q", "").strip()[:100]
    state, order = request.args.get("state", ""), request.args.get("sort", "name")
    query = listed_agents(scope.owns(Agent.account_id))
    if text:
        query = query.where(name_or_model_contains(text))
    if state in STATES:
        query = query.where(is_in(state))
    if order not in get_args(Order):
        order = "name"
    page = page_of(query.order_by(*in_order(cast(Order, order))))
    return render_template(
        "agents/page.html",
        page=page,
        agents=page.rows,
        text=text,
        state=state if state in STATES else "",
        order=order,
        STATES=STATES,
        SORTS=_SORTS,
        account=scope.chosen_account() if scope.user().site_admin else None,
    )
