"""The installation that the storm passes over: accounts, their admins, agents and tokens."""

from dataclasses import dataclass, field

from refine.extensions import db
from refine.models import AgentMemory, ApiToken
from tests import factories
from tests.factories import PASSWORD

ACCOUNTS = 2
# Agents so full that the clock's check of budgets asks each of them for a session.
_OVER_BUDGET = 3
_MEMORIES, _LOCKED = 14, 2


@dataclass(frozen=True)
class Tenant:
    """One agent: its token, and ids of memories that are constitutional and stay so, or not."""

    agent_id: int
    token: str = field(repr=False)
    account: int
    locked: dict[int, str] = field(repr=False)
    toggled_id: int
    is_over_budget: bool


@dataclass(frozen=True)
class World:
    """All agents, and the e-mail address of each account's admin (``PASSWORD``)."""

    tenants: tuple[Tenant, ...]
    admins: tuple[str, ...]
    account_ids: tuple[int, ...]
    password: str = PASSWORD


def build(agents: int, schedule: str) -> World:
    """Add accounts with this schedule, and so many agents, and commit."""
    accounts = [factories.account(schedule=schedule) for _ in range(ACCOUNTS)]
    admins = [factories.user(account=account) for account in accounts]
    tenants = tuple(_tenant(accounts, number) for number in range(agents))
    db.session.commit()
    return World(tenants, tuple(admin.email for admin in admins), tuple(a.id for a in accounts))


def _tenant(accounts: list, number: int) -> Tenant:  # type: ignore[type-arg]
    place, is_over = number % ACCOUNTS, number % _OVER_BUDGET == 0
    agent = factories.agent(
        account=accounts[place],
        model_id=f"chaos/agent-{number}",
        core_token_budget=100 if is_over else 100_000,
        refinement_threshold=0.5,
    )
    free = factories.ledger(agent, *[20] * _MEMORIES)
    factories.memory(agent, free[0].content)  # an exact duplicate, removed before the question
    locked = factories.ledger(agent, *[20] * _LOCKED, constitutional=True)
    _, token = ApiToken.mint(account=agent.account, agent=agent)
    contents = {memory.id: memory.content for memory in locked}
    return Tenant(agent.id, token, place, contents, _toggled(free).id, is_over)


def _toggled(free: list[AgentMemory]) -> AgentMemory:
    return free[-1]
