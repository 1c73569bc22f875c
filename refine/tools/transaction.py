"""One tool call is one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from refine.extensions import db


@contextmanager
def one_call() -> Iterator[None]:
    """Commit what a tool call did; undo it if it raises, and let the exception go on.

    What the caller left uncommitted is committed before.
    """
    if db.session().in_transaction():
        db.session.commit()
    try:
        yield
    except BaseException:
        db.session.rollback()
        raise
    db.session.commit()
