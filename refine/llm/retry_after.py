"""How long a server asks to be left alone.

Source: RFC 9110, sections 5.6.7 and 10.2.3.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from refine import clock

_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
# The form in use, and the two that recipients must still read.
_DATES = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")


def retry_after_seconds(headers: Mapping[str, str], *names: str) -> float | None:
    """Return the seconds that the first of these headers asks for; None if it asks for none.

    A date counts from the server's own ``Date``, so that clocks that differ do no harm. One that is
    past, and whatever else is neither seconds nor a date, asks for nothing.
    """
    given = next((headers[name].strip() for name in names if name in headers), "")
    if _SECONDS.fullmatch(given):  # a figure with decimals is no standard, but used
        return float(given)
    until = _date(given)
    if until is None:
        return None
    seconds = (until - (_date(headers.get("Date", "").strip()) or clock.now())).total_seconds()
    return seconds if seconds > 0 else None


def _date(written: str) -> datetime | None:
    for form in _DATES:
        try:
            return datetime.strptime(written, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return None
