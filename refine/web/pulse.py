"""The last day of the clock and of the queue, as lines."""

from datetime import datetime, timedelta
from typing import NamedTuple

from refine.health import QUEUE_IS_LATE_AFTER, TICK_IS_LATE_AFTER
from refine.models.runs.pulse import KEPT_FOR, Span, spans
from refine.rules.quantities import in_hours, plural, rough_span


class Line(NamedTuple):
    """A figure over the last day: its values (None is a gap), its limit, and its words."""

    name: str
    values: list[int | None]
    limit: float | None
    most: str

    @property
    def label(self) -> str:
        """What screen readers say of the line."""
        return f"{self.name} over the last {in_hours(KEPT_FOR)}: {self.most}"


def lines(at: datetime, *, of_installation: bool) -> list[Line]:
    """Return the lines that have data; queue and workers only for the whole installation."""
    found = spans(at)
    if not any(found):
        return []
    drawn = [_span_line("Time between ticks", _pauses(found, at), TICK_IS_LATE_AFTER)]
    if of_installation:
        drawn += [
            _count_line("Waiting for a worker", [span and span.waiting for span in found], "run"),
            _span_line(
                "Longest wait",
                [span and span.waiting_seconds for span in found],
                QUEUE_IS_LATE_AFTER,
            ),
            _workers([span and span.workers for span in found]),
        ]
    return drawn


def _pauses(found: list[Span | None], at: datetime) -> list[int | None]:
    """The pauses between ticks; the last one goes on until now."""
    pauses = [span and span.pause_seconds for span in found]
    last_at = max(span.last_at for span in found if span is not None)
    pauses[-1] = max(pauses[-1] or 0, int((at - last_at).total_seconds()))
    return pauses


def _span_line(name: str, values: list[int | None], late_after: timedelta) -> Line:
    highest = max(value for value in values if value is not None)
    is_near = highest * 2 > late_after.total_seconds()
    limit = late_after.total_seconds() if is_near else None
    return Line(name, values, limit, f"at most {rough_span(timedelta(seconds=highest))}")


def _count_line(name: str, values: list[int | None], noun: str) -> Line:
    highest = max(value for value in values if value is not None)
    return Line(name, values, None, f"at most {plural(highest, noun)}")


def _workers(values: list[int | None]) -> Line:
    known = [value for value in values if value is not None] or [0]
    said = plural(max(known), "worker")
    if min(known) < max(known):
        said = f"{min(known):,} to {said}"
    return Line("Workers", values, None, said)
