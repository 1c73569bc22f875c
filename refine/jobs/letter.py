"""The weekly letter of an account: what its agents were asked and did, and what needs somebody."""

from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from flask import current_app

from refine import clock, settings
from refine.extensions import db
from refine.models import Account
from refine.models.agent_list import squares
from refine.models.runs.session import totals
from refine.models.runs.session.session import CONSENTED_ENDS, ENDED
from refine.models.runs.spending import Used, used_by, with_total
from refine.rules.quantities import cost_in_words

WEEK = timedelta(days=7)
_MOST_NEEDS = 3


@dataclass(frozen=True)
class Letter:
    """``needs``: at most three lines, as things are now."""

    account: Account
    monday: date
    asked: int
    agreed: int
    declined: int
    used: Used
    needs: list[str]

    @classmethod
    def of(cls, account: Account, on: date | None = None) -> "Letter":
        """Return the letter for the week of that day; by default, for the last full one."""
        zone = ZoneInfo(account.time_zone)
        today = clock.now().astimezone(zone).date()
        on = min(on or today - WEEK, today)
        monday = on - timedelta(days=on.weekday())
        days = totals.by_day(account.id, account.time_zone, datetime.combine(monday, time(), zone))
        outcomes = Counter[str]()
        for each in days:
            outcomes[each.status] += each.sessions if each.day < monday + WEEK else 0
        used = with_total(used_by("month", monday, monday + WEEK, account.id).cte())
        needs = [text for level, text in squares(account.id)[0].needs if level != "calm"]
        return cls(
            account,
            monday,
            asked=sum(outcomes[each] for each in ENDED if each != "skipped"),
            agreed=sum(outcomes[each] for each in CONSENTED_ENDS),
            declined=outcomes["declined"],
            used=Used.total_of(db.session.execute(used).all()),
            needs=needs[:_MOST_NEEDS],
        )

    @property
    def sunday(self) -> date:
        return self.monday + WEEK - timedelta(days=1)

    @property
    def spent(self) -> str:
        return cost_in_words(self.used.cost_usd, self.used.unpriced_calls)

    @property
    def link(self) -> str:
        return f"{settings.current().public_url}/?account={self.account.slug}"

    @property
    def text(self) -> str:
        return current_app.jinja_env.get_template("letter/letter.txt").render(letter=self)
