"""An account's usage by agent, model and month, and this month's cost."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from flask import render_template, request
from sqlalchemy import Select

from refine import clock
from refine.extensions import db
from refine.models import Account, Agent
from refine.models.runs.spending import Used, cap_in_words, spent_by_agents, used_by, with_total
from refine.rules.instants import first_of_month
from refine.rules.quantities import cost_in_words
from refine.web import scope
from refine.web.forms import day_of
from refine.web.links import here
from refine.web.lists import page_of
from refine.web.presenting import Gauge
from refine.web.words import day, month, number

pages = scope.area("usage")

_MONTHS_SHOWN = 12


# What usage is grouped by, and the key of a group.
_GROUPINGS = {"agent": "agent_id", "model": "model_id", "month": "month"}
# The names of figures.
_FIGURES = {
    "Cost": "cost_usd",
    "Tokens saved": "saved_tokens",
    "Sessions": "sessions",
    "Reflections": "reflections",
    "Conversations": "conversations",
    "Prompt tokens": "prompt_tokens",
    "Cached": "cached_tokens",
    "Completion tokens": "completion_tokens",
}


class Chosen(NamedTuple):
    by: str
    month: date
    this_month: date

    @classmethod
    def of_request(cls) -> "Chosen":
        by = request.args.get("by", "")
        zone = ZoneInfo(scope.account_to_change().time_zone)
        this_month = first_of_month(clock.now().astimezone(zone).date())
        month = day_of(f"{request.args.get('month')}-01") or this_month
        return cls(by if by in _GROUPINGS else "agent", month, this_month)

    @property
    def is_by_month(self) -> bool:
        return self.by == "month"

    @property
    def choices(self) -> list[tuple[str, str]]:
        last = {first_of_month(self.this_month, -back) for back in range(_MONTHS_SHOWN)}
        return [
            (f"{each:%Y-%m}", month(each)) for each in sorted(last | {self.month}, reverse=True)
        ]

    def query(self) -> Select[*tuple[Any, ...]]:
        last, months = (self.this_month, _MONTHS_SHOWN) if self.is_by_month else (self.month, 1)
        since, until = first_of_month(last, 1 - months), first_of_month(last, 1)
        used = used_by(self.by, since, until, scope.account_id()).cte()
        key = used.c[_GROUPINGS[self.by]]
        in_order = (key.desc(),) if self.is_by_month else (used.c.cost_usd.desc(), key)
        return with_total(used).order_by(*in_order)


@pages.get("/usage")
def page() -> str:
    chosen = Chosen.of_request()
    page = None if chosen.is_by_month else page_of(chosen.query())
    rows = page.rows if page is not None else db.session.execute(chosen.query()).all()
    account = None if scope.sees_all_accounts() else scope.account_to_change()
    names_accounts = chosen.by == "agent" and account is None
    accounts = ["Account"] if names_accounts else []
    is_now = chosen.is_by_month or chosen.month == chosen.this_month
    return render_template(
        "usage/page.html",
        chosen=chosen,
        page=page,
        rows=rows,
        total=Used.total_of(rows),
        months_shown=_MONTHS_SHOWN,
        cost=month_of_account(account) if account is not None and is_now else None,
        groupings=[(f"By {by}", here(by=by, page=None), by == chosen.by) for by in _GROUPINGS],
        figures=_FIGURES,
        figure=_figure,
        names_accounts=names_accounts,
        columns=[chosen.by.capitalize(), *accounts, *_FIGURES, "Share of cost"],
        account=account,
    )


def _figure(of: Any, name: str) -> str:
    if name == "cost_usd":
        return cost_in_words(of.cost_usd, of.unpriced_calls)
    return number(getattr(of, name))


@dataclass(frozen=True)
class MonthCost:
    account: Account
    spent_usd: Decimal
    is_unknown: bool

    @property
    def spent(self) -> str:
        return cost_in_words(self.spent_usd, self.is_unknown)

    @property
    def of_cap(self) -> str:
        cap = self.account.monthly_cost_cap_usd
        return "" if cap is None else f"; monthly cost cap: ${cap:,.2f}"

    @property
    def gauge(self) -> Gauge | None:
        cap = self.account.monthly_cost_cap_usd
        if cap is None or self.is_unknown:
            return None
        return Gauge(round(100 * self.spent_usd), round(100 * cap))

    @property
    def note(self) -> str:
        cap = self.account.monthly_cost_cap_usd
        is_reached = cap is not None and self.spent_usd >= cap
        if not is_reached and not self.is_unknown:
            return ""
        if cap is None:
            return "The cost of some runs is unknown: set prices in REFINE_PRICES."
        local = clock.now().astimezone(ZoneInfo(self.account.time_zone))
        next_month = day(first_of_month(local.date(), 1))
        until = f"before {next_month}" if is_reached else "until then"
        why = cap_in_words(cap, is_reached=is_reached)
        return f"The {why}. Nothing starts automatically {until}."


def month_of_account(account: Account) -> MonthCost:
    return MonthCost(account, *spent_by_agents(clock.now(), Agent.account_id == account.id))
