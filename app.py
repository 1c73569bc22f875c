"""WSGI entry: ``gunicorn app:app``."""

from contextlib import suppress

from sqlalchemy.exc import DBAPIError

from refine import core_dumps, create_app
from refine.models import WrappedKey

core_dumps.forbid()
app = create_app()

# A wrong key is noticed here; a database that is away, or empty as yet, is /readyz's affair.
with app.app_context(), suppress(DBAPIError):
    WrappedKey.check_keyring()
