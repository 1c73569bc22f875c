"""Settings: built once from the environment by ``create_app()``; nothing else reads it."""

import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from cryptography.fernet import Fernet
from flask import current_app

from refine import embedded
from refine.errors import InvalidValue, SettingsError
from refine.rules.due import valid_schedule

OPENROUTER_BASE_URL = "https://openrouter.ai/api/v1"
DEFAULT_DATA_DIR = ".refine"

_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that an operator can set. Secrets do not show in its ``repr``."""

    data_dir: Path
    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    embedded_postgres: bool
    embedded_valkey: bool
    secret_key: str = field(repr=False)
    encryption_keys: tuple[str, ...] = field(repr=False)
    openrouter_api_key: str | None = field(default=None, repr=False)
    openrouter_base_url: str = OPENROUTER_BASE_URL
    schedule: str = "0 4 * * 1"
    cooldown_hours: int = 24
    rolling_floor: Decimal = Decimal("0.5")
    max_turns: int = 30
    max_seconds: int = 900
    context_tokens: int = 128_000
    plain_openai: bool = False
    api_reads_per_minute: int = 600
    api_writes_per_minute: int = 120
    port: int = 8000
    public_url: str = "http://localhost:8000"
    log_level: str = "INFO"
    metrics_token: str | None = field(default=None, repr=False)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Read every variable; raise SettingsError, with the variable's name, for a bad value.

        Where no ``DATABASE_URL`` is given, the data folder is made and the secrets are kept in it.
        """
        read = _Reader(environ)
        data_dir = Path(read.text("REFINE_DATA_DIR", DEFAULT_DATA_DIR)).absolute()
        database_url = read.optional("DATABASE_URL")
        redis_url = read.optional("REDIS_URL")
        keep = embedded.kept_secret if database_url is None else None
        port = read.integer("PORT", 8000, minimum=1, maximum=65_535)
        return cls(
            data_dir=data_dir,
            database_url=_database_url(database_url) or embedded.database_url(data_dir),
            redis_url=_redis_url(redis_url) or embedded.redis_url(data_dir),
            embedded_postgres=database_url is None,
            embedded_valkey=redis_url is None,
            secret_key=read.secret("SECRET_KEY", data_dir, keep, secrets.token_urlsafe),
            encryption_keys=_encryption_keys(
                read.secret("REFINE_ENCRYPTION_KEYS", data_dir, keep, _new_encryption_key)
            ),
            openrouter_api_key=read.token("OPENROUTER_API_KEY"),
            openrouter_base_url=read.url("OPENROUTER_BASE_URL", OPENROUTER_BASE_URL),
            schedule=read.schedule("REFINE_SCHEDULE", cls.schedule),
            cooldown_hours=read.integer("REFINE_COOLDOWN_HOURS", 24, minimum=1, maximum=168),
            rolling_floor=read.share("REFINE_ROLLING_FLOOR", cls.rolling_floor),
            max_turns=read.integer("REFINE_MAX_TURNS", 30, minimum=1, maximum=1_000),
            max_seconds=read.integer("REFINE_MAX_SECONDS", 900, minimum=1, maximum=86_400),
            context_tokens=read.integer(
                "REFINE_CONTEXT_TOKENS", 128_000, minimum=1_000, maximum=100_000_000
            ),
            plain_openai=read.switch("REFINE_PLAIN_OPENAI"),
            api_reads_per_minute=read.integer(
                "REFINE_API_READS_PER_MINUTE", 600, minimum=1, maximum=1_000_000
            ),
            api_writes_per_minute=read.integer(
                "REFINE_API_WRITES_PER_MINUTE", 120, minimum=1, maximum=1_000_000
            ),
            port=port,
            public_url=read.url("PUBLIC_URL", f"http://localhost:{port}"),
            log_level=read.choice("REFINE_LOG_LEVEL", "INFO", _LOG_LEVELS),
            metrics_token=read.token("REFINE_METRICS_TOKEN"),
        )


