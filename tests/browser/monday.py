"""A Monday with sixty agents: what the night left behind, of every kind."""

from collections.abc import Iterator
from datetime import timedelta

from refine import clock
from refine.extensions import db
from refine.models import Account, Agent, PeriodicWork
from tests import factories

_UNREACHABLE = "the provider cannot be reached (HTTP 503), after 3 attempts"
_TRIED = "tried to remove 623 of 1790 tokens (34.9%); the limit was 447 (25%)"
# How many agents, how their last session ended and why, and its kind of error.
_ENDED = [
    (12, "failed", _UNREACHABLE, "connection"),
    (3, "failed", "the worker was lost", "worker_lost"),
    (4, "rolled_back", _TRIED, None),
    (5, "declined", "the agent declined", None),
]


def sixty_agents(account: Account) -> list[Agent]:
    """Thirty-three of which need attention; committed."""
    now = clock.now()
    PeriodicWork.note("tick", now)
    PeriodicWork.note("worker", now)
    account.next_due_at = account.next_slot(now)
    agents = [factories.agent(account=account, name=f"Agent {n:02}") for n in range(1, 61)]
    for n, agent in enumerate(agents):
        factories.ledger(agent, 1_790 + n % 7)
    rest = iter(agents)
    for count, status, reason, kind in _ENDED:
        for agent, hours in _some(rest, count):
            at = now - timedelta(hours=hours)
            factories.ended(agent, status, reason, at=at, error_kind=kind)
    for agent, hours in _some(rest, 3):
        agent.core_token_budget = 1_000
        for each in (hours, hours + 24):
            at = now - timedelta(hours=each)
            factories.ended(agent, "completed", at=at, stats={"refused_sure": 2})
    for agent, budget in _some(rest, 4):
        agent.core_token_budget = 200 * budget + 200
    for agent, hours in _some(rest, 2):
        for at in (now - timedelta(hours=hours), now - timedelta(hours=hours + 1)):
            factories.ended_task(
                agent, "extraction", "failed", at=at, reason=_UNREACHABLE, error_kind="connection"
            )
    db.session.commit()
    return agents


def _some(agents: Iterator[Agent], count: int) -> Iterator[tuple[Agent, int]]:
    for n in range(1, count + 1):
        yield next(agents), n
