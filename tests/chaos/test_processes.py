"""What the storm knows of processes."""

import os
import subprocess
import sys

from tests.chaos.processes import descendants, wait_until

# A process with a child, both of which wait for their input to end.
_PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"


def test_children_of_children_are_found() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE) as parent:
        assert wait_until(lambda: len(descendants(parent.pid)) == 1, seconds=60)

        (child,) = descendants(parent.pid)
        assert set(descendants(os.getpid())) >= {parent.pid, child}
        parent.communicate(b"\n")


def test_waiting_ends_when_the_time_is_up() -> None:
    assert not wait_until(lambda: False, seconds=0)
