"""An account's past slots, each with the outcome of its sessions."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from refine.models import Account
from refine.models.people.account import SLOT_IS_LATE_AFTER
from refine.models.runs.session import totals
from refine.models.runs.session.totals import SlotTotals
from refine.rules.quantities import rough_span
from refine.rules.schedules import slots_until
from refine.web.charts import OUTCOMES, shares
from refine.web.words import STATUSES

_SHOWN = 10


@dataclass(frozen=True)
class PastSlot:
    """A slot that came; ``is_open``: the clock has not served it in full."""

    at: datetime
    counts: Counter[str]
    first_at: datetime | None
    is_open: bool
    is_late: bool

    @property
    def key(self) -> str:
        """The slot in URLs."""
        return self.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")

    @property
    def sessions(self) -> int:
        return self.counts.total()

    @property
    def parts(self) -> list[tuple[str, float, float]]:
        """The strip: each outcome with its place and its width in percent."""
        return shares([(outcome, self.counts[outcome]) for outcome in OUTCOMES])

    @property
    def words(self) -> str:
        said = [
            f"{self.counts[outcome]:,} {STATUSES[outcome].word}"
            for outcome in OUTCOMES
            if self.counts[outcome]
        ]
        return ", ".join(said) or "no sessions"

    @property
    def remark(self) -> str | None:
        """What is unusual: it is late, was late, or still goes on."""
        if self.is_late:
            return "missed so far: check the clock"
        if self.is_open:
            return "not finished yet"
        delay = self.first_at - self.at if self.first_at is not None else timedelta(0)
        return f"late by {rough_span(delay)}" if delay > SLOT_IS_LATE_AFTER else None


def past_slots(account: Account, at: datetime) -> list[PastSlot]:
    """Return the account's last slots, newest first: by its schedule, and those with sessions."""
    due = slots_until(account.effective_schedule, account.time_zone, at)
    latest = list(islice(due, _SHOWN))
    found: dict[datetime, list[SlotTotals]] = defaultdict(list)
    for each in totals.by_slot(account.id, latest[-1]):
        found[each.slot_at].append(each)
    expected = {slot for slot in latest if slot >= account.created_at}
    newest_first = sorted(expected | found.keys(), reverse=True)[:_SHOWN]
    return [_past_slot(account, slot, found[slot], at) for slot in newest_first]


def _past_slot(account: Account, slot: datetime, found: list[SlotTotals], at: datetime) -> PastSlot:
    counts = Counter({each.status: each.sessions for each in found})
    first_at = min((each.first_at for each in found), default=None)
    is_open = account.next_due_at is not None and account.next_due_at <= slot
    is_late = is_open and not account.paused and at - slot > SLOT_IS_LATE_AFTER
    return PastSlot(slot, counts, first_at, is_open=is_open, is_late=is_late)
