"""How each account stands, and what in it needs somebody."""

from collections import defaultdict
from typing import NamedTuple

from sqlalchemy import func, select, true

from refine import clock
from refine.extensions import db
from refine.models import attention
from refine.models.agent import Agent
from refine.models.agent_list import is_in
from refine.models.people import Account
from refine.rules.causes import CAUSES, LEVELS, cause_in_words
from refine.rules.quantities import plural


class Square(NamedTuple):
    name: str
    slug: str
    agents: int
    running: int
    needs: list[tuple[str, str]]

    @property
    def level(self) -> str:
        return self.needs[0][0] if self.needs else "ok"


def squares(account_id: int | None) -> list[Square]:
    """Return how each account (or this one) stands, worst first."""
    needs: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for id_, cause, number in attention.by_account(account_id):
        level = CAUSES[cause.partition(":")[0]].level
        needs[id_].append((level, f"{plural(number, 'agent')} {cause_in_words(cause)}"))
    mine = true() if account_id is None else Account.id == account_id
    counts = func.count(Agent.id), func.count().filter(is_in("running"))
    is_late = Account.has_late_slot(clock.now())
    columns = Account.id, Account.name, Account.slug, is_late, *counts
    found = select(*columns).outerjoin(Agent).where(mine).group_by(Account.id)
    made = []
    for id_, name, slug, has_late_slot, agents, running in db.session.execute(found):
        late = [("bad", "a slot was missed")] if has_late_slot else []
        made.append(Square(name, slug, agents, running, late + needs[id_]))
    return sorted(made, key=lambda it: (LEVELS.index(it.level), -len(it.needs), it.name))
