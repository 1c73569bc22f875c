"""The web processes."""

import gc
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import click
import structlog
from flask import Flask
from sqlalchemy.exc import DBAPIError

from refine import request_log, serving, settings, telemetry
from refine.cli.context import application
from refine.extensions import db
from refine.models import WrappedKey
from refine.settings import Settings
from refine.supervisor import Program, supervise

_log = structlog.get_logger(__name__)


@click.command()
def web() -> int:
    """Serve pages and API until SIGTERM; what is being answered then is finished.

    WEB_CONCURRENCY processes share the port PORT of HOST (without it, of all addresses).
    """
    with application("web", check_keys=False, is_service=True) as app:
        own = settings.current()
        sockets = serving.bound_sockets(own.host, own.port)
        _log.info("listening", port=own.port)
        with suppress(DBAPIError):  # /readyz tells of a database that is away
            WrappedKey.check_keyring()
        db.session.remove()
        db.engine.dispose()  # no connection may be used by two processes
        gc.freeze()
        grace_seconds = serving.STOP_SECONDS + 1
        return supervise(web_programs(app, sockets), servers={}, grace_seconds=grace_seconds)


def web_programs(app: Flask, sockets: list[socket.socket]) -> Mapping[str, Program]:
    """Return the web processes, by name."""
    processes = app.extensions["refine.settings"].web_concurrency
    if processes == 1:
        return {"web": partial(_serve, app, sockets, 0)}
    return {
        f"web-{number + 1}": partial(_serve, app, sockets, number) for number in range(processes)
    }


def _serve(app: Flask, sockets: list[socket.socket], number: int) -> None:
    own: Settings = app.extensions["refine.settings"]
    request_log.durations(app).process = number
    with telemetry.exporting(own.otel_exporter_otlp_endpoint, "web"):
        serving.serve(app, sockets, own.script_name)
