"""The list of agents: searched, filtered and sorted by the URL."""

from typing import cast

from flask import render_template, request
from sqlalchemy import ColumnElement

from refine import clock
from refine.models import Agent, attention
from refine.models.agent_list import STATES, Order, in_order, is_in, listed_agents, totals
from refine.models.runs.run import LIVE
from refine.models.runs.spending import spent_by_agents
from refine.rules.causes import cause_in_words
from refine.rules.quantities import cost_in_words
from refine.web import in_place, scope
from refine.web.lists import Chosen, Filter, one_of, page_of, searched

pages = scope.area("agents")

# The columns by which the list can be sorted, and in which direction.
_SORTS: dict[str, tuple[Order, str]] = {
    "Agent": ("name", "ascending"),
    "Core memory": ("share", "descending"),
    "Last session": ("last", "descending"),
}
_ORDERS: dict[Order, str] = {
    "worst": "worst first, then by name",
    "name": "by name",
    "share": "by share of the budget",
    "tokens": "by tokens",
    "last": "by last session",
}

FILTERS = [
    searched(Agent.name, Agent.model_id, label="Name or model"),
    one_of("state", "State", STATES, is_in),
    Filter(
        "cause",
        "Needs attention",
        read=lambda text: text or None,
        condition=lambda cause: attention.has_cause(None if cause == "any" else cause),
        shown=lambda cause: f"needs attention: {cause_in_words(cause)}",
    ),
]


def conditions_of(chosen: Chosen) -> list[ColumnElement[bool]]:
    return [scope.in_scope(Agent.account_id), *chosen.conditions()]


@pages.get("/agents")
def listing() -> str:
    chosen, order = Chosen(FILTERS), request.args.get("sort")
    conditions = conditions_of(chosen)
    if order not in _ORDERS:
        order = "worst"
    query = listed_agents(*conditions).order_by(*in_order(cast(Order, order)))
    page, summed = page_of(query), totals(*conditions)
    agents = [row[:2] for row in page.rows]
    return render_template(
        "agents/page.html",
        page=page,
        agents=agents,
        totals=summed,
        spent=cost_in_words(*spent_by_agents(clock.now(), *conditions)),
        choices=_choices(len(agents), summed.agents),
        chosen=chosen,
        order=order,
        refresh_seconds=in_place.seconds_while(
            any(agent.last_session_status in LIVE for agent, _ in agents)
        ),
        SORTS=_SORTS,
        ORDERS=_ORDERS,
    )


def _choices(shown: int, found: int) -> list[tuple[str, str]]:
    choices = [("ticked", "the selected agents"), ("page", f"all {shown} on this page")]
    if found > shown and not scope.sees_all_accounts():
        choices.append(("all", f"all {found:,} that match"))
    return choices
