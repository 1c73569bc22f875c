"""What stands in long lists and plots hundreds of times, made at once as markup."""

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal

from flask import g
from flask_wtf.csrf import generate_csrf
from markupsafe import Markup, escape

from refine.rules.quantities import cost_in_words, plural
from refine.web import scope
from refine.web.audit.strip import DayBar
from refine.web.charts import Bar, Moment, Part
from refine.web.formatting import calendar_date
from refine.web.links import url_of
from refine.web.presenting import badge
from refine.web.words import MARKS, STATUSES, UNDONE


def status_badge(name: str, undone_at: datetime | None = None) -> Markup:
    """Return the badge of a session's or task's status, and that it was undone."""
    of_status = badge(STATUSES[name])
    return of_status if undone_at is None else of_status + " " + badge(UNDONE)


def plot_marks(marks: Iterable[tuple[float, float, Moment]]) -> Markup:
    """Return the marks of the plot of an agent's mass, each a link to its session or record.

    At once, because there are many.
    """
    return Markup("\n    ").join(_plot_mark(*mark) for mark in marks)


def _plot_mark(x: float, y: float, moment: Moment) -> Markup:
    at = calendar_date(moment.at.astimezone(scope.zone()))
    said = f"{at}: {MARKS[str(moment.mark)]}, {moment.tokens:,} tokens"
    url = (
        url_of(moment.session_id, "sessions.page")
        if moment.session_id is not None
        else url_of(moment.record_id, "audit.record")
    )
    return Markup(  # noqa: S704 - numbers, ids and words of ours
        f'<a href="{url}" aria-label="{said}"><title>{said}</title>'
        f'<use href="#mark-{moment.mark}" class="m-{moment.mark}" x="{x:g}%" y="{y:g}%"/></a>'
    )


# What the parts of a bar say of themselves, by what they show.
_PARTS_SAY: dict[str, Callable[[Part], str]] = {
    "sessions": lambda part: f"{part.amount} {STATUSES[part.name].word}",
    "tokens": lambda part: f"{part.amount:,}",
    "usd": lambda part: cost_in_words(Decimal(part.amount), 0),
}


def plot_bars(bars: Iterable[Bar], shows: str) -> Markup:
    """Return the bars of a plot; at once, because they have hundreds of parts."""
    say = _PARTS_SAY[shows]
    return Markup(  # noqa: S704 - numbers, dates and words of ours
        "\n    ".join(
            f'<rect class="{"o-" if shows == "sessions" else ""}{part.name}" x="{bar.x}" '
            f'width="{bar.width}" y="{part.y}" height="{part.height}">'
            f"<title>{calendar_date(bar.day)}: {say(part)}</title></rect>"
            for bar in bars
            for part in bar.parts
        )
    )


def day_bars(bars: Iterable[DayBar], url: str, chosen: tuple[date | None, date | None]) -> Markup:
    """Return the days of a strip as list items; at once, because there are many.

    Each leads to ``url`` with its own day; ``chosen`` are the first and last day that are shown.
    """
    return Markup("\n    ").join(_day_bar(bar, escape(url), chosen) for bar in bars)


def _day_bar(bar: DayBar, url: str, chosen: tuple[date | None, date | None]) -> Markup:
    on = calendar_date(bar.day)
    marked = f' class="{bar.css_class}"' if bar.css_class else ""
    current = ' aria-current="date"' if chosen == (bar.day, bar.day) else ""
    month = f"<i>{bar.day:%b}</i>" if bar.css_class else ""
    return Markup(  # noqa: S704 - numbers, dates and an escaped URL
        f'<li{marked}><a href="{url}since={bar.day}&amp;until={bar.day}"'
        f' title="{on}: {bar.records:,}"{current}>'
        '<svg viewBox="0 0 4 100" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="4" height="100"/>'
        f'<rect class="fill" width="4" y="{100 - bar.percent}" height="{bar.percent}"/></svg>'
        f'<small aria-hidden="true">{bar.day.day}{month}</small>'
        f'<span class="hidden">{on}: {plural(bar.records, "record")}</span></a></li>'
    )


def csrf_token() -> str:
    """Return the token of this request's forms; a long list has hundreds of forms."""
    token: str = g.get("csrf_token") or generate_csrf()
    return token


def post_button(  # noqa: PLR0913 - what the macro ``post`` takes
    url: str,
    label: str,
    fields: Mapping[str, object],
    kind: str,
    description: str | None,
    place: str,
    in_place: Markup,
) -> Markup:
    """Return a form that is a single button; at once, because long lists have hundreds."""
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{escape(value)}">'
        for name, value in fields.items()
    )
    described = "" if description is None else f' aria-label="{escape(description)}"'
    return Markup(  # noqa: S704 - what is not markup already is escaped
        f'<form method="post" action="{escape(url)}" id="{escape(url)}{place}" class="inline"'
        f"{in_place}>\n  "
        f'<input type="hidden" name="csrf_token" value="{csrf_token()}">{hidden}\n  '
        f'<button class="{kind}"{described}>{escape(label)}</button></form>'
    )
