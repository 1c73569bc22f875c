"""An agent's story: its token mass over time, how fast it grows, and what its memories are like."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from flask import request

from refine.models import Agent
from refine.models.ledger.history import NOTABLE, Mass, masses
from refine.models.ledger.ledger import Composition
from refine.models.runs.session.totals import Left, left_by_sessions
from refine.rules.growth import Growth
from refine.web import scope
from refine.web.charts import Moment, Plot, step_plot

# What the URL's ``range`` may be, in days; None: since the agent was added.
RANGES = {"7": 7, "30": 30, "90": 90, "all": None}
DEFAULT_RANGE = "30"

_EVENTS_SHOWN = 10
_SAVES = ("memory_saved", "memory_promoted")
_MARKS = {
    **dict.fromkeys(NOTABLE, "hand"),
    **dict.fromkeys(_SAVES, "save"),
    "memory_refinement_rollback": "undo",
    "memory_imported": "import",
}


@dataclass(frozen=True)
class Story:
    """What the page tells of an agent in the range that the URL asks for."""

    range: str
    growth: Growth
    moments: list[Moment]
    composition: Composition

    @classmethod
    def of_page(cls, agent: Agent, at: datetime) -> "Story":
        """Read it, in a few statements, however long it is."""
        chosen = request.args.get("range", DEFAULT_RANGE)
        chosen = chosen if chosen in RANGES else DEFAULT_RANGE
        days = RANGES[chosen]
        since = agent.created_at
        if days is not None:
            since = max(since, at - timedelta(days=days))
        composition, found = agent.ledger.composition(at), masses(agent.id, since, at)
        removed, left = left_by_sessions(agent.id, since)
        tokens = composition.core_tokens
        before = found[0].tokens if found else tokens
        growth = Growth(since, at, before, tokens, removed, agent.core_token_budget)
        return cls(chosen, growth, _moments(found, left), composition)

    @cached_property
    def events(self) -> list[Moment]:
        """The last events, newest first."""
        marked = [moment for moment in self.moments if moment.mark is not None]
        return marked[: -_EVENTS_SHOWN - 1 : -1]

    def plot(self, floor: int) -> Plot | None:
        """Draw the token mass up to now, with the budget and what a session must leave."""
        if not self.moments:
            return None
        until, tokens = self.growth.until.astimezone(scope.zone()), self.growth.tokens
        now = Moment(self.growth.until, tokens)
        return step_plot([*self.moments, now], self.growth.budget, until, floor)


def _moments(found: list[Mass], left: list[Left]) -> list[Moment]:
    """Return both as moments, oldest first; the first one says where the line begins."""
    ends = [
        Moment(each.ended_at, each.tokens, "session", each.session_id)
        for each in left
        if each.is_kept
    ]
    told = [
        Moment(mass.at, mass.tokens, _MARKS.get(mass.action), mass.session_id, mass.record_id)
        for mass in found
    ]
    return [*told[:1], *sorted([*told[1:], *ends], key=lambda moment: moment.at)]
