"""One action on many agents of a list: a page that asks, and the action."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from flask import abort, flash, redirect, render_template, request
from flask.typing import ResponseReturnValue
from sqlalchemy import ColumnElement, case, literal, null

from refine import clock
from refine.jobs.batches import (
    NOT_PUT_ASIDE,
    NOTHING_OPEN,
    PUTTING_ASIDE,
    BulkOutcome,
    Work,
    act_on,
)
from refine.models import Agent, attention
from refine.models.agent.eligibility import Group, grouped_by
from refine.models.columns import id_in
from refine.models.runs.session.scheduling import estimate, why_not_on_request
from refine.rules.quantities import plural
from refine.web import scope
from refine.web.agents import FILTERS, conditions_of
from refine.web.forms import own_path
from refine.web.links import url_in_account
from refine.web.lists import Chosen
from refine.web.words import BULK_ACTIONS

pages = scope.area("bulk")

_CONFLICT = 409
_CHANGED = "The agents have changed in the meantime; check them and confirm again"
# As many as fit into the address of the page that asks.
_MOST_TICKED = 250


@dataclass(frozen=True)
class Agents:
    work: Work
    ids: Sequence[int] | None
    wanted: Chosen
    back: str

    @classmethod
    def of_request(cls) -> "Agents":
        given, wanted = request.values, Chosen(FILTERS, request.values)
        work, who = given.get("work", ""), given.get("who", "ticked")
        if work == "snooze":
            work = f"snooze_{given.get('until')}"
        if work not in BULK_ACTIONS:
            abort(400, "Choose on the list of agents what to do, and for whom.")
        listing = url_in_account("agents.listing", **wanted.texts)
        back = own_path(given.get("back", "")) or listing
        if who == "all":
            if scope.sees_all_accounts():
                abort(400, "Choose an account first: this is done for one account at a time.")
            return cls(work, None, wanted, back)
        on_page = given.get("on_page", "").split(",")
        ticked = on_page if who == "page" else given.getlist("agent")
        ids = sorted({id_ for each in ticked if (id_ := id_in(each)) is not None})
        if len(ids) > _MOST_TICKED:
            abort(400, f"Select at most {_MOST_TICKED} agents, or all that match.")
        return cls(work, ids, wanted, back)

    @property
    def is_done_at_once(self) -> bool:
        """Whether nobody needs to confirm it: it is of agents that were seen, and taken back."""
        return self.work in PUTTING_ASIDE and bool(self.ids)

    @property
    def conditions(self) -> list[ColumnElement[bool]]:
        if self.ids is None:
            return conditions_of(self.wanted)
        return [scope.in_scope(Agent.account_id), Agent.id.in_(self.ids)]

    @property
    def fields(self) -> dict[str, str]:
        same = {"work": self.work, "back": self.back, **self.wanted.texts}
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
    def left_out(self) -> list[Group]:
        return [group for reason, group in self.groups.items() if reason is not None]

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
        case "resume":
            return case((~Agent.paused, literal("not paused")))
        case "return":
            return case((attention.is_put_aside(), null()), else_=literal(NOT_PUT_ASIDE))
    return case((attention.has_cause(), null()), else_=literal(NOTHING_OPEN))


@pages.get("/agents/many")
@scope.admins_only
def ask() -> str:
    return _page(Agents.of_request())


@pages.post("/agents/many")
@scope.admins_only
def act() -> ResponseReturnValue:
    """Carry it out, or lead to the page that asks."""
    chosen, digest = Agents.of_request(), request.form.get("digest")
    if digest is None and not chosen.is_done_at_once:
        return redirect(url_in_account("bulk.ask", **chosen.fields), 303)
    if digest not in (None, chosen.digest):
        return _page(chosen, _CHANGED), _CONFLICT
    outcome = act_on(chosen.touched, chosen.work, scope.user())
    if digest is None:
        outcome.skipped.update({str(group.reason): group.number for group in chosen.left_out})
    flash(outcome_in_words(chosen.work, outcome))
    return redirect(chosen.back, 303)


def outcome_in_words(work: Work, outcome: BulkOutcome) -> str:
    said = [f"{plural(outcome.done, 'agent')} {BULK_ACTIONS[work]['done']}"]
    for why, count in outcome.skipped.most_common():
        said.append(f"{plural(count, 'agent')} skipped: {why}")
    return f"{'; '.join(said)}."


def _page(chosen: Agents, error: str | None = None) -> str:
    return render_template(
        "agents/bulk_action.html",
        chosen=chosen,
        is_free=chosen.work not in ("refine", "resume"),
        cost=estimate(clock.now(), chosen.touched),
        error=error,
    )