def is_installed(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether there is a database for this environment: a given one, or an embedded one."""
    read = _Reader(environ)
    data_dir = Path(read.text("REFINE_DATA_DIR", DEFAULT_DATA_DIR))
    return read.optional("DATABASE_URL") is not None or (data_dir / "postgres").is_dir()


def current() -> Settings:
    """Return the settings of the application whose context is active."""
    return cast(Settings, current_app.extensions["refine.settings"])


class _Reader:
    """Reads variables of an environment; a blank one counts as not set."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def optional(self, name: str) -> str | None:
        return self._environ.get(name, "").strip() or None

    def text(self, name: str, default: str) -> str:
        return self.optional(name) or default

    def token(self, name: str) -> str | None:
        given = self.optional(name)
        if given is not None and not re.fullmatch("[ -~]+", given):
            raise SettingsError(f"{name} must be printable ASCII: it travels in an HTTP header")
        return given

    def integer(self, name: str, default: int, *, minimum: int, maximum: int) -> int:
        given = self.optional(name)
        if given is None:
            return default
        if not re.fullmatch(r"[0-9]{1,12}", given) or not minimum <= int(given) <= maximum:
            raise SettingsError(f"{name} must be a whole number from {minimum} to {maximum:,}")
        return int(given)

    def share(self, name: str, default: Decimal) -> Decimal:
        given = self.optional(name)
        if given is None:
            return default
        try:
            share = Decimal(given)
        except InvalidOperation:
            share = Decimal(-1)
        if not (share.is_finite() and 0 <= share <= 1):
            raise SettingsError(f"{name} must be a number from 0 to 1")
        return share

    def switch(self, name: str) -> bool:
        given = self.text(name, "0")
        if given not in ("0", "1"):
            raise SettingsError(f"{name} must be 0 or 1")
        return given == "1"

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        given = self.text(name, default).upper()
        if given not in choices:
            raise SettingsError(f"{name} must be one of {', '.join(choices)}")
        return given

    def url(self, name: str, default: str) -> str:
        given = self.text(name, default).rstrip("/")
        _checked_url(name, given, ("http", "https"), "http://host or https://host")
        return given

    def schedule(self, name: str, default: str) -> str:
        try:
            return valid_schedule(self.text(name, default), field=name)
        except InvalidValue as error:
            raise SettingsError(str(error)) from None

    def secret(
        self,
        name: str,
        data_dir: Path,
        keep: Callable[[Path, str, Callable[[], str]], str] | None,
        make: Callable[[], str],
    ) -> str:
        given = self.optional(name)
        if given is not None:
            return given
        if keep is None:
            raise SettingsError(f"{name} must be set when DATABASE_URL is given")
        return keep(data_dir, name.lower(), make)


def _new_encryption_key() -> str:
    return Fernet.generate_key().decode()


def _encryption_keys(text: str) -> tuple[str, ...]:
    keys = tuple(key.strip() for key in text.split(",") if key.strip())
    for key in keys:
        try:
            Fernet(key)
        except ValueError:
            keys = ()
    if not keys:
        raise SettingsError(
            "REFINE_ENCRYPTION_KEYS must be one or more Fernet keys (32 bytes in URL-safe base64), "
            "separated by commas; `refine keys new` prints one"
        )
    return keys


def _database_url(url: str | None) -> str | None:
    """Name the driver: PaaS hosts give ``postgres://``, which SQLAlchemy does not know."""
    if url is None:
        return None
    schemes = ("postgres", "postgresql", "postgresql+psycopg")
    scheme = _checked_url("DATABASE_URL", url, schemes, "postgresql://…; Refine needs PostgreSQL")
    return "postgresql+psycopg" + url[len(scheme) :]


def _redis_url(url: str | None) -> str | None:
    if url is not None:
        _checked_url(
            "REDIS_URL", url, ("redis", "rediss", "unix"), "redis://…, rediss://… or unix://…"
        )
    return url


def _checked_url(name: str, url: str, schemes: tuple[str, ...], example: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise SettingsError(f"{name} is not a URL; use {example}") from None
    if parts.scheme.startswith("http"):
        is_complete = bool(parts.hostname)
        if parts.username is not None:  # these URLs are shown and recorded
            raise SettingsError(f"{name} must not hold a name or password")
    else:
        is_complete = bool(parts.netloc or parts.path.strip("/") or parts.query)
    if parts.scheme not in schemes or not is_complete:
        raise SettingsError(f"{name} must look like {example}")
    return parts.scheme
