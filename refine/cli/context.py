"""What a command works in: the application, over servers that run for as long as it needs them."""

from collections.abc import Iterator
from contextlib import contextmanager

from flask import Flask

from refine import create_app, logs
from refine.embedded import servers_available
from refine.errors import NotFound
from refine.extensions import db
from refine.models import WrappedKey
from refine.settings import DEFAULT_DATA_DIR, Settings, is_installed


@contextmanager
def application(
    holder: str,
    *,
    check_keys: bool = True,
    may_install: bool = False,
    is_service: bool = False,
) -> Iterator[Flask]:
    """Yield the application, its context pushed.

    Embedded servers are used where they run, and started for as long as this lasts where not.
    Raises WrongKey at once where the keys are not this database's, and NotFound where there is no
    installation at all, unless the command is one that may make it. A service logs what it does;
    other commands say it themselves, and log warnings alone.
    """
    if not may_install and not is_installed():
        raise NotFound(
            f"there is no installation in {DEFAULT_DATA_DIR}/ here; run `refine up`, or name one "
            "with REFINE_DATA_DIR or DATABASE_URL"
        )
    settings = Settings.from_environ()
    with servers_available(
        settings.data_dir,
        postgres=settings.embedded_postgres,
        valkey=settings.embedded_valkey,
        holder=holder,
    ):
        app = create_app(settings)
        if not is_service:
            logs.quieten()
        with app.app_context():
            try:
                if check_keys:
                    WrappedKey.check_keyring()
                db.session.rollback()  # a command begins with no transaction open
                yield app
            finally:
                # before the embedded servers stop, who would wait for us
                db.session.remove()
                db.engine.dispose()
