"""Runs the tests that reach a mutant's line, each mutant in a fork of one prepared process."""

import functools
import gc
import os
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing.sharedctypes import RawValue
from types import FunctionType

import pytest

from refine.extensions import db
from tests.mutation.mutants import Mutant

# The quick tests of one mutant stop after so much work, and then the gate's proofs.
QUICK_SECONDS, PROOF_SECONDS = 45.0, 180.0
# A test that takes this long hangs, if it takes less than half of it without the mutant.
HANGS_AFTER_SECONDS = 240.0

_KILLED, _SURVIVED, _FAULTY, _OUT_OF_TIME = 1, 0, 3, 4
_OUTCOMES = {_SURVIVED: "survived", _OUT_OF_TIME: "out of time", _FAULTY: "not applied"}


class MutantRunner:
    """A pytest plugin: instead of running the tests, it runs them against each mutant."""

    def __init__(self, mutants: Sequence[tuple[Mutant, list[str]]]) -> None:
        self.outcomes: list[tuple[str, str, int]] = []
        self._mutants = mutants
        self._has_failed = False
        self._running = RawValue("i")  # the position of the test that runs, for both processes
        self._passes: dict[str, bool] = {}
        self._witness: list[pytest.Item] = []  # passes as long as the servers are well

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        self._prepare(session)
        for number, (mutant, tests) in enumerate(self._mutants, 1):
            outcome = self._try(mutant, [items[test] for test in tests if test in items])
            self.outcomes.append((mutant.name, outcome, len(tests)))
            print(f"{number} of {len(self._mutants)}: {outcome}: {mutant.name}", flush=True)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._has_failed |= report.failed

    def _prepare(self, session: pytest.Session) -> None:
        """Run one test, so that servers and application are up before the first fork."""
        first, *_, other = (item for item in session.items if _is_quick_of_application(item))
        session.config.hook.pytest_runtest_protocol(item=first, nextitem=other)
        self._witness = [other]
        gc.collect()
        gc.freeze()

    def _try(self, mutant: Mutant, items: list[pytest.Item]) -> str:
        """Run the quick tests and, if the mutant lives on, the proofs that reach it."""
        proofs = [item for item in items if item.get_closest_marker("proof")]
        quick = [item for item in items if item not in proofs]
        outcome = self._run(mutant, quick, QUICK_SECONDS) if quick else "not reached"
        if proofs and outcome not in ("killed", "not applied"):
            outcome = self._run(mutant, proofs, PROOF_SECONDS)
        return outcome

    def _run(self, mutant: Mutant, items: list[pytest.Item], seconds: float) -> str:
        """A test that fails without the mutant as well has not killed it, and is left out."""
        while (outcome := self._fork(mutant, items, seconds)) == "killed":
            killer = items[self._running.value]
            if killer.nodeid not in self._passes:
                self._passes[killer.nodeid] = self._fork(None, [killer], seconds) == "survived"
            if self._passes[killer.nodeid]:
                break
            if self._fork(None, self._witness, seconds) != "survived":
                pytest.exit("a mutant has left servers with which no test passes", returncode=2)
            print(f"fails without a mutant: {killer.nodeid}", flush=True)
            items = [item for item in items if item is not killer]
        return outcome

    def _fork(self, mutant: Mutant | None, items: list[pytest.Item], seconds: float) -> str:
        if (pid := os.fork()) == 0:
            os._exit(self._run_fork(mutant, items, seconds))
        return self._outcome(pid, HANGS_AFTER_SECONDS if mutant else HANGS_AFTER_SECONDS / 2)

    def _run_fork(self, mutant: Mutant | None, items: list[pytest.Item], seconds: float) -> int:
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            sys.stdout = sys.stderr = os.fdopen(nowhere, "w")
            db.engine.dispose(close=False)
            if mutant is not None and not _apply(mutant):
                return _FAULTY
            self._has_failed = False
            last = time.process_time() + seconds  # others on the machine take nothing of it
            for position, item in enumerate(items):
                self._running.value = position
                # the last one's fixtures end too, but not the servers
                following = item.parent if item is items[-1] else items[position + 1]
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self._has_failed:
                    return _KILLED
                if item is not items[-1] and time.process_time() > last:
                    return _OUT_OF_TIME
        except BaseException:
            return _KILLED
        return _SURVIVED

    def _outcome(self, pid: int, hangs_after: float) -> str:
        position, since = -1, time.monotonic()
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            if position != self._running.value:
                position, since = self._running.value, time.monotonic()
            if time.monotonic() > since + hangs_after:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return "killed"
            time.sleep(0.005)
        return _OUTCOMES.get(os.waitstatus_to_exitcode(ended[1]), "killed")


def _is_quick_of_application(item: pytest.Item) -> bool:
    return "app" in item.fixturenames and item.get_closest_marker("slow") is None


def _apply(mutant: Mutant) -> bool:
    """Give every function with this code the mutant's; tell whether there was one."""
    code = mutant.compiled()
    found = False
    gc.unfreeze()  # frozen objects are not listed
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and code is not None and _is_same(each, code):
            each.__code__ = code
            found = True
        elif isinstance(each, functools._lru_cache_wrapper):
            each.cache_clear()  # what the function returned without the fault
    return found


def _is_same(function: FunctionType, code: object) -> bool:
    present = function.__code__
    return all(
        getattr(present, name) == getattr(code, name)
        for name in ("co_filename", "co_qualname", "co_firstlineno")
    )
