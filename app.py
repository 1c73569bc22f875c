"""WSGI entry for another server than that of ``refine web``: ``app:app``."""

from contextlib import suppress

from sqlalchemy.exc import DBAPIError

from refine import core_dumps, create_app
from refine.extensions import db
from refine.models import WrappedKey

core_dumps.forbid()
app = create_app()

# A wrong key is noticed here; /readyz reports a database that is away, or empty.
with app.app_context():
    with suppress(DBAPIError):
        WrappedKey.check_keyring()
    db.session.remove()
    db.engine.dispose()  # the server may fork next, and no connection may be used by two processes
