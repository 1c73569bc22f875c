"""Tables of cases that share one arranged world."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from refine.extensions import db


@contextmanager
def case(subtests: Any, **named: object) -> Iterator[None]:
    """One case of a table; what it does is rolled back, so that each finds the same world."""
    with subtests.test(**named), db.session.begin_nested() as savepoint:
        yield
        savepoint.rollback()


def set_fields(row: Any, **fields: object) -> None:
    for name, value in fields.items():
        setattr(row, name, value)
