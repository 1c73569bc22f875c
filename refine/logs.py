"""Logging: one line per event with ids and figures, never content."""

import logging
import sys
import traceback
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

# The logger of the line for each run that has ended.
ENDED_RUNS = "refine.ended_runs"

_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure(level: str) -> None:
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    names = ("rq", "rq_scheduler", "alembic", "sqlalchemy", "opentelemetry")
    # the messages of the web server quote paths, and what was sent
    libraries = [*((name, "WARNING") for name in names), ("waitress", "CRITICAL")]
    for name, its_level in [("refine", level), *libraries]:
        log = logging.getLogger(name)
        log.setLevel(its_level)
        log.propagate = False
        log.handlers = [_handler()]
    logging.getLogger(ENDED_RUNS).setLevel(logging.NOTSET)


def quieten() -> None:
    """For commands, which themselves say how the run that they began has ended."""
    log = logging.getLogger("refine")
    if log.level == logging.INFO:
        log.setLevel(logging.WARNING)
        logging.getLogger(ENDED_RUNS).setLevel(logging.CRITICAL)


def _handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _without_messages,
                *_renderer(),
            ],
        )
    )
    return handler


def _without_messages(_log: Any, _method: str, event: EventDict) -> EventDict:
    """Log an exception as its class and stack: its message or local values may quote content."""
    given = event.pop("exc_info", None)
    error = given[1] if isinstance(given, tuple) else given
    error = sys.exception() if error is True else error
    if isinstance(error, BaseException):
        stack = "".join(traceback.format_tb(error.__traceback__))
        event["exception"] = f"{stack}{type(error).__name__}"
    return event


def _most_important_first(_log: Any, _method: str, event: EventDict) -> EventDict:
    first = {key: event[key] for key in ("timestamp", "level", "event") if key in event}
    return {**first, **event}


def _renderer() -> list[Any]:
    if sys.stderr.isatty():
        return [structlog.dev.ConsoleRenderer()]
    return [
        _most_important_first,
        structlog.processors.JSONRenderer(),
    ]
