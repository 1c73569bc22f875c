"""Logging: one line an event, ids and figures, never content."""

import logging
import sys

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def configure(level: str) -> None:
    """Send the application's log to standard error at ``level``; libraries stay at WARNING."""
    log = logging.getLogger("refine")
    log.setLevel(level)
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(_FORMAT))
        log.addHandler(handler)
        log.propagate = False
