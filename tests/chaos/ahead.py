"""Starts one process of Refine whose clock is off by so many seconds: tests/chaos/ahead.py.

``python -m tests.chaos.ahead SECONDS worker|clock|web …``. Everything in it that asks
``refine.clock`` the time is told the wrong one, in its forks too; PostgreSQL's clock is right.
"""

import sys
from datetime import timedelta

from refine import clock


def main(seconds: str, name: str, *arguments: str) -> None:
    """Run the process until it ends."""
    with clock.ahead(timedelta(seconds=float(seconds))):
        if name == "web":
            _serve(arguments)
        else:
            _run(name, arguments)


def _serve(arguments: tuple[str, ...]) -> None:
    from gunicorn.app.wsgiapp import run  # noqa: PLC0415 - no other process needs it

    sys.argv = ["gunicorn", "app:app", *arguments]
    run()


def _run(name: str, arguments: tuple[str, ...]) -> None:
    from refine.cli import main as refine  # noqa: PLC0415 - the web process needs none of it

    refine([name, *arguments])


if __name__ == "__main__":
    main(*sys.argv[1:])
