"""`make failures`: each call of each operation fails in each way; see what does not hold then.

The last line is the figure; ends with 1 if there was a breach.
"""

import argparse
import logging
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.conftest import environ_of, migrated, servers_in
from tests.faults.injecting import KINDS, Kind
from tests.faults.nth_failure import Bench, Failure, bench, points
from tests.faults.operations import OPERATIONS, Operation


def main() -> int:
    given = _arguments()
    logging.disable()
    began = time.monotonic()
    operations = [each for each in OPERATIONS if given.operation in each.name]
    kinds = [each for each in KINDS if given.kind in each.name]
    with _installed() as made:
        failures = [
            failure
            for operation in operations
            for failure in _of(made, operation, kinds, given.step)
        ]
    breaches = sum(bool(each.breaches) for each in failures)
    print(
        f"{len(operations)} operations × {len(kinds)} kinds of fault: {len(failures):,} failures "
        f"in {time.monotonic() - began:,.0f} s, {breaches:,} breaches"
    )
    return 1 if breaches else 0


@contextmanager
def _installed() -> Iterator[Bench]:
    """A bench with servers of its own."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="refine-failures-"))
        environ = environ_of(stack.enter_context(servers_in(Path(folder))))
        app = stack.enter_context(migrated(environ))
        yield stack.enter_context(bench(app, environ))


def _of(
    made: Bench, operation: type[Operation], kinds: Sequence[Kind], step: int
) -> Iterator[Failure]:
    """Let one call after the other fail; print what did not hold."""
    began, count = time.monotonic(), 0
    for kind, at in points(made.untouched(operation), kinds, step):
        if (failure := _failed(made, operation, kind, at)) is None:
            continue
        count += 1
        if failure.breaches:
            print(f"BREACH {failure}", flush=True)
        yield failure
    print(f"{operation.name}: {count:,} failures, {time.monotonic() - began:,.0f} s", flush=True)


def _failed(made: Bench, operation: type[Operation], kind: Kind, at: int) -> Failure | None:
    try:
        return made.failed(operation, kind, at)
    except Exception:  # what was to hold could not even be looked at
        return Failure(operation.name, kind.name, at, (traceback.format_exc(),))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", type=int, default=1, help="only every so many-th call")
    parser.add_argument("--operation", default="", help="only operations with this in their names")
    parser.add_argument("--kind", default="", help="only kinds of fault with this in their names")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
