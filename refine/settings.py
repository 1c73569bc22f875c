"""Settings: built once from the environment by ``create_app()``; nothing else reads it."""

import dataclasses
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints
from urllib.parse import quote, urlsplit

from cryptography.fernet import Fernet
from flask import current_app
from redis import ConnectionPool
from redis.exceptions import RedisError

from refine import embedded
from refine.errors import InvalidValue, SettingsError
from refine.rules.content import email_address
from refine.rules.prices import Price, parse_price_file
from refine.rules.quantities import finite
from refine.rules.schedules import valid_schedule

DEFAULT_DATA_DIR = ".refine"
# the bundled PostgreSQL's folder in it
_DATABASE = "postgres"

_WITHOUT_PREFIX = frozenset(
    {
        *("database_url", "redis_url", "secret_key", "host", "port", "public_url"),
        *("web_concurrency", "script_name", "otel_exporter_otlp_endpoint"),
        *("openrouter_api_key", "openrouter_base_url"),
    }
)

_LOOPBACK = ("localhost", "127.0.0.1", "::1")

# Takes a variable's name and text; raises SettingsError with the name and a reason.
_Parse = Callable[[str, str], Any]


def _text(_name: str, text: str) -> str:
    return text


def _folder(_name: str, text: str) -> Path:
    return Path(text).absolute()


