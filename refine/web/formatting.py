"""Times, numbers and texts as pages show them; times are in the page's zone."""

from calendar import month_abbr, month_name
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from markupsafe import Markup

from refine import clock
from refine.rules import quantities
from refine.web import scope

# Quicker than strftime.
_MONTHS = list(month_abbr)


def when(at: datetime | None) -> Markup | str:
    """Format an instant in the page's time zone, with UTC in the tooltip."""
    return "never" if at is None else _when(at.astimezone(UTC), scope.zone())


def _when(at: datetime, zone: ZoneInfo) -> Markup:
    """``at`` is in UTC: a local time that comes twice would be taken for the first one."""
    utc = at.isoformat(" ", "seconds")
    return Markup('<time datetime="{}T{}" title="{} UTC">{}</time>').format(
        utc[:10], utc[11:], utc[:19], _minute(at, zone)
    )


def minute(at: datetime) -> str:
    """Format an instant in the page's time zone as plain text, for where no markup can be."""
    return _minute(at, scope.zone())


def _minute(at: datetime, zone: ZoneInfo) -> str:
    local = at.astimezone(zone)
    return f"{calendar_date(local)}, {local.hour:02}:{local.minute:02}"


def when_in(at: datetime, zone: str) -> Markup | str:
    """Format an instant in the given time zone, which the page must name."""
    local = at.astimezone(ZoneInfo(zone))
    return Markup('<time datetime="{}">{}</time>').format(
        at.astimezone(UTC).isoformat(timespec="seconds"),
        f"{local:%a} {local.day} {local:%b %Y, %H:%M}",
    )


def as_of() -> str:
    """Return the time of day in the page's time zone."""
    return f"{clock.now().astimezone(scope.zone()):%H:%M:%S}"


def day(on: datetime | date) -> str:
    """Format a day in the page's time zone."""
    local = on.astimezone(scope.zone()) if isinstance(on, datetime) else on
    return calendar_date(local)


def month(first: date) -> str:
    """Format a month, given by a day of it: "November 2026"."""
    return f"{month_name[first.month]} {first.year}"


def day_tick(at: datetime) -> str:
    """Format a day at the axis of a plot, which is named by its ends."""
    local = at.astimezone(scope.zone())
    return f"{local.day} {_MONTHS[local.month]}"


def calendar_date(on: date) -> str:
    return f"{on.day} {_MONTHS[on.month]} {on.year}"


def ago(at: datetime | None) -> str:
    """Say roughly how long ago an instant was, or in how long it will be; empty for None."""
    return "" if at is None else quantities.ago(clock.now() - at)


def seconds(span: timedelta | None) -> str:
    """Say how long something took: "0.4 s", "12 s", "3 min 20 s", "4 h 5 min"; "" for None."""
    if span is None:
        return ""
    if span >= timedelta(hours=1):
        hours, rest = divmod(span, timedelta(hours=1))
        return f"{hours:,} h {rest // timedelta(minutes=1)} min"
    minutes, seconds = divmod(span.total_seconds(), 60)
    if minutes:
        return f"{minutes:.0f} min {seconds:.0f} s"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - two digits


def number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def spaced(name: str) -> str:
    """Turn an identifier into words: ``worker_lost`` into "worker lost"."""
    return name.replace("_", " ")


def is_about(error: object, *fields: str) -> bool:
    """Tell whether a message is about one of these fields: it then begins with the field's name."""
    return str(error or "").partition(" ")[0] in fields


def with_code(text: str) -> Markup:
    """Return a text as markup: what stands between backticks is code."""
    parts = enumerate(text.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(p) if n % 2 else p for n, p in parts)
