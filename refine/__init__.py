"""Refine: agents tidy their own memory, in supervised sessions that cannot destroy it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask

    from refine.settings import Settings

__version__ = "1.0.0"


def create_app(settings: "Settings | None" = None) -> "Flask":
    """Return the application, connected to nothing; SettingsError names a bad variable."""
    # imported here, so that a process which needs one module of Refine does not load all of it
    from refine.application import build  # noqa: PLC0415
    from refine.settings import Settings  # noqa: PLC0415

    return build(settings or Settings.from_environ())
