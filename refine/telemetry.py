"""Spans for OpenTelemetry, sent where OTEL_EXPORTER_OTLP_ENDPOINT leads; never content.

Names and attributes follow its conventions. Without the setting, its packages are not imported.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from flask import (
    Flask,
    Response,
    request,
    request_finished,
    request_started,
    request_tearing_down,
)
from sqlalchemy import event
from sqlalchemy.engine import Engine

from refine import __version__
from refine.errors import SettingsError
from refine.request_log import asked

Attributes = Mapping[str, str | int]

# By actions and tools.
MEMORY_OPERATIONS = {
    **dict.fromkeys(("search", "search_memories"), "search_memory"),
    **dict.fromkeys(("save_memory", "save_to_journal"), "create_memory"),
    **dict.fromkeys(("consolidate", "update", "protect", "correct_memory"), "update_memory"),
    **dict.fromkeys(("delete", "forget_memory"), "delete_memory"),
    "promote": "upsert_memory",
}
_STATEMENT_CHARACTERS = 2_000
_SPAN = "refine.span"

is_on = False
_trace: Any = None
_tracer: Any = None


@contextmanager
def exporting(endpoint: str | None, process: str) -> Iterator[None]:
    """Send this process's spans until the block ends; begin it after a fork."""
    global is_on, _trace, _tracer  # noqa: PLW0603 - a process has one exporter
    if endpoint is None:
        yield
        return
    try:
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http import trace_exporter  # noqa: PLC0415
        from opentelemetry.sdk import resources, trace as sdk  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError:
        raise SettingsError(
            "OTEL_EXPORTER_OTLP_ENDPOINT needs more packages: pip install 'refine[telemetry]'"
        ) from None
    own = {"service.name": "refine", "service.version": __version__, "refine.process": process}
    resource = resources.Resource(own).merge(resources.OTELResourceDetector().detect())
    provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = trace_exporter.OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _trace, _tracer = trace, provider.get_tracer("refine", __version__)
    with _listening():
        is_on = True
        try:
            yield
        finally:
            is_on = False
            provider.shutdown()


@contextmanager
def span(name: str, attributes: Attributes, *, is_server: bool = False) -> Iterator[None]:
    """Show what happens in the block, while ``is_on``; of a fault, its class is shown."""
    kind = _trace.SpanKind.SERVER if is_server else _trace.SpanKind.INTERNAL
    with _tracer.start_as_current_span(
        name,
        kind=kind,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as shown:
        try:
            yield
        except BaseException as fault:
            shown.set_status(_trace.StatusCode.ERROR)
            shown.set_attribute("error.type", type(fault).__name__)
            raise


def note(attributes: Attributes) -> None:
    """Add to the current span."""
    _trace.get_current_span().set_attributes(attributes)


def memory_operation(tool: str, action: object = None) -> str:
    """Return the convention's name for a tool call; the action may be anything."""
    is_known = isinstance(action, str) and action in MEMORY_OPERATIONS
    return MEMORY_OPERATIONS.get(str(action) if is_known else tool, "execute_tool")


# -- requests, and statements of what is shown -----------------------------------------------------


@contextmanager
def _listening() -> Iterator[None]:
    events = (("before_cursor_execute", _note_beginning), ("after_cursor_execute", _show_statement))
    for name, listener in events:
        event.listen(Engine, name, listener)
    with (
        request_started.connected_to(_begin_request),
        request_finished.connected_to(_note_answer),
        request_tearing_down.connected_to(_end_request),
    ):
        yield
    for name, listener in events:
        event.remove(Engine, name, listener)


def _begin_request(_app: Flask, **_: Any) -> None:
    method, route = asked()
    attributes = {"http.request.method": method, "http.route": route}
    request.environ[_SPAN] = stack = ExitStack()
    stack.enter_context(span(f"{method} {route}", attributes, is_server=True))


def _note_answer(_app: Flask, response: Response, **_: Any) -> None:
    note({"http.response.status_code": response.status_code})


def _end_request(_app: Flask, **_: Any) -> None:
    request.environ.pop(_SPAN, ExitStack()).close()


def _note_beginning(_connection: Any, _cursor: Any, *sent: Any) -> None:
    sent[-2]._refine_began = time.time_ns()


def _show_statement(_connection: Any, _cursor: Any, statement: str, *sent: Any) -> None:
    began = getattr(sent[-2], "_refine_began", None)
    if began is None or not _trace.get_current_span().is_recording():
        return
    operation = statement.split(maxsplit=1)[0].upper()
    attributes = {
        "db.system.name": "postgresql",
        "db.operation.name": operation,
        "db.query.text": statement[:_STATEMENT_CHARACTERS],
    }
    kind = _trace.SpanKind.CLIENT
    _tracer.start_span(operation, kind=kind, attributes=attributes, start_time=began).end()
