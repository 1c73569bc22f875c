"""Outages of the database, as seen from one thread of this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from refine import outages
from refine.extensions import db
from tests.faults.injecting import cut


@contextmanager
def answers_lost() -> Iterator[None]:
    """Lose the answer to every second commit here, from the first on; the commits are made."""
    here, numbers = threading.get_ident(), count()
    dialect = db.engine.dialect
    commit = dialect.do_commit

    def commit_unheard(connection: Any) -> None:
        commit(connection)
        if threading.get_ident() == here and next(numbers) % 2 == 0:
            cut(connection.dbapi_connection)
            connection.dbapi_connection.execute("SELECT 2")  # finds that nobody is there

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outages, "PAUSE_SECONDS", 0.0)
        patch.setattr(dialect, "do_commit", commit_unheard)
        yield
