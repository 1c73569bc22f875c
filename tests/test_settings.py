"""Settings from the environment: every variable, its default and its bad values."""

import base64
import stat
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from refine.embedded import database_url, redis_url
from refine.errors import SettingsError
from refine.settings import Settings, variable_of

KEY = base64.urlsafe_b64encode(b"a key of the tests, 32 bytes it is"[:32]).decode()
OLD_KEY = base64.urlsafe_b64encode(b"an older key of the same, 32 bytes"[:32]).decode()
NEEDED = {
    "DATABASE_URL": "postgresql://db.example.org/refine",
    "REDIS_URL": "redis://cache.example.org",
    "SECRET_KEY": "a secret of the tests",
    "REFINE_ENCRYPTION_KEYS": KEY,
}
EMBEDDED = {"embedded_postgres", "embedded_valkey"}


def settings(**variables: str) -> Settings:
    return Settings.from_environ({**NEEDED, **variables})


def test_variables_have_defaults():
    made = settings()

    expected = {
        "data_dir": Path(".refine").absolute(),
        "openrouter_api_key": None,
        "openrouter_base_url": "https://openrouter.ai/api/v1",
        "schedule": "0 4 * * 1",
        "cooldown_hours": 24,
        "rolling_floor": Decimal("0.5"),
        "details": "keep",
        "likeness": Decimal("0.65"),
        "max_turns": 30,
        "max_seconds": 900,
        "context_tokens": 128_000,
        "plain_openai": False,
        "api_reads_per_minute": 600,
        "api_writes_per_minute": 120,
        "port": 8000,
        "public_url": "http://localhost:8000",
        "log_level": "INFO",
        "metrics_token": None,
        "embedded_postgres": False,
        "embedded_valkey": False,
    }
    assert {name: getattr(made, name) for name in expected} == expected


def test_migrations_may_connect_as_another_role():
    made = settings(REFINE_OWNER_DATABASE_URL="postgres://owner@db.example.org/refine")

    assert made.database_url == "postgresql+psycopg://db.example.org/refine"
    assert made.as_table_owner().database_url == "postgresql+psycopg://owner@db.example.org/refine"
    assert settings().as_table_owner() == settings()
    with pytest.raises(SettingsError, match="REFINE_OWNER_DATABASE_URL needs DATABASE_URL"):
        settings(DATABASE_URL="", REFINE_OWNER_DATABASE_URL="postgres://owner@db.example.org/x")


def test_a_blank_variable_counts_as_not_set():
    fields_of_variables = {each.name for each in fields(Settings)} - EMBEDDED
    names = set(map(variable_of, fields_of_variables)) - NEEDED.keys()
    assert len(names) == 41

    for name in names:
        for blank in ("", "  ", "\n"):
            assert settings(**{name: blank}) == settings(), name


def test_variables_are_parsed():
    for name, given, attribute, value in (
        ("REFINE_DATA_DIR", "/srv/refine", "data_dir", Path("/srv/refine")),
        ("REFINE_DATA_DIR", "here", "data_dir", Path("here").absolute()),
        ("REDIS_URL", "rediss://user:pass@h:6380/1", "redis_url", "rediss://user:pass@h:6380/1"),
        ("REDIS_URL", "unix:///run/redis.sock", "redis_url", "unix:///run/redis.sock"),
        *(
            ("REDIS_URL", f"rediss://h/1?{remedy}", "redis_url", f"rediss://h/1?{remedy}")
            for remedy in ("ssl_cert_reqs=none", "ssl_ca_certs=/ca.pem&ssl_check_hostname=no")
        ),
        ("SECRET_KEY", " sesame ", "secret_key", "sesame"),
        ("REFINE_ENCRYPTION_KEYS", KEY, "encryption_keys", (KEY,)),
        ("REFINE_ENCRYPTION_KEYS", f"{KEY},{OLD_KEY}", "encryption_keys", (KEY, OLD_KEY)),
        ("REFINE_ENCRYPTION_KEYS", f" {OLD_KEY} , {KEY},", "encryption_keys", (OLD_KEY, KEY)),
        ("OPENROUTER_API_KEY", " sk-or-1 ", "openrouter_api_key", "sk-or-1"),
        ("OPENROUTER_BASE_URL", "http://[::1]:1/v1/", "openrouter_base_url", "http://[::1]:1/v1"),
        ("REFINE_SCHEDULE", " 30 2 * * * ", "schedule", "30 2 * * *"),
        ("REFINE_COOLDOWN_HOURS", "168", "cooldown_hours", 168),
        ("REFINE_ROLLING_FLOOR", "0.07", "rolling_floor", Decimal("0.07")),
        ("REFINE_DETAILS", "count", "details", "count"),
        ("REFINE_LIKENESS", "1", "likeness", Decimal(1)),
        ("REFINE_SECOND_READING", "off", "second_reading", "off"),
        ("REFINE_MAX_TURNS", "1000", "max_turns", 1_000),
        ("REFINE_CONCURRENCY", "100", "concurrency", 100),
        ("REFINE_MAX_SECONDS", "86400", "max_seconds", 86_400),
        ("REFINE_CONTEXT_TOKENS", "100000000", "context_tokens", 100_000_000),
        ("REFINE_PLAIN_OPENAI", "1", "plain_openai", True),
        ("REFINE_API_WRITES_PER_MINUTE", "1000000", "api_writes_per_minute", 1_000_000),
        ("PORT", "65535", "port", 65_535),
        ("PORT", "8080", "public_url", "http://localhost:8080"),
        ("PUBLIC_URL", "https://refine.example.org/", "public_url", "https://refine.example.org"),
        ("REFINE_PROXIES", "2", "proxies", 2),
        ("REFINE_LOG_LEVEL", "debug", "log_level", "DEBUG"),
        ("REFINE_METRICS_TOKEN", "token", "metrics_token", "token"),
        ("REFINE_MAIL_FROM", "Refine@example.org", "mail_from", "refine@example.org"),
    ):
        assert getattr(settings(**{name: given}), attribute) == value, (name, given)


