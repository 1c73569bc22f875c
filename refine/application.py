"""The Flask application, put together."""

from pathlib import Path

from flask import Flask
from werkzeug.middleware.proxy_fix import ProxyFix

from refine import api, logs, models, web
from refine.extensions import db, migrate
from refine.sealing import Keyring
from refine.settings import Settings

_LARGEST_REQUEST_BYTES = 16 * 1024 * 1024

_ROOT = Path(__file__).parent.parent


def build(settings: Settings) -> Flask:
    """Return the application: settings, keys, extensions, pages."""
    is_https = settings.public_url.startswith("https://")
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
        SESSION_COOKIE_SECURE=is_https,
        WTF_CSRF_TIME_LIMIT=None,  # as long as the sign-in
        WTF_CSRF_SSL_STRICT=False,  # we send no referrer; Sec-Fetch-Site is looked at instead
        MAX_CONTENT_LENGTH=_LARGEST_REQUEST_BYTES,
    )
    if is_https:  # whatever speaks it stands in front of us, and says who asks
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1, x_proto=1)  # type: ignore[method-assign]
    app.extensions["refine.settings"] = settings
    app.extensions["refine.keyring"] = Keyring(settings.encryption_keys)
    logs.configure(settings.log_level)
    db.init_app(app)
    migrate.init_app(app, db, directory=str(_ROOT / "migrations"))
    web.register(app)
    api.register(app, settings)
    models.configure()
    return app
