"""One tool call is one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from refine.errors import InvalidValue
from refine.extensions import db


@contextmanager
def one_call() -> Iterator[None]:
    """Commit what a tool call did; where it is refused as invalid, undo just that.

    What the caller had not committed yet stays either way: a savepoint stands between. Any other
    fault rolls everything back. Exceptions go on to the caller.
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