@pytest.mark.parametrize(("url", "mark"), [("rediss://:p@h:6380/1", "?"), ("rediss://h?db=1", "&")])
def test_the_certificate_of_redis_is_judged_as_told_beside_its_url(url, mark, tmp_path):
    issuer = tmp_path / "who issued it.pem"
    issuer.touch()
    quoted = str(issuer).replace(" ", "%20")

    insecure = settings(REDIS_URL=url, REFINE_REDIS_TLS="insecure")
    private = settings(REDIS_URL=url, REFINE_REDIS_TLS=str(issuer))

    assert insecure.redis_url == f"{url}{mark}ssl_cert_reqs=none"
    assert private.redis_url == f"{url}{mark}ssl_ca_certs={quoted}"
    with pytest.raises(SettingsError, match="REFINE_REDIS_TLS needs a REDIS_URL that begins with"):
        settings(REFINE_REDIS_TLS="insecure")


def test_mail_needs_a_server_and_a_sender():
    url = "smtps://user:p%40ss@mail.example.org"
    made = settings(REFINE_MAIL_URL=url, REFINE_MAIL_FROM="refine@example.org")

    assert made.mail_url == url
    with pytest.raises(SettingsError, match="REFINE_MAIL_URL needs REFINE_MAIL_FROM"):
        settings(REFINE_MAIL_URL=url)
    for bad in BAD_VALUES["REFINE_MAIL_URL"]:
        with pytest.raises(SettingsError, match="^REFINE_MAIL_URL") as refusal:
            settings(REFINE_MAIL_URL=bad, REFINE_MAIL_FROM="refine@example.org")
        assert "canary" not in str(refusal.value)


def test_bad_values_are_refused_by_the_name_of_the_variable():
    for name, values in BAD_VALUES.items():
        for value in values:
            with pytest.raises(SettingsError) as refusal:
                settings(**{name: value})

            assert str(refusal.value).startswith(f"{name} "), (name, value[:40])
            assert "canary" not in str(refusal.value), name


BAD_VALUES = {
    "DATABASE_URL": [
        *("sqlite:///x.db", "mysql://u:canary@h/x", "db", "postgres://", "postgresql://h:x/db"),
        *("postgresql://u:canary@h:port/db", "postgresql://canary@[h", "postgresql://[::1/db"),
    ],
    "REDIS_URL": [
        *("http://h", "cache", "redis://", "redis://h:99999", "redis://h?db=x"),
        *("rediss://:canary@h?ssl_cert_req=none", "rediss://:canary@h?ssl_cert_reqs=None"),
    ],
    "REFINE_REDIS_TLS": ["secure", "none", "1", "/no/such/file", "/"],
    "REFINE_ENCRYPTION_KEYS": [",", "canary", f"{KEY},canary", f"canary,{KEY}", "ключ"],
    "OPENROUTER_API_KEY": ["canary…", "canary\nX: y", "ключ"],
    "OPENROUTER_BASE_URL": [
        "https://h/v1?api-version=2024-10-21",
        *("openrouter.ai", "ftp://h", "http:h", "http://", "http://u:canary@h"),
        *("http:///v1", "http://:80", "http://h:port"),
    ],
    "REFINE_SCHEDULE": ["weekly", "0 4 * *", "0 4 30 2 *", "61 4 * * 1"],
    "REFINE_COOLDOWN_HOURS": ["0", "169", "-1", "1.5", "x", "２", "1_0", "+1"],
    "REFINE_DETAILS": ["Keep", "keep,count", "1", "x"],
    "REFINE_LIKENESS": ["-0.1", "1.01", "50%", "nan", "x"],
    "REFINE_SECOND_READING": ["On", "1", "x"],
    "REFINE_ROLLING_FLOOR": ["-0.1", "1.01", "50%", "nan", "inf", "snan", "x"],
    "REFINE_MAX_TURNS": ["0", "1001", "9" * 5_000],
    "REFINE_CONCURRENCY": ["0", "101", "many"],
    "REFINE_MAX_SECONDS": ["0", "86401", "15m"],
    "REFINE_CONTEXT_TOKENS": ["999", "100000001", "128k"],
    "REFINE_API_READS_PER_MINUTE": ["0", "many", "1000001"],
    "REFINE_API_WRITES_PER_MINUTE": ["0", "1.5", "-1"],
    "REFINE_PLAIN_OPENAI": ["2", "true", "yes"],
    "PORT": ["0", "65536", "http"],
    "PUBLIC_URL": [
        "refine.example.org",
        "ftp://h",
        "https://",
        "//h",
        "https://h/#/",
        "http://a b",
    ],
    "REFINE_PROXIES": ["-1", "11", "10.0.0.1"],
    "REFINE_OIDC_ISSUER": ["http://id.example.org", "id.example.org", "https://u:canary@h"],
    "REFINE_OIDC_LINK": ["yes"],
    "REFINE_LOG_LEVEL": ["LOUD", "10", "NOTSET"],
    "REFINE_METRICS_TOKEN": ["ключ"],
    "REFINE_MAIL_URL": ["http://canary@h", "smtp:", "smtp://", "smtp://u:canary@", "smtp://h:x"],
    "REFINE_MAIL_FROM": ["canary", "Canary <a@b.org>", "a@b@c"],
}


