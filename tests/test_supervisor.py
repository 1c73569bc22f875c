"""The supervisor: programs run as forks, are started again, and leave nothing behind."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from refine import supervisor
from refine.supervisor import Program, supervise
from tests.commands import eventually, is_alive

pytestmark = pytest.mark.slow

Ask = Callable[[], None]


def rest() -> None:
    time.sleep(60)


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


def fail() -> None:
    sys.exit(3)


def asking(*signals: signal.Signals, after: float = 0.2) -> Ask:
    """Ask this process to stop after so many seconds, by these signals one after another."""
    began, left = time.monotonic(), list(signals)

    def look_in() -> None:
        if left and time.monotonic() - began > after:
            os.kill(os.getpid(), left.pop(0))

    return look_in


def noting(folder: Path, program: Program) -> Program:
    """A program that leaves its pid in the folder first."""

    def run() -> None:
        (folder / str(os.getpid())).touch()
        program()

    return run


def pids_in(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_everything_with_exit_status_0(tmp_path, capfd, number):
    before = signal.signal(number, signal.SIG_IGN)
    programs = dict.fromkeys(("web", "worker"), noting(tmp_path, rest))
    try:
        status = supervise(programs, servers={}, look_in=asking(number))

        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)
    assert status == 0
    assert f"refine: {number.name}: stopping\n" in capfd.readouterr().out
    assert [is_alive(pid) for pid in pids_in(tmp_path)] == [False, False]


@pytest.mark.parametrize(
    ("grace_seconds", "signals"),
    [(0.5, (signal.SIGTERM,)), (60, (signal.SIGINT, signal.SIGINT))],
    ids=["after the grace period", "at a second Ctrl-C"],
)
def test_a_program_that_does_not_stop_is_killed(tmp_path, capfd, grace_seconds, signals):
    programs = {"web": rest, "deaf": noting(tmp_path, ignore_sigterm)}
    if len(signals) > 1:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signals[1]))
        signal.alarm(2)
    began = time.monotonic()

    status = supervise(
        programs, servers={}, grace_seconds=grace_seconds, look_in=asking(signals[0])
    )

    signal.alarm(0)
    assert (status, time.monotonic() - began < 10) == (0, True)
    assert re.search("refine: killing .*deaf\n", capfd.readouterr().out)
    assert [is_alive(pid) for pid in pids_in(tmp_path)] == [False]


def test_a_program_that_cannot_start_stops_everything_with_exit_status_1(tmp_path, capfd):
    programs = {"web": noting(tmp_path, rest), "worker": fail}

    assert supervise(programs, servers={}) == 1

    said = capfd.readouterr().out
    assert "refine: worker ended with exit status 3; stopping everything\n" in said
    assert [is_alive(pid) for pid in pids_in(tmp_path)] == [False]


def test_a_server_that_dies_stops_everything_with_exit_status_1(tmp_path, capfd):
    server = subprocess.Popen(["/bin/sleep", "60"])

    assert supervise({"web": rest}, servers={"valkey": server}, look_in=server.kill) == 1

    assert "refine: embedded valkey was killed by SIGKILL; " in capfd.readouterr().out


def test_a_killed_program_is_started_again_after_a_pause(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(supervisor, "_PAUSE_SECONDS", 0.25)
    monkeypatch.setattr(supervisor, "_WAKE_SECONDS", 0.05)
    others, killed = tmp_path / "others", tmp_path / "killed"
    others.mkdir()
    killed.mkdir()

    def look_in() -> None:
        if len(pids_in(killed)) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    programs = {"web": noting(others, rest), "worker": noting(killed, be_killed)}
    status = supervise(programs, servers={}, look_in=look_in)

    said = capfd.readouterr().out
    assert status == 0
    assert "refine: worker was killed by SIGKILL; starting it again in 0.25 s\n" in said
    assert len(pids_in(others)) == 1


def test_processes_left_in_its_group_end_with_a_program(tmp_path):
    def leave_one() -> None:
        left = subprocess.Popen(["/bin/sleep", "61"])
        (tmp_path / str(left.pid)).touch()
        be_killed()

    def look_in() -> None:
        if pids_in(tmp_path) and not is_alive(pids_in(tmp_path)[0]):
            os.kill(os.getpid(), signal.SIGTERM)

    assert supervise({"worker": leave_one}, servers={}, look_in=look_in) == 0


def test_a_killed_supervisor_leaves_nothing_running(tmp_path):
    if (pid := os.fork()) == 0:
        supervise({"web": noting(tmp_path, rest)}, servers={})
        os._exit(0)
    eventually(lambda: pids_in(tmp_path))

    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

    eventually(lambda: not is_alive(pids_in(tmp_path)[0]), seconds=5)
