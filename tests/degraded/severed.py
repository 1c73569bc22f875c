"""A network to PostgreSQL that is severed while nobody says so, as when a host loses its power.

Run as a program, in a network of its own: ``unshare --net python -m tests.degraded.severed``. There
a relay leads from TCP to the server's socket, until the network is switched off.
"""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from threading import Thread
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from refine import create_app
from refine.database_errors import database_trouble
from refine.extensions import db
from refine.settings import Settings

_IN_ITS_OWN_NETWORK = ("unshare", "--net")
_PORT = 5432
_LONGEST_SECONDS = 120


class Found(NamedTuple):
    """What a statement met: after how many seconds, and whether the next one reached the server."""

    trouble: str | None
    seconds: float
    is_back: bool


def is_possible() -> bool:
    """Tell whether this user may have a network of their own."""
    with suppress(OSError):
        tried = subprocess.run([*_IN_ITS_OWN_NETWORK, "true"], capture_output=True, check=False)
        return tried.returncode == 0
    return False


def measure(environ: dict[str, str]) -> Found:
    """Sever the network to the server of this installation, in the middle of a transaction."""
    command = [*_IN_ITS_OWN_NETWORK, sys.executable, "-m", "tests.degraded.severed"]
    done = subprocess.run(
        command,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        timeout=_LONGEST_SECONDS,
        check=True,
    )
    return Found(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print what was found, as a line of JSON."""
    _switch("up")
    url = make_url(os.environ["DATABASE_URL"])
    Thread(target=_relay, args=(f"{url.query['host']}/.s.PGSQL.{_PORT}",), daemon=True).start()
    by_tcp = url.set(query={}, host="127.0.0.1", port=_PORT)
    settings = {"DATABASE_URL": by_tcp.render_as_string(hide_password=False)}
    with create_app(Settings.from_environ({**os.environ, **settings})).app_context():
        db.session.execute(text("SELECT 1"))
        _switch("down")
        begun = time.monotonic()
        try:
            db.session.execute(text("SELECT 2"))
            trouble = None
        except DBAPIError as fault:
            trouble = database_trouble(fault)
        seconds = time.monotonic() - begun
        db.session.rollback()
        _switch("up")
        is_back = db.session.scalar(text("SELECT 3")) == 3
        print(json.dumps(Found(trouble, seconds, is_back)._asdict()))


def _switch(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


def _relay(server: str) -> None:
    with socket.create_server(("127.0.0.1", _PORT)) as listening:
        while True:
            client, _ = listening.accept()
            behind = socket.socket(socket.AF_UNIX)
            behind.connect(server)
            for ends in ((client, behind), (behind, client)):
                Thread(target=_pass_on, args=ends, daemon=True).start()


def _pass_on(sender: socket.socket, receiver: socket.socket) -> None:
    with suppress(OSError):
        while sent := sender.recv(1 << 16):
            receiver.sendall(sent)


if __name__ == "__main__":
    main()