def _whole_number(minimum: int, maximum: int) -> _Parse:
    def parse(name: str, text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", text) or not minimum <= int(text) <= maximum:
            raise SettingsError(f"{name} must be a whole number from {minimum} to {maximum:,}")
        return int(text)

    return parse


def _share(name: str, text: str) -> Decimal:
    share = finite(text)
    if share is None or not 0 <= share <= 1:
        raise SettingsError(f"{name} must be a number from 0 to 1")
    return share


def _switch(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise SettingsError(f"{name} must be 0 or 1")
    return text == "1"


def _one_of(*words: str) -> _Parse:
    def parse(name: str, text: str) -> str:
        if text not in words:
            raise SettingsError(f"{name} must be {' or '.join(words)}")
        return text

    return parse


def _header_value(name: str, text: str) -> str:
    if not re.fullmatch("[ -~]+", text):
        raise SettingsError(f"{name} must be printable ASCII: it is sent in an HTTP header")
    return text


def _schedule(name: str, text: str) -> str:
    try:
        return valid_schedule(text, field=name)
    except InvalidValue as error:
        raise SettingsError(str(error)) from None


def _http_url(name: str, text: str) -> str:
    parts = _url_parts(name, text, ("http", "https"), "http://host or https://host")
    if not parts.hostname:
        raise SettingsError(f"{name} must look like http://host or https://host")
    if re.search(r"[?#\s]", text):
        raise SettingsError(f"{name} must not contain blanks, ? or #: paths are added to its end")
    if parts.username is not None:  # these URLs are shown and recorded
        raise SettingsError(f"{name} must not contain a user name or password")
    # as browsers spell it, so that comparisons need not fold the case
    return str(parts._replace(netloc=parts.netloc.lower()).geturl()).rstrip("/")


def _issuer(name: str, text: str) -> str:
    url = _http_url(name, text)
    if not url.startswith("https://") and urlsplit(url).hostname not in _LOOPBACK:
        raise SettingsError(f"{name} must begin with https://, but on this machine")
    return url


def _database_url(name: str, text: str) -> str:
    """Name the driver: PaaS hosts give ``postgres://``, which SQLAlchemy does not know."""
    schemes = ("postgres", "postgresql", "postgresql+psycopg")
    scheme = _url_parts(name, text, schemes, "postgresql://…; Refine needs PostgreSQL").scheme
    return "postgresql+psycopg" + text[len(scheme) :]


def _redis_url(name: str, text: str) -> str:
    _url_parts(name, text, ("redis", "rediss", "unix"), "redis://…, rediss://… or unix://…")
    try:
        ConnectionPool.from_url(text).make_connection()  # connects to nothing yet
    except (RedisError, TypeError, ValueError):  # which may quote the URL
        raise SettingsError(
            f"{name} must have only parameters of redis-py after the ?, such as "
            "rediss://…?ssl_cert_reqs=none"
        ) from None
    return text


def _redis_tls(name: str, text: str) -> str:
    """Return the parameter of redis-py for the certificate that Redis shows."""
    if text == "insecure":
        return "ssl_cert_reqs=none"
    if not Path(text).is_file():
        raise SettingsError(
            f"{name} must be insecure, or the path of a file with the certificate of who issued "
            "that of Redis"
        )
    return f"ssl_ca_certs={quote(str(Path(text).absolute()))}"


def _with_tls(redis_url: str, parameter: str) -> str:
    if not redis_url.startswith("rediss://"):
        raise SettingsError("REFINE_REDIS_TLS needs a REDIS_URL that begins with rediss://")
    return f"{redis_url}{'&' if '?' in redis_url else '?'}{parameter}"


def _mail_url(name: str, text: str) -> str:
    example = "smtp://user:password@host:587 or smtps://…"
    if not _url_parts(name, text, ("smtp", "smtps"), example).hostname:
        raise SettingsError(f"{name} must look like {example}")
    return text


def _mail_address(name: str, text: str) -> str:
    try:
        return email_address(text)
    except InvalidValue:
        raise SettingsError(f"{name} must be an address such as refine@example.org") from None


def _price_file(name: str, text: str) -> dict[str, Price]:
    try:
        return parse_price_file(Path(text).read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as fault:
        problem = f"{name}: the file cannot be read ({type(fault).__name__})"
        raise SettingsError(problem) from None
    except InvalidValue as fault:
        raise SettingsError(f"{name}: {fault}") from None


def _url_parts(name: str, text: str, schemes: tuple[str, ...], example: str) -> Any:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise SettingsError(f"{name} is not a URL; use {example}") from None
    if parts.scheme not in schemes or not (parts.netloc or parts.path.strip("/") or parts.query):
        raise SettingsError(f"{name} must look like {example}")
    return parts


def _encryption_keys(name: str, text: str) -> tuple[str, ...]:
    keys = tuple(key.strip() for key in text.split(",") if key.strip())
    try:
        if all(Fernet(key) for key in keys) and keys:
            return keys
    except ValueError:
        pass
    raise SettingsError(
        f"{name} must be one or more Fernet keys (32 bytes in URL-safe base64), separated by "
        "commas; `refine keys new` prints one"
    )


def _log_level(name: str, text: str) -> str:
    return cast(str, _one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")(name, text.upper()))


@dataclass(frozen=True, kw_only=True, repr=False)
class Settings:
    """Everything that an operator can set. Its ``repr`` shows nothing: it holds secrets."""

    data_dir: Annotated[Path, _folder]
    database_url: Annotated[str, _database_url]
    owner_database_url: Annotated[str | None, _database_url] = None
    pooled: Annotated[bool, _switch] = False
    redis_url: Annotated[str, _redis_url]
    redis_tls: Annotated[str | None, _redis_tls] = None
    embedded_postgres: bool
    embedded_valkey: bool
    secret_key: Annotated[str, _text]
    encryption_keys: Annotated[tuple[str, ...], _encryption_keys]
    openrouter_api_key: Annotated[str | None, _header_value] = None
    openrouter_base_url: Annotated[str, _http_url] = "https://openrouter.ai/api/v1"
    schedule: Annotated[str, _schedule] = "0 4 * * 1"
    cooldown_hours: Annotated[int, _whole_number(1, 168)] = 24
    rolling_floor: Annotated[Decimal, _share] = Decimal("0.5")
    details: Annotated[str, _one_of("keep", "count")] = "keep"
    likeness: Annotated[Decimal, _share] = Decimal("0.65")
    second_reading: Annotated[str, _one_of("on", "off")] = "on"
    max_turns: Annotated[int, _whole_number(1, 1_000)] = 30
    max_seconds: Annotated[int, _whole_number(1, 86_400)] = 900
    concurrency: Annotated[int, _whole_number(1, 100)] = 10
    context_tokens: Annotated[int, _whole_number(1_000, 100_000_000)] = 128_000
    plain_openai: Annotated[bool, _switch] = False
    dialect: Annotated[str | None, _text] = None
    prices: Annotated[Mapping[str, Price], _price_file] = field(default_factory=dict, hash=False)
    rehearsal: Annotated[bool, _switch] = False
    api_reads_per_minute: Annotated[int, _whole_number(1, 1_000_000)] = 600
    api_writes_per_minute: Annotated[int, _whole_number(1, 1_000_000)] = 120
    host: Annotated[str | None, _text] = None
    port: Annotated[int, _whole_number(1, 65_535)] = 8000
    web_concurrency: Annotated[int, _whole_number(1, 100)] = 2
    script_name: Annotated[str, _text] = ""
    public_url: Annotated[str, _http_url]
    proxies: Annotated[int, _whole_number(0, 10)] = 0
    webhooks_private: Annotated[bool, _switch] = False
    oidc_issuer: Annotated[str | None, _issuer] = None
    oidc_client_id: Annotated[str | None, _text] = None
    oidc_client_secret: Annotated[str | None, _text] = None
    oidc_scope: Annotated[str, _text] = "openid email"
    oidc_role_claim: Annotated[str, _text] = "roles"
    oidc_link: Annotated[bool, _switch] = False
    oidc_only: Annotated[bool, _switch] = False
    mail_url: Annotated[str | None, _mail_url] = None
    mail_from: Annotated[str | None, _mail_address] = None
    log_level: Annotated[str, _log_level] = "INFO"
    metrics_token: Annotated[str | None, _header_value] = None
    otel_exporter_otlp_endpoint: Annotated[str | None, _http_url] = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Read every variable; SettingsError names a bad one. May create the data folder."""
        complete = _with_computed(environ, cls.port)
        values = {
            name: parse(variable_of(name), text)
            for name, parse in _PARSERS.items()
            if (text := _given(complete, variable_of(name)))
        }
        if ("oidc_issuer" in values) != ("oidc_client_id" in values):
            raise SettingsError("REFINE_OIDC_ISSUER and REFINE_OIDC_CLIENT_ID need each other")
        if "redis_tls" in values:
            values["redis_url"] = _with_tls(values["redis_url"], values["redis_tls"])
        return cls(
            embedded_postgres=not _given(environ, "DATABASE_URL"),
            embedded_valkey=not _given(environ, "REDIS_URL"),
            **values,
        )

    @property
    def is_https(self) -> bool:
        return self.public_url.startswith("https://")

    @property
    def has_second_reading(self) -> bool:
        """Whether edits are read once more: where nothing is refused, no reading is needed."""
        return self.second_reading == "on" and self.details == "keep"

    def rehearses(self, *, is_demo: bool) -> bool:
        """Tell whether the rehearsal model answers for an account; without a provider, for all."""
        return is_demo or (self.rehearsal and self.openrouter_api_key is None)

    def as_table_owner(self) -> "Settings":
        return dataclasses.replace(self, database_url=self.owner_database_url or self.database_url)


_PARSERS: dict[str, _Parse] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Settings, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}


def variable_of(name: str) -> str:
    return name.upper() if name in _WITHOUT_PREFIX else f"REFINE_{name.upper()}"


# Variables of the client, and of completion in a shell.
_NOT_OURS = frozenset({"REFINE_URL", "REFINE_TOKEN", "REFINE_COMPLETE"})


def unknown_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str | None]:
    """Return each variable that looks like a setting and is none, with the most similar name."""
    known = {variable_of(name) for name in _PARSERS}
    given = {name for name in environ if name.startswith("REFINE_")} - known - _NOT_OURS
    return {name: next(iter(get_close_matches(name, known, 1)), None) for name in sorted(given)}


def is_installed() -> bool:
    has_url = bool(_given(os.environ, "DATABASE_URL"))
    return has_url or (data_dir_in() / _DATABASE).is_dir()


def data_dir_in(environ: Mapping[str, str] = os.environ) -> Path:
    return Path(_given(environ, "REFINE_DATA_DIR") or DEFAULT_DATA_DIR).absolute()


def current() -> Settings:
    return cast(Settings, current_app.extensions["refine.settings"])


def _given(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip()


def _with_computed(environ: Mapping[str, str], default_port: int) -> dict[str, str]:
    if _given(environ, "REFINE_OWNER_DATABASE_URL") and not _given(environ, "DATABASE_URL"):
        raise SettingsError("REFINE_OWNER_DATABASE_URL needs DATABASE_URL: the same database")
    if _given(environ, "REFINE_MAIL_URL") and not _given(environ, "REFINE_MAIL_FROM"):
        raise SettingsError("REFINE_MAIL_URL needs REFINE_MAIL_FROM: the address mail comes from")
    data_dir = data_dir_in(environ)
    complete = {**environ, "REFINE_DATA_DIR": str(data_dir)}
    for name, make in (
        ("REFINE_ENCRYPTION_KEYS", partial(_first_encryption_key, data_dir)),
        ("SECRET_KEY", secrets.token_urlsafe),  # the last: nothing is written if a key is lost
    ):
        if _given(environ, name):
            continue
        if _given(environ, "DATABASE_URL"):
            raise SettingsError(f"{name} must be set when DATABASE_URL is given")
        complete[name] = embedded.kept_secret(data_dir, name.lower(), make)
    if not _given(environ, "DATABASE_URL"):
        complete["DATABASE_URL"] = embedded.database_url(data_dir)
    if not _given(environ, "REDIS_URL"):
        complete["REDIS_URL"] = embedded.redis_url(data_dir)
    if not _given(environ, "PUBLIC_URL"):
        port, prefix = _given(environ, "PORT") or default_port, _given(environ, "SCRIPT_NAME")
        complete["PUBLIC_URL"] = f"http://localhost:{port}{prefix}"
    return complete


def _first_encryption_key(data_dir: Path) -> str:
    """Return a new key; SettingsError if there is a database already, which another one sealed."""
    if (data_dir / _DATABASE).is_dir():
        raise SettingsError(
            f"{data_dir / 'refine_encryption_keys'} is missing, and without it nobody can read the "
            f"database in {data_dir / _DATABASE}: put the file back from your backup, or set "
            "REFINE_ENCRYPTION_KEYS; nothing was written"
        )
    return Fernet.generate_key().decode()