@pytest.mark.parametrize("scheme", ["postgres", "POSTGRES", "postgresql", "postgresql+psycopg"])
@pytest.mark.parametrize("rest", ["u:p@h:5/db?a=b", "h/db", "/db", "?host=/run&dbname=d"])
def test_a_database_url_names_the_driver(scheme, rest):
    made = settings(DATABASE_URL=f"{scheme}://{rest}")

    assert made.database_url == f"postgresql+psycopg://{rest}"


def test_an_identity_provider_is_named_with_its_client():
    issuer, client_id = "https://id.example.org/", "refine"
    both = settings(REFINE_OIDC_ISSUER=issuer, REFINE_OIDC_CLIENT_ID=client_id)

    assert (both.oidc_issuer, both.oidc_client_id) == ("https://id.example.org", "refine")
    assert settings(
        REFINE_OIDC_ISSUER="http://localhost:9000", REFINE_OIDC_CLIENT_ID=client_id
    ).oidc_issuer
    for half in ({"REFINE_OIDC_ISSUER": issuer}, {"REFINE_OIDC_CLIENT_ID": client_id}):
        with pytest.raises(SettingsError, match="need each other"):
            settings(**half)


def test_secrets_are_required_with_a_database_url():
    for name in ("SECRET_KEY", "REFINE_ENCRYPTION_KEYS"):
        for blank in ("", "  "):
            refusal = f"^{name} must be set when DATABASE_URL is given"
            with pytest.raises(SettingsError, match=refusal):
                settings(**{name: blank})


def test_both_servers_are_embedded_by_default(tmp_path):
    made = Settings.from_environ({"REFINE_DATA_DIR": str(tmp_path)})

    assert (made.embedded_postgres, made.embedded_valkey) == (True, True)
    assert made.database_url == database_url(tmp_path)
    assert made.redis_url == redis_url(tmp_path)


def test_only_valkey_may_be_embedded_and_nothing_is_written_then(tmp_path):
    made = settings(REDIS_URL="", REFINE_DATA_DIR=str(tmp_path))

    assert (made.embedded_postgres, made.embedded_valkey) == (False, True)
    assert made.redis_url == redis_url(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_embedded_secrets_are_private_files(tmp_path):
    folder = tmp_path / "data"

    made = Settings.from_environ({"REFINE_DATA_DIR": str(folder)})

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"secret_key": 0o600, "refine_encryption_keys": 0o600}
    assert len(made.secret_key) >= 32
    assert Fernet(made.encryption_keys[0])


def test_a_lost_key_is_refused_and_works_again_once_it_is_put_back(tmp_path):
    environ = {"REFINE_DATA_DIR": str(tmp_path)}
    first = Settings.from_environ(environ)
    (tmp_path / "postgres").mkdir()
    kept = {path: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    for path in kept:
        path.unlink()

    with pytest.raises(SettingsError, match="refine_encryption_keys is missing.*put the file back"):
        Settings.from_environ(environ)

    assert [path.name for path in tmp_path.iterdir()] == ["postgres"]
    for path, text in kept.items():
        path.write_text(text)
    assert Settings.from_environ(environ) == first


def test_without_the_file_a_key_of_the_environment_opens_the_database(tmp_path):
    (tmp_path / "postgres").mkdir()

    made = Settings.from_environ({"REFINE_DATA_DIR": str(tmp_path), "REFINE_ENCRYPTION_KEYS": KEY})

    assert made.encryption_keys == (KEY,)


def test_secrets_do_not_appear_in_the_repr():
    made = settings(
        DATABASE_URL="postgresql://u:canary-1@h/db",
        REDIS_URL="redis://:canary-2@h",
        SECRET_KEY="canary-3",
        OPENROUTER_API_KEY="canary-4",
        REFINE_METRICS_TOKEN="canary-5",
    )

    assert "canary" not in repr(made)
    assert KEY not in repr(made)
