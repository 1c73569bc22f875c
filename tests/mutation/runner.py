"""Runs the tests that reach a mutant's line, each mutant in a fork of one prepared process."""

import gc
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FunctionType

import pytest

from refine.extensions import db
from tests.mutation.mutants import Mutant

# The tests of one mutant stop after this long.
SECONDS_EACH = 45.0
# A fork that takes this much longer than its tests may hangs, which a test would notice.
HANGS_AFTER_SECONDS = 60.0

_KILLED, _SURVIVED, _FAULTY, _OUT_OF_TIME = 1, 0, 3, 4


class MutantRunner:
    """A pytest plugin: instead of running the tests, it runs them against each mutant."""

    def __init__(self, mutants: Sequence[tuple[Mutant, list[str]]]) -> None:
        self.outcomes: list[tuple[str, str, int]] = []
        self._mutants = mutants
        self._has_failed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        self._prepare(session)
        self._check_control(session.items[:: max(1, len(session.items) // 40)])
        for number, (mutant, tests) in enumerate(self._mutants, 1):
            outcome = self._try(mutant, [items[test] for test in tests if test in items])
            self.outcomes.append((mutant.name, outcome, len(tests)))
            print(f"{number} of {len(self._mutants)}: {outcome}: {mutant.name}", flush=True)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._has_failed |= report.failed

    def _prepare(self, session: pytest.Session) -> None:
        """Run one test, so that servers and application are up before the first fork."""
        first, second = session.items[0], session.items[-1]
        session.config.hook.pytest_runtest_protocol(item=first, nextitem=second)
        gc.collect()
        gc.freeze()

    def _try(self, mutant: Mutant, items: list[pytest.Item]) -> str:
        if not items:
            return "not reached"
        if (pid := os.fork()) == 0:
            os._exit(self._run_fork(mutant, items))
        return self._outcome(pid)

    def _check_control(self, items: list[pytest.Item]) -> None:
        """Without a fault the tests must pass in a fork, or every mutant would look killed."""
        if (pid := os.fork()) == 0:
            os._exit(self._run_fork(None, items))
        if (outcome := self._outcome(pid)) not in ("survived", "out of time"):
            pytest.exit(f"tests fail in a fork without a mutant ({outcome})", returncode=2)

    def _run_fork(self, mutant: Mutant | None, items: list[pytest.Item]) -> int:
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            sys.stdout = sys.stderr = os.fdopen(nowhere, "w")
            db.engine.dispose(close=False)
            if mutant is not None and not _apply(mutant):
                return _FAULTY
            self._has_failed = False
            deadline = time.monotonic() + SECONDS_EACH
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following or item)
                if self._has_failed:
                    return _KILLED
                if following is not None and time.monotonic() > deadline:
                    return _OUT_OF_TIME
        except BaseException:
            return _KILLED
        return _SURVIVED

    def _outcome(self, pid: int) -> str:
        deadline = time.monotonic() + SECONDS_EACH + HANGS_AFTER_SECONDS
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return "killed"
            time.sleep(0.005)
        code = os.waitstatus_to_exitcode(ended[1])
        known = {_SURVIVED: "survived", _OUT_OF_TIME: "out of time", _FAULTY: "not applied"}
        return known.get(code, "killed")


def _apply(mutant: Mutant) -> bool:
    """Give every function with this code the mutant's; tell whether there was one."""
    code = mutant.code
    found = False
    gc.unfreeze()  # frozen objects are not listed
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and _is_same(function, code):
            function.__code__ = code
            found = True
    return found


def _is_same(function: FunctionType, code: object) -> bool:
    present = function.__code__
    return all(
        getattr(present, name) == getattr(code, name)
        for name in ("co_filename", "co_qualname", "co_firstlineno")
    )
