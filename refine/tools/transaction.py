"""One tool call is one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from refine.errors import InvalidValue
from refine.extensions import db


@contextmanager
def one_call() -> Iterator[None]:
    """Commit what a tool call did; if it raises InvalidValue, undo the call alone.

    A savepoint keeps the caller's own uncommitted changes, which are committed either way. Any
    other fault rolls back everything. Exceptions go on to the caller.
    """
    try:
        with db.session.begin_nested():
            yield
    except InvalidValue:
        db.session.commit()
        raise
    except BaseException:
        db.session.rollback()
        raise
    db.session.commit()
