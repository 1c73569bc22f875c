"""What needs attention: the installation, accounts, and agents by cause, with what to do."""

from collections.abc import Sequence
from typing import NamedTuple, cast

from flask import g, url_for
from sqlalchemy import func, select

from refine import clock, settings
from refine.extensions import db
from refine.health import clock_check, queue_check
from refine.models import Account, Agent, attention
from refine.models.agent.eligibility import NO_KEY, unanswered
from refine.models.attention import Case
from refine.models.runs.spending import accounts_at_cap, cap_in_words
from refine.rules.causes import CAUSES, LEVELS, advice_on, cause_in_words
from refine.rules.quantities import in_percent, plural
from refine.rules.retention import sessions_to
from refine.web import scope
from refine.web.links import url_in_account
from refine.web.words import SET_A_KEY, minute

_ACCOUNTS_SHOWN = 10
# Budgets are proposed in steps of this.
_ROUND = 100
_REHEARSING = (
    "you are rehearsing: the built-in rehearsal model answers; nothing is sent anywhere or costs "
    "anything."
)


def number_waiting() -> int:
    """Return how many agents need attention, asked once for a page."""
    if "waiting" not in g:
        g.waiting = attention.number_waiting(scope.account_id())
    return cast(int, g.waiting)


class Attention(NamedTuple):
    level: str
    text: str
    url: str


def in_general(*, with_erasures: bool = True) -> list[Attention]:
    found = [*_without_key(), *_installation(), *_accounts()]
    found += _erasures() if with_erasures else []
    return sorted(found, key=lambda item: LEVELS.index(item.level))


# -- agents, by cause ------------------------------------------------------------------------------


class CaseGroup(NamedTuple):
    """Agents with one cause, the worst by name; ``reason``: how all these sessions ended."""

    level: str
    text: str
    advice: str
    reason: str | None
    cases: Sequence[Case]

    @property
    def worst(self) -> Case:
        return self.cases[0]

    @property
    def may_be_refined(self) -> bool:
        return self.worst.kind not in _NOT_AGAIN

    @property
    def url(self) -> str:
        order = "share" if self.worst.is_about_budget else None
        return url_in_account("agents.listing", cause=self.worst.cause, sort=order)


# What another session would do again, or is no matter of sessions.
_NOT_AGAIN = ("given_up", "rolled_back", "stuck")


def in_groups() -> list[CaseGroup]:
    groups = [_group(found) for found in attention.cases(scope.account_id())]
    g.waiting = sum(group.worst.number for group in groups)
    return groups


def _group(found: Sequence[Case]) -> CaseGroup:
    first = found[0]
    error = first.cause.partition(":")[2]
    text = f"{plural(first.number, 'agent')} {cause_in_words(first.cause)}"
    reasons = {case.session.end_reason if error and case.session else None for case in found}
    reason = reasons.pop() if len(reasons) == 1 else None
    level, advice = CAUSES[first.kind].level, advice_on(first.cause)
    return CaseGroup(level, text, advice, reason, found)


def way_down(agent: Agent) -> str:
    """Say what sessions can do at best for an agent over its budget."""
    budget, share = agent.core_token_budget, in_percent(1 - agent.threshold)
    sessions = sessions_to(budget, agent.core_tokens, agent.threshold)
    if sessions is None:
        return "A session may take nothing"
    return f"A session may take {share}: {plural(sessions, 'session')} or more to {budget:,}"


def budget_for(agent: Agent) -> int:
    """Return a round budget that the agent is within."""
    return -(-agent.core_tokens // _ROUND) * _ROUND


# -- the installation and its accounts ------------------------------------------------------------


def _without_key() -> list[Attention]:
    if settings.current().openrouter_api_key is not None:
        return []
    is_unanswered = unanswered()[NO_KEY]
    unanswered_agents = func.count().filter(is_unanswered)
    found = []
    for name, slug, agents, number in db.session.execute(
        select(Account.name, Account.slug, func.count(), unanswered_agents)
        .join(Agent, Agent.account_id == Account.id)
        .where(scope.in_scope(Account.id), Agent.active)
        .group_by(Account.id)
        .order_by(unanswered_agents.desc(), Account.slug)
        .limit(_ACCOUNTS_SHOWN)
    ):
        where = url_for("agents.listing", account=slug)
        if number:
            all_or_some = f"No agent of {name} can be asked"
            if number < agents:
                all_or_some = f"{number} of {plural(agents, 'agent')} of {name} cannot be asked"
            found.append(Attention("bad", f"{all_or_some}: {NO_KEY}. {SET_A_KEY}", where))
        if number < agents:
            found.append(Attention("calm", f"{name}: {_REHEARSING}", where))
    return found


def _installation() -> list[Attention]:
    checks = clock_check(), queue_check(scope.account_id())
    return [
        Attention("bad", f"{check.name.capitalize()}: {check.text}", url_for("ops.page"))
        for check in checks
        if not check.is_ok
    ]


def _accounts() -> list[Attention]:
    at, shown = clock.now(), scope.in_scope(Account.id)
    late = select(Account).where(shown, Account.has_late_slot(at)).order_by(Account.slug)
    found = [
        Attention("bad", f"{account.name}: a scheduled run was missed", _schedule_of(account))
        for account in db.session.scalars(late.limit(_ACCOUNTS_SHOWN))
    ]
    capped = accounts_at_cap(at).where(shown).order_by(Account.slug).limit(_ACCOUNTS_SHOWN)
    for account, is_spent in db.session.execute(capped):
        why = cap_in_words(account.monthly_cost_cap_usd, is_reached=is_spent)
        found.append(Attention("warn", f"{account.name}: the {why}", _schedule_of(account)))
    return found


def _erasures() -> list[Attention]:
    """No case that somebody can put aside: everybody is to see it."""
    wanted = select(Agent).where(scope.in_scope(Agent.account_id), Agent.erase_at.is_not(None))
    first = wanted.order_by(Agent.erase_at, Agent.id).limit(_ACCOUNTS_SHOWN)
    return [
        Attention(
            "bad",
            f"{agent.name} is erased for good on {minute(agent.erase_at)}",
            url_for("agent.page", agent_id=agent.id),
        )
        for agent in db.session.scalars(first)
    ]


def _schedule_of(account: Account) -> str:
    return url_for("schedule.page", account=account.slug)
