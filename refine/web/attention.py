"""What needs attention: the installation, accounts, and agents by name."""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from flask import url_for
from sqlalchemy import ColumnElement, select

from refine import clock, settings
from refine.extensions import Instant, db
from refine.extensions.statements import together
from refine.health import clock_check, look_for_workers, queue_check
from refine.models import Account
from refine.models.attention import Case, Kind, cases
from refine.models.runs.spending import cap_in_words, cap_is_spent, cost_cap_reached
from refine.rules.quantities import in_hours, plural
from refine.web import scope
from refine.web.links import url_in_account

# Conversations that were given up longer ago need none.
LOST_WITHIN = timedelta(days=1)
_ACCOUNTS_SHOWN = 10
# What agents need attention for, worst first: its level and its words.
_CASES: dict[Kind, tuple[str, str]] = {
    "failed": ("bad", "whose last session failed"),
    "rolled_back": ("warn", "whose last session was rolled back"),
    "over_budget": ("warn", "over budget"),
    "declined": ("calm", "that declined the last session"),
}
_LEVELS = {"bad": "✗", "warn": "!", "calm": "i"}


@dataclass(frozen=True)
class Attention:
    level: str
    text: str
    url: str | None = None
    link: str | None = None

    @property
    def shape(self) -> str:
        """The shape of its level, as no level is shown by colour alone."""
        return _LEVELS[self.level]


def in_general(lost_conversations: int, *, has_watched_accounts: bool) -> list[Attention]:
    """Return what needs attention besides agents, worst first."""
    found = [
        *_installation(),
        *_conversations(lost_conversations),
        *(_accounts() if has_watched_accounts else ()),
    ]
    return sorted(found, key=lambda item: list(_LEVELS).index(item.level))


def in_cases() -> list[tuple[Attention, list[Case]]]:
    """Return what agents need attention for, with the worst cases of each, worst first."""
    found = cases(scope.account_id())
    return [
        (
            Attention(
                level,
                f"{plural(worst[0].number, 'agent')} {words}",
                url_in_account("agents.listing", state=kind),
                f"All agents {words}",
            ),
            worst,
        )
        for kind, (level, words) in _CASES.items()
        if (worst := found[kind])
    ]


def _conversations(lost: int) -> list[Attention]:
    """Conversations that were given up before anything was saved from them."""
    if not lost:
        return []
    when = f"in the last {in_hours(LOST_WITHIN)}"
    text = f"{plural(lost, 'conversation')} given up {when}, with nothing saved"
    return [Attention("bad", text, url_in_account("ops.page"))]


def _rehearsing() -> str:
    return "of every account" if settings.current().rehearsal else "of the demo account"


def _installation() -> list[Attention]:
    workers, at = look_for_workers(), clock.now()
    checks = together(clock_check, partial(queue_check, scope.account_id(), workers, at))
    found = [
        Attention("bad", f"{check.name.capitalize()}: {check.problem}", url_for("ops.page"))
        for check in checks
        if check.problem is not None
    ]
    if settings.current().openrouter_api_key is None:
        found.append(
            Attention(
                "calm",
                f"No API key is set: agents {_rehearsing()} with a rehearsal/ model are answered "
                "by the rehearsal model; sessions of all other agents fail.",
            )
        )
    return found


def is_watched(at: Instant) -> ColumnElement[bool]:
    """Return the SQL condition that ``in_general`` has to ask what the account spent."""
    return Account.has_late_slot(at) | Account.monthly_cost_cap_usd.is_not(None)


def _accounts() -> list[Attention]:
    at = clock.now()
    is_late = Account.has_late_slot(at)
    found = []
    is_capped = cost_cap_reached(at)
    for account, late, capped, reached in db.session.execute(
        select(Account, is_late, is_capped, cap_is_spent(at))
        .where(scope.owns(Account.id), is_late | is_capped)
        .order_by(Account.slug)
        .limit(_ACCOUNTS_SHOWN)
    ):
        where = url_for("schedule.page", account=account.slug)
        if late:
            found.append(Attention("bad", f"{account.name}: a slot was missed", where))
        if capped and (cap := account.monthly_cost_cap_usd) is not None:
            why = cap_in_words(cap, is_reached=reached)
            found.append(Attention("warn", f"{account.name}: the {why}", where))
    return found
