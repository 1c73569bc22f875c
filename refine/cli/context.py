"""The application context of a command, with servers for as long as it needs them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from flask import Flask

from refine import create_app, logs
from refine.cli.upgrading import upgrade_if_allowed
from refine.embedded import servers_available
from refine.errors import NotFound
from refine.extensions import db
from refine.models import WrappedKey, schema_version
from refine.settings import Settings, data_dir_in, is_installed

_KEYS = "REFINE_ENCRYPTION_KEYS"

# Variables of one installation's data, left out for another database.
OF_INSTALLATION = (
    *("DATABASE_URL", "REFINE_OWNER_DATABASE_URL", "REDIS_URL", "REFINE_DATA_DIR"),
    *("SECRET_KEY", _KEYS),
)


@contextmanager
def application(
    holder: str,
    *,
    check_keys: bool = True,
    may_install: bool = False,
    is_service: bool = False,
    as_table_owner: bool = False,
) -> Iterator[Flask]:
    """Yield the application with its context pushed.

    Uses the running embedded servers, or starts them until the command ends. Raises WrongKey if the
    keys do not belong to the database, BeingUpgraded if its version does not (services upgrade it,
    or wait until somebody has), and NotFound if there is no installation, unless the command may
    create one (``may_install``). Services log what they do; other commands print it and log only
    warnings. ``as_table_owner``: connect as the owner of the tables.
    """
    if not may_install and not is_installed():
        raise NotFound(
            f"no installation found in {data_dir_in()}; run `refine up`, or set REFINE_DATA_DIR or "
            "DATABASE_URL"
        )
    settings = Settings.from_environ()
    if as_table_owner:
        settings = settings.as_table_owner()
    servers = servers_available(
        settings.data_dir,
        postgres=settings.embedded_postgres,
        valkey=settings.embedded_valkey,
        holder=holder,
    )
    with servers, in_context(settings, is_service=is_service) as app:
        if is_service:
            _upgrade_or_wait(settings)
        elif check_keys:
            schema_version.require_compatible()
        if check_keys:
            WrappedKey.check_keyring()
        db.session.rollback()  # a command begins with no transaction open
        yield app


class InApplication(click.Command):
    """Runs in the application's context and commits; then prints the text that it returned."""

    def invoke(self, context: click.Context) -> object:
        with application(context.command_path.removeprefix("refine ")):
            outcome = super().invoke(context)
            db.session.commit()
        if isinstance(outcome, str):
            click.echo(outcome)
        return outcome


class Group(click.Group):
    command_class = InApplication


def _upgrade_or_wait(settings: Settings) -> None:
    if schema_version.is_behind():
        with in_context(settings.as_table_owner(), is_service=True):
            upgrade_if_allowed()
    schema_version.wait_until_compatible()


@contextmanager
def in_context(settings: Settings, *, is_service: bool = False) -> Iterator[Flask]:
    app = create_app(settings)
    if not is_service:
        logs.quieten()
    with app.app_context():
        try:
            yield app
        finally:
            # before the embedded servers stop, which wait for connections
            db.session.remove()
            db.engine.dispose()


def settings_without_installation(folder: Path, *, with_keys: bool = False) -> Settings:
    """Return the settings of the environment, with an empty data folder instead of its data.
    ``with_keys``: with the encryption keys of the installation, or of the environment.
    """
    kept = {name: text for name, text in os.environ.items() if name not in OF_INSTALLATION}
    if with_keys and is_installed():
        kept[_KEYS] = ",".join(Settings.from_environ().encryption_keys)
    elif with_keys and _KEYS in os.environ:
        kept[_KEYS] = os.environ[_KEYS]
    return Settings.from_environ({**kept, "REFINE_DATA_DIR": str(folder)})
