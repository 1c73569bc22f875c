"""Helper processes, and queries about processes."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import psycopg
import pytest

from refine.embedded import database_url

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]


class Script(subprocess.Popen[str]):
    """A helper process that runs until its standard input ends."""

    stdin: IO[str] | None
    stdout: IO[str]

    def __init__(self, name: str, arguments: tuple[object, ...], prefix: tuple[str, ...]) -> None:
        super().__init__(
            [*prefix, sys.executable, str(_HERE / "script.py"), name, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def said(self, text: str) -> str:
        """Return the first line with this text; fail with all lines if there is none in 15 s."""
        lines = []
        timeout = threading.Timer(15, super().kill)
        timeout.start()
        for line in self.stdout:
            lines.append(line)
            if text in line:
                timeout.cancel()
                return line
        timeout.cancel()
        pytest.fail(f"no {text!r} in: {''.join(lines)}")

    def end(self) -> tuple[int, str]:
        """End its input; return its exit status and the rest of its output."""
        rest, _ = self.communicate(timeout=30)
        return self.returncode, rest

    def release(self) -> None:
        """End its input without waiting."""
        if self.stdin:
            self.stdin.close()
        self.stdin = None

    def kill(self) -> None:
        super().kill()
        self.communicate()


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of all other processes that name the folder."""
    return [
        (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        for process in Path("/proc").glob("[0-9]*")
        if int(process.name) != os.getpid() and _names(process, os.fsencode(folder))
    ]


def _names(process: Path, folder: bytes) -> bool:
    try:
        arguments = (process / "cmdline").read_bytes()
        return folder in arguments or folder in (process / "environ").read_bytes()
    except OSError:
        return False


def sql(data_dir: Path, statement: str) -> list[tuple[object, ...]]:
    """Run and commit one statement on a new connection; return its rows."""
    address = database_url(data_dir).replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []
