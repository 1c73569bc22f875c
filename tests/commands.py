"""The command `refine`, run as a person or an init system runs it: a process of its own."""

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import pytest

from refine.cli import main

REFINE = str(Path(sys.executable).parent / "refine")
UNUSED_PORT = 1


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment of its own."""
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **variables}


def refine_here(
    *arguments: str | bytes,
    environ: Mapping[str, str],
    stdin: str | bytes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> "subprocess.CompletedProcess[str]":
    """Run a command in this process, as its entry point does."""
    with monkeypatch.context() as patch:
        own = environment(environ)
        for name in set(os.environ) - set(own):
            patch.delenv(name)
        for name, value in own.items():
            patch.setenv(name, value)
        given = stdin.encode() if isinstance(stdin, str) else stdin
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8"))
        with pytest.raises(SystemExit) as ending:
            main([os.fsdecode(argument) for argument in arguments])
    said = capsys.readouterr()
    code = ending.value.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code, said.out, said.err)


def refine_anew(
    *arguments: str | bytes,
    environ: Mapping[str, str],
    stdin: str | bytes = "",
    seconds: float = 60,
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, loaded anew."""
    done = subprocess.run(
        [REFINE, *arguments],
        env=environment(environ),
        cwd="/",
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=seconds,
        check=False,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def start(
    *arguments: str,
    environ: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[str] = subprocess.PIPE,
) -> "subprocess.Popen[str]":
    """Start a command and leave it running, in a process group of its own."""
    return subprocess.Popen(
        [REFINE, *arguments],
        env=environment(environ),
        cwd="/",
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def eventually(true: Callable[[], object], *, seconds: float = 60) -> None:
    """Pass as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "still not so"
        time.sleep(0.02)


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that still live."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


def waits_for_input(pid: int) -> bool:
    """Whether a process reads from its standard input; only root may look, others guess."""
    try:
        call = Path(f"/proc/{pid}/syscall").read_text().split()
        waits_for = Path(f"/proc/{pid}/wchan").read_text()
    except PermissionError:
        return all(_sleeps(pid) for _ in range(20))
    return "pipe" in waits_for and call[1:2] == ["0x0"]


def _sleeps(pid: int) -> bool:
    time.sleep(0.02)
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
