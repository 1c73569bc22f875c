"""The front page: first what needs attention, then the last months; the first steps until then."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

from flask import Blueprint, render_template
from sqlalchemy import select

from refine import clock, settings
from refine.extensions import db
from refine.health import clock_check
from refine.models import Account, Agent, ApiToken, RefinementSession
from refine.models.agent_list import count_agents
from refine.models.runs import spending
from refine.models.runs.session import totals
from refine.models.runs.session.totals import DayTotals
from refine.models.runs.spending import DaySpending
from refine.web import attention, in_place, scope
from refine.web.charts import AMOUNT, Amounts, Bar, day_bars
from refine.web.forms import midnight
from refine.web.links import url_in_account
from refine.web.sessions import listed
from refine.web.usage import months_of_page

pages = Blueprint("overview", __name__)

_NEXT_SLOTS = 5
_ROWS_SHOWN = 10
_CAPS_SHOWN = 3


@pages.get("/")
def page() -> str:
    account_id, trend = scope.account_id(), Trend.of_page()
    agents, running = db.session.execute(
        count_agents("running", of=scope.owns(Agent.account_id))
    ).one()
    accounts = _next_accounts()
    return render_template(
        "overview/page.html",
        attention=attention.in_general(),
        cases=attention.in_cases(),
        trend=trend,
        costs=months_of_page(_CAPS_SHOWN) if trend.outcomes else [],
        names_accounts=scope.sees_all_accounts(),
        steps=[] if trend.outcomes else first_steps(has_agents=agents > 0),
        running=_running() if running else [],
        accounts=accounts,
        account=None if account_id is None else scope.account_to_change(),
        agents=agents,
        refresh_seconds=in_place.seconds_while(running),
    )


def _running() -> Sequence[Any]:
    live = listed(RefinementSession.is_live).order_by(None).order_by(RefinementSession.created_at)
    return db.session.execute(live.limit(_ROWS_SHOWN)).all()


def _next_accounts() -> Sequence[Any]:
    due = select(Account.name, Account.slug, Account.next_due_at).where(
        scope.owns(Account.id), Account.paused.is_(False), Account.next_due_at.is_not(None)
    )
    return db.session.execute(due.order_by(Account.next_due_at).limit(_NEXT_SLOTS)).all()


DAYS = 90


class Spent(NamedTuple):
    """What ``DaySpending`` says of each day, added up."""

    reflections: int
    conversations: int
    cost_usd: Decimal
    unpriced_calls: int


@dataclass(frozen=True)
class Trend:
    """The last ``DAYS`` days of the page's accounts, up to today, in the page's time zone."""

    today: date
    sessions: list[DayTotals]
    spending: list[DaySpending]

    @classmethod
    def of_page(cls) -> "Trend":
        """Read it, in two statements."""
        account_id, zone = scope.account_id(), scope.zone()
        today = clock.now().astimezone(zone).date()
        since = midnight(today - timedelta(days=DAYS - 1))
        return cls(
            today,
            totals.by_day(account_id, zone.key, since),
            spending.by_day(account_id, zone.key, since),
        )

    @property
    def days(self) -> int:
        return DAYS

    @property
    def first_day(self) -> date:
        return self.today - timedelta(days=DAYS - 1)

    @property
    def removed_tokens(self) -> int:
        return sum(each.removed_tokens for each in self.sessions)

    @property
    def lost(self) -> int:
        """How many sessions lost their worker."""
        return sum(each.lost for each in self.sessions)

    @cached_property
    def outcomes(self) -> Counter[str]:
        """How many sessions ended, or stand, in each way."""
        counts = Counter[str]()
        for each in self.sessions:
            counts[each.status] += each.sessions
        return counts

    @cached_property
    def spent(self) -> Spent:
        days = self.spending
        return Spent(
            reflections=sum(day.reflections for day in days),
            conversations=sum(day.conversations for day in days),
            cost_usd=sum((day.cost_usd for day in days), Decimal(0)),
            unpriced_calls=sum(day.unpriced_calls for day in days),
        )

    @property
    def session_bars(self) -> list[Bar]:
        by_status: dict[date, dict[str, Amounts]] = defaultdict(dict)
        for each in self.sessions:
            by_status[each.day][each.status] = each.sessions
        return day_bars(by_status, self.today, DAYS)

    @property
    def removed_bars(self) -> list[Bar]:
        return self._bars((each.day, each.removed_tokens) for each in self.sessions)

    @property
    def cost_bars(self) -> list[Bar]:
        return self._bars((each.day, each.cost_usd) for each in self.spending)

    def _bars(self, amounts: Iterable[tuple[date, Amounts]]) -> list[Bar]:
        by_day: dict[date, dict[str, Amounts]] = defaultdict(lambda: {AMOUNT: 0})
        for day, amount in amounts:
            by_day[day][AMOUNT] += amount
        return day_bars(by_day, self.today, DAYS)


class Step(NamedTuple):
    """A step, whether it is done, how to do it, and on which page."""

    name: str
    is_done: bool
    how: str
    url: str | None = None


def first_steps(*, has_agents: bool) -> list[Step]:
    """Return the steps to the first session, in order; that one is never done yet."""
    slug = scope.account_to_change().slug
    has_token = select(ApiToken.id).where(
        scope.owns(ApiToken.account_id), ApiToken.kind == "platform", ApiToken.revoked_at.is_(None)
    )
    return [
        Step(
            "Configure a model provider",
            settings.current().openrouter_api_key is not None,
            "Set `OPENROUTER_API_KEY`. Until then, only the rehearsal model answers.",
        ),
        Step(
            "Connect your platform",
            bool(db.session.scalar(select(has_token.exists()))),
            f"Create a token for it: `refine token add --platform --account {slug}`",
        ),
        Step(
            "Add an agent",
            has_agents,
            f"Your platform does, or `refine agent add NAME --account {slug} --model MODEL`",
        ),
        Step(
            "Start a clock and a worker",
            clock_check().is_ok,
            "`refine up` starts both, or run `refine clock` and `refine worker`",
        ),
        Step(
            "Start the first session",
            False,
            "Open an agent and choose “Refine now”: it is asked for consent, and you can watch.",
            url_in_account("agents.listing"),
        ),
    ]
