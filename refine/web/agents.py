"""The list of agents: searched, filtered and sorted by the URL."""

from datetime import timedelta
from typing import NamedTuple, cast, get_args

from flask import Blueprint, render_template, request
from sqlalchemy import ColumnElement

from refine import clock
from refine.models import Agent
from refine.models.agent_list import (
    STATES,
    Order,
    State,
    in_order,
    is_in,
    listed_agents,
    name_or_model_contains,
    totals,
)
from refine.models.ledger.history import sampled_masses
from refine.models.runs.spending import spent_by_agents
from refine.rules.quantities import cost_in_words
from refine.web import scope
from refine.web.forms import midnight
from refine.web.paging import page_of

pages = Blueprint("agents", __name__)

# The columns by which the list can be sorted, and in which direction.
_SORTS: dict[str, tuple[Order, str]] = {
    "Agent": ("name", "ascending"),
    "Tokens": ("tokens", "descending"),
    "Of budget": ("share", "descending"),
    "Last session": ("last", "descending"),
}


# The sparklines show so many days, at so many instants.
_TREND_DAYS = 30
_TREND_SAMPLES = 10


class Filter(NamedTuple):
    """Which agents the URL asks for: a part of their names or models, and a state."""

    text: str
    state: str

    @classmethod
    def of_request(cls) -> "Filter":
        text, state = request.values.get("q", "").strip()[:100], request.values.get("state", "")
        return cls(text, state if state in STATES else "")

    @property
    def conditions(self) -> list[ColumnElement[bool]]:
        """The SQL conditions that an agent is among them, and the page's accounts'."""
        conditions = [scope.owns(Agent.account_id)]
        if self.text:
            conditions.append(name_or_model_contains(self.text))
        if self.state:
            conditions.append(is_in(cast(State, self.state)))
        return conditions


@pages.get("/agents")
def listing() -> str:
    wanted, order = Filter.of_request(), request.args.get("sort", "name")
    if order not in get_args(Order):
        order = "name"
    query = listed_agents(*wanted.conditions).order_by(*in_order(cast(Order, order)))
    page, at = page_of(query), clock.now()
    month = at.astimezone(scope.zone()).date().replace(day=1)
    return render_template(
        "agents/page.html",
        page=page,
        agents=page.rows,
        masses=sampled_masses(
            [agent.id for agent in page.rows],
            at - timedelta(days=_TREND_DAYS),
            at,
            _TREND_SAMPLES,
        ),
        trend_days=_TREND_DAYS,
        totals=totals(*wanted.conditions),
        spent=cost_in_words(*spent_by_agents(midnight(month), *wanted.conditions)),
        text=wanted.text,
        state=wanted.state,
        order=order,
        STATES=STATES,
        SORTS=_SORTS,
        account=scope.chosen_account() if scope.user().site_admin else None,
    )
