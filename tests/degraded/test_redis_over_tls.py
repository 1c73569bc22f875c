"""Redis with a certificate of one's own: what says so, and what helps."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from flask import Flask

from refine.embedded.addresses import valkey_socket
from refine.models import User
from tests.degraded.over_tls import over_tls
from tests.forked import refine
from tests.web.conftest import browser_of, signed_in_browser, with_settings, words_of

WithSettings = Callable[..., Flask]
REMEDY = (
    "add ?ssl_ca_certs=/path to REDIS_URL, the file of who issued it, or ?ssl_cert_reqs=none to "
    "trust any certificate"
)
SAID = f"Redis's certificate is not trusted (self-signed certificate); {REMEDY}"

__all__ = ["with_settings"]


class Tls(NamedTuple):
    """Where it is reached, and its certificate."""

    port: int
    certificate: Path


@pytest.fixture(scope="module")
def tls(servers: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    certificate = tmp_path_factory.mktemp("tls") / "certificate.pem"
    with over_tls(valkey_socket(servers), certificate) as port:
        yield Tls(port, certificate)


def test_pages_name_an_unknown_certificate_and_its_remedy(
    tls: Tls, with_settings: WithSettings, admin: User
) -> None:
    app = with_settings(REDIS_URL=f"rediss://:a-password@localhost:{tls.port}/0")
    dashboard = signed_in_browser(app, admin)

    pages = [words_of(dashboard.get(path).text) for path in ("/ops", "/")]
    answer = browser_of(app).get("/readyz")

    assert answer.json is not None
    assert answer.json["redis"] == SAID
    assert all(SAID in page for page in pages)
    assert "a-password" not in f"{pages}{answer.text}"


@pytest.mark.parametrize("command", [["doctor"], ["worker"], ["clock"]])
def test_commands_name_an_unknown_certificate_and_its_remedy(
    tls: Tls, environ: dict[str, str], admin: User, command: list[str]
) -> None:
    url = f"rediss://:a-password@localhost:{tls.port}/0"

    done = refine(*command, environ={**environ, "REDIS_URL": url})

    assert done.returncode == 1
    assert SAID in " ".join(f"{done.stdout}{done.stderr}".split())
    assert "a-password" not in f"{done.stdout}{done.stderr}"


def test_both_remedies_help(tls: Tls, with_settings: WithSettings) -> None:
    for remedy in (f"ssl_ca_certs={tls.certificate}", "ssl_cert_reqs=none"):
        app = with_settings(REDIS_URL=f"rediss://localhost:{tls.port}/0?{remedy}")

        assert browser_of(app).get("/readyz").json["redis"] == "ok"


def test_a_missing_file_of_certificates_is_told_from_a_redis_that_is_away(
    tls: Tls, with_settings: WithSettings
) -> None:
    app = with_settings(REDIS_URL=f"rediss://localhost:{tls.port}/0?ssl_ca_certs=/no/such.pem")

    assert (
        browser_of(app).get("/readyz").json["redis"].endswith("fix REDIS_URL (FileNotFoundError)")
    )


def test_a_certificate_for_another_host_is_named_without_the_host(
    tls: Tls, with_settings: WithSettings
) -> None:
    known = f"ssl_ca_certs={tls.certificate}"
    app = with_settings(REDIS_URL=f"rediss://127.0.0.1:{tls.port}/0?{known}")

    said = browser_of(app).get("/readyz").json["redis"]

    assert said == f"Redis's certificate is not trusted (IP address mismatch); {REMEDY}"
