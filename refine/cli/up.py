"""Starts everything: servers, migrations, a first admin, a demo account, the processes."""

import gc
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import click
import requests
from sqlalchemy import select

from refine import application, create_app, demo
from refine.cli.upgrading import upgrade_database
from refine.cli.web import web_programs
from refine.embedded import kept_secret, owned_servers
from refine.errors import AlreadyRunning
from refine.extensions import db
from refine.models import Account, User, schema_version
from refine.places import ROOT
from refine.serving import bound_sockets
from refine.settings import Settings
from refine.supervisor import supervise

_HOST = "127.0.0.1"
_FIRST_ADMIN = "admin@localhost"
_PASSWORD_FILE = Path("first_admin_password")
_ADDRESS_FILE = Path("address")
_READY_SECONDS = 60
_COMMANDS = ("worker", "clock")


@click.command()
def up() -> int:
    """Start PostgreSQL, Valkey, web, worker and clock; stop them with Ctrl-C.

    Without DATABASE_URL or REDIS_URL, the bundled server is used, with its data in .refine/ (or
    REFINE_DATA_DIR). The first start creates an admin and, in an empty database, a demo account.
    """
    os.environ.setdefault("WEB_CONCURRENCY", "1")  # for the sake of memory
    os.environ["HOST"] = _HOST
    settings = Settings.from_environ()
    try:
        with owned_servers(
            settings.data_dir, postgres=settings.embedded_postgres, valkey=settings.embedded_valkey
        ) as servers:
            sockets = bound_sockets(settings.host, settings.port)
            sign_in = _prepare(settings)
            (settings.data_dir / _ADDRESS_FILE).write_text(settings.public_url)
            application.build_for_forks(settings)
            os.environ.update(REFINE_DATA_DIR=str(settings.data_dir), PORT=str(settings.port))
            os.chdir(ROOT)
            gc.freeze()
            announce = partial(next, _announcing(settings, sign_in), None)
            programs = dict(web_programs(create_app(settings), sockets))
            programs |= {name: partial(_run_command, name, sockets) for name in _COMMANDS}
            return supervise(programs, servers=servers, look_in=announce)
    except AlreadyRunning as running:
        kept = settings.data_dir / _ADDRESS_FILE
        url = f"; it answers at {kept.read_text()}" if kept.is_file() else ""
        raise click.ClickException(f"{running}{url}") from None


def _prepare(settings: Settings) -> str:
    app = create_app(settings.as_table_owner())
    with app.app_context():
        with schema_version.upgrading():  # two that start at once make one admin
            upgrade_database()
            demo.load_into_empty_database()
            sign_in = _first_admin(settings)
            db.session.commit()
        db.engine.dispose()
    return sign_in


def _first_admin(settings: Settings) -> str:
    if db.session.scalar(select(User.id).limit(1)) is None:
        new_password = partial(secrets.token_urlsafe, 12)
        password = kept_secret(settings.data_dir, _PASSWORD_FILE.name, new_password)
        account = db.session.scalars(select(Account).order_by(Account.id).limit(1)).one()
        User.register(account, _FIRST_ADMIN, password, site_admin=True, by="first start")
    admin = User.by_email(_FIRST_ADMIN)
    kept = settings.data_dir / _PASSWORD_FILE
    password = kept.read_text().strip() if kept.is_file() else ""
    if admin is not None and admin.has_password(password):
        return f"sign in as {_FIRST_ADMIN} with the password {password}"
    return "sign in with your e-mail and password"


def _run_command(name: str, sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()  # else the port would be taken for as long as this process lives
    # the whole command: it logs, and reports faults, as it does by itself
    sys.argv = ["refine", name]
    import_module("refine.cli").main()


def _announcing(settings: Settings, sign_in: str) -> Iterator[None]:
    deadline = time.monotonic() + _READY_SECONDS
    while not _is_ready(settings.port):
        if time.monotonic() > deadline:
            said = f"refine is not ready after {_READY_SECONDS} s; see the output above"
            click.echo(said, err=True)
            return
        yield
    click.echo(f"refine is ready: {settings.public_url} - {sign_in}")


def _is_ready(port: int) -> bool:
    try:
        prefix = os.environ.get("SCRIPT_NAME", "")
        answer = requests.get(f"http://{_HOST}:{port}{prefix}/readyz", timeout=2)
        return answer.ok and answer.json()["clock"] == "ok"
    except requests.RequestException:
        return False
