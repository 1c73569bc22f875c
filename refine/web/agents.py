"""The list of agents: searched, filtered and sorted by the URL; and actions on many of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple, cast, get_args

from flask import Blueprint, abort, flash, redirect, render_template, request
from flask.typing import ResponseReturnValue
from sqlalchemy import ColumnElement, case, literal

from refine import clock
from refine.jobs.batches import BulkOutcome, Work, act_on
from refine.models import Agent
from refine.models.agent.eligibility import Group, grouped_by
from refine.models.agent_list import STATES, Order, in_order, is_in, listed_agents, totals
from refine.models.columns import id_in
from refine.models.runs import LIVE
from refine.models.runs.session.prospects import LOOKS_BACK, estimate, why_not_on_request
from refine.models.runs.spending import spent_by_agents
from refine.rules.quantities import cost_in_words, plural
from refine.web import in_place, scope
from refine.web.links import url_in_account
from refine.web.lists import PAGE_ROWS, Chosen, one_of, page_of, searched

pages = Blueprint("agents", __name__)

# The columns by which the list can be sorted, and in which direction.
_SORTS: dict[str, tuple[Order, str]] = {
    "Agent": ("name", "ascending"),
    "Tokens": ("tokens", "descending"),
    "Of budget": ("share", "descending"),
    "Last session": ("last", "descending"),
}


class BulkAction(NamedTuple):
    name: str
    done: str
    effect: str


BULK_ACTIONS: dict[Work, BulkAction] = {
    "refine": BulkAction(
        "Refine",
        "asked for a session",
        "Each agent is asked for its consent first. Paused agents are asked too; cool-downs and "
        "the monthly cost cap do not apply.",
    ),
    "pause": BulkAction(
        "Pause",
        "paused",
        "No automatic sessions start until the agents are resumed. Running sessions continue.",
    ),
    "resume": BulkAction(
        "Resume",
        "resumed",
        "Automatic sessions start again, at the account's slots and after budget checks.",
    ),
}


FILTERS = [
    searched(Agent.name, Agent.model_id, label="Name or model"),
    one_of("state", "State", STATES, condition=is_in),
]


def conditions_of(chosen: Chosen) -> list[ColumnElement[bool]]:
    return [scope.in_scope(Agent.account_id), *chosen.conditions()]


@pages.get("/agents")
def listing() -> str:
    chosen, order = Chosen(FILTERS), request.args.get("sort", "name")
    conditions = conditions_of(chosen)
    if order not in get_args(Order):
        order = "name"
    query = listed_agents(*conditions).order_by(*in_order(cast(Order, order)))
    page, at = page_of(query), clock.now()
    summed = totals(*conditions)
    return render_template(
        "agents/page.html",
        page=page,
        agents=page.rows,
        totals=summed,
        spent=cost_in_words(*spent_by_agents(at, *conditions)),
        works=[(work, bulk_action.name) for work, bulk_action in BULK_ACTIONS.items()],
        choices=_choices(len(page.rows), summed.agents),
        chosen=chosen,
        order=order,
        refresh_seconds=in_place.seconds_while(
            any(agent.last_session_status in LIVE for agent in page.rows)
        ),
        SORTS=_SORTS,
        account=scope.chosen_account() if scope.user().site_admin else None,
    )


def _choices(shown: int, found: int) -> list[tuple[str, str]]:
    choices = [("ticked", "the selected agents"), ("page", f"all {shown} on this page")]
    if found > shown and not scope.sees_all_accounts():
        choices.append(("all", f"all {found:,} that match"))
    return choices


# -- one action on many agents: a page that asks, and the action ----------------------------------

_CONFLICT = 409
_CHANGED = "The agents have changed in the meantime; check them and confirm again"


@dataclass(frozen=True)
class Agents:
    work: Work
    ids: Sequence[int] | None
    wanted: Chosen

    @classmethod
    def of_request(cls) -> "Agents":
        wanted = Chosen(FILTERS, request.values)
        work, who = request.values.get("work", ""), request.values.get("who", "ticked")
        if work not in BULK_ACTIONS:
            abort(400, "Choose on the list of agents what to do, and for whom.")
        if who == "all":
            if scope.sees_all_accounts():
                abort(400, "Choose an account first: this is done for one account at a time.")
            return cls(work, None, wanted)
        given = request.values.getlist("agent")
        if who == "page":
            given = request.values.get("on_page", "").split(",")
        ids = sorted({id_ for each in given[:PAGE_ROWS] if (id_ := id_in(each)) is not None})
        return cls(work, ids, wanted)

    @property
    def conditions(self) -> list[ColumnElement[bool]]:
        if self.ids is None:
            return conditions_of(self.wanted)
        return [scope.in_scope(Agent.account_id), Agent.id.in_(self.ids)]

    @property
    def fields(self) -> dict[str, str]:
        same = {"work": self.work, **self.wanted.texts}
        if self.ids is None:
            return {**same, "who": "all"}
        return {**same, "who": "page", "on_page": ",".join(map(str, self.ids))}

    @cached_property
    def groups(self) -> Mapping[str | None, Group]:
        """The agents by the reason that leaves them out, or None; 404 if one is unknown."""
        found = grouped_by(why_left_out(self.work), *self.conditions)
        if self.ids is not None and sum(group.number for group in found.values()) < len(self.ids):
            abort(404)
        return found

    @property
    def touched(self) -> Sequence[int]:
        return self.groups[None].ids if None in self.groups else []

    @property
    def digest(self) -> str:
        return digest_of(self.touched)


def digest_of(ids: Iterable[int]) -> str:
    """Return the digest with which a form shows that its agents are still the same."""
    return sha256(str(sorted(ids)).encode()).hexdigest()


def why_left_out(work: Work) -> ColumnElement[str | None]:
    match work:
        case "refine":
            return why_not_on_request()
        case "pause":
            return case((Agent.paused, literal("already paused")))
    return case((~Agent.paused, literal("not paused")))


@pages.get("/agents/many")
@scope.admins_only
def ask() -> str:
    return _page(Agents.of_request())


@pages.post("/agents/many")
@scope.admins_only
def act() -> ResponseReturnValue:
    chosen = Agents.of_request()
    if request.form.get("digest") != chosen.digest:
        return _page(chosen, _CHANGED), _CONFLICT
    outcome = act_on(chosen.touched, chosen.work, scope.user())
    flash(_in_words(chosen.work, outcome))
    return redirect(_list_of(chosen), 303)


def _in_words(work: Work, outcome: BulkOutcome) -> str:
    done = f"{plural(outcome.done, 'agent')} {BULK_ACTIONS[work].done}"
    skipped = outcome.skipped.most_common()
    return (
        "; ".join([done, *(f"{plural(count, 'agent')} skipped: {why}" for why, count in skipped)])
        + "."
    )


def _page(chosen: Agents, error: str | None = None) -> str:
    groups = chosen.groups
    return render_template(
        "agents/bulk_action.html",
        chosen=chosen,
        bulk_action=BULK_ACTIONS[chosen.work],
        touched=groups.get(None),
        left_out=[group for reason, group in groups.items() if reason is not None],
        is_free=chosen.work == "pause",
        cost=estimate(clock.now(), chosen.touched),
        looks_back=LOOKS_BACK.days,
        error=error,
        back=_list_of(chosen),
    )


def _list_of(chosen: Agents) -> str:
    return url_in_account("agents.listing", **chosen.wanted.texts)
