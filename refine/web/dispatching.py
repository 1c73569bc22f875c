"""Handing waiting runs to the workers from a page."""

from flask import flash

from refine.errors import Unreachable
from refine.jobs.dispatch import dispatch


def dispatch_or_say() -> None:
    """Dispatch what waits, and commit; say so if the job queue is away: the runs stay queued."""
    try:
        dispatch()
    except Unreachable:
        flash(
            "The job queue is unreachable; queued sessions will start automatically once it is "
            "back.",
            "error",
        )
