"""What a page says of a sweep that it began; handing the runs that wait to the workers."""

from collections import Counter

from flask import flash

from refine.jobs.dispatch import REDIS_AWAY, dispatch_if_possible
from refine.jobs.sweeping import SweepBatch
from refine.models.runs.sweep import Work
from refine.rules.quantities import plural
from refine.web.agents import BULK_ACTIONS


def in_words(work: Work, *batches: SweepBatch) -> str:
    """Return for how many agents it was done, for how many not and why, and how many still wait."""
    outcomes = [each for batch in batches for each in batch.outcomes]
    waiting = sum(batch.waiting for batch in batches)
    done = sum(each.is_done for each in outcomes)
    others = Counter(each.outcome for each in outcomes if not each.is_done)
    return "".join(
        [
            f"{plural(done, 'agent')} {BULK_ACTIONS[work].done}",
            *(f"; {plural(count, 'agent')} skipped: {why}" for why, count in others.most_common()),
            f". The clock continues with the other {plural(waiting, 'agent')}." if waiting else ".",
        ]
    )


def dispatch_or_say() -> None:
    """Dispatch what waits, and commit; say so if Redis is unreachable: the runs stay queued."""
    if not dispatch_if_possible():
        flash(REDIS_AWAY, "error")
