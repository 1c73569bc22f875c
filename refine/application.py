"""The Flask application, put together."""

from pathlib import Path

from flask import Flask

from refine import logs, models, web
from refine.extensions import db, migrate
from refine.sealing import Keyring
from refine.settings import Settings

_ROOT = Path(__file__).parent.parent


def build(settings: Settings) -> Flask:
    """Return the application: settings, keys, extensions, pages."""
    app = Flask(
        "refine",
        template_folder=str(_ROOT / "templates"),
        static_folder=str(_ROOT / "static"),
    )
    app.config.update(
        SECRET_KEY=settings.secret_key,
        SQLALCHEMY_DATABASE_URI=settings.database_url,
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_SECURE=settings.public_url.startswith("https://"),
    )
    app.extensions["refine.settings"] = settings
    app.extensions["refine.keyring"] = Keyring(settings.encryption_keys)
    logs.configure(settings.log_level)
    db.init_app(app)
    migrate.init_app(app, db, directory=str(_ROOT / "migrations"))
    web.register(app)
    models.configure()
    return app
