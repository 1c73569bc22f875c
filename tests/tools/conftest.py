from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from flask import Flask

from tests import sql


@pytest.fixture
def broken_audit(app: Flask) -> Iterator[Callable[[str], None]]:
    """Makes the records of these actions fail, as a full disk would."""
    on, does = "BEFORE INSERT ON audit_logs", "RAISE EXCEPTION 'the disk is full'"
    with ExitStack() as stack:
        yield lambda action: stack.enter_context(
            sql.trigger(on, does, when=f"starts_with(NEW.action, '{action}')")
        )
