"""What a year with any simulated model must show."""

from collections.abc import Iterator, Sequence

from bench.survival import Week

# At least this share of the originals keeps half of its words in one memory.
ORIGINALS_SHARE = 0.95
# The careful model removes at least this share of the planted duplicates …
DUPLICATES_SHARE = 0.95
# … and at most so many of its merges are refused.
REFUSED_SHARE = 0.01
# No agent keeps less of its token mass over thirty days.
MONTH_SHARE = 0.5


def broken_promises(weeks: Sequence[Week], *, is_hostile: bool) -> list[str]:
    """Return what the weeks of one model break, in words; an empty list if all is well."""
    kind = _broken_by_hostile if is_hostile else _broken_by_careful
    return [*_broken_by_any(weeks), *kind(weeks)]


def _broken_by_any(weeks: Sequence[Week]) -> Iterator[str]:
    last = weeks[-1]
    if lost := max(week.details - week.details_left for week in weeks):
        yield f"{lost:,} of {last.details:,} details lost"
    lowest = min(week.lowest_month for week in weeks)
    if lowest < MONTH_SHARE:
        yield f"an agent kept {lowest:.0%} of its tokens over 30 days"
    if last.failed:
        yield f"{last.failed:,} sessions failed"


def _broken_by_hostile(weeks: Sequence[Week]) -> Iterator[str]:
    lowest = min(week.originals_left / week.originals for week in weeks)
    if lowest < ORIGINALS_SHARE:
        yield f"{lowest:.1%} of originals left"


def _broken_by_careful(weeks: Sequence[Week]) -> Iterator[str]:
    last = weeks[-1]
    if lost := max(week.originals - week.originals_left for week in weeks):
        yield f"{lost:,} of {last.originals:,} originals lost"
    if last.duplicates_gone < DUPLICATES_SHARE * last.duplicates:
        yield f"{last.duplicates_gone:,} of {last.duplicates:,} duplicates removed"
    if last.merges_refused > REFUSED_SHARE * last.merges:
        yield f"{last.merges_refused:,} of {last.merges:,} merges refused"
