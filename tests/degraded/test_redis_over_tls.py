"""A Redis whose certificate nobody knows: pages name it and its remedy, and no password."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flask import Flask

from refine import clock
from tests.web.conftest import browser_of, with_settings

__all__ = ["with_settings"]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where a server shows a certificate that its own key signed, and says nothing more."""
    certificate = tmp_path_factory.mktemp("tls") / "certificate.pem"
    write_certificate(certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=answer_all, args=(listening, context), daemon=True).start()
        yield listening.getsockname()[1]


def answer_all(listening: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        client, _ = listening.accept()
        with client, suppress(OSError), context.wrap_socket(client, server_side=True):
            pass


def write_certificate(file: Path) -> None:
    """Write a certificate for ``localhost`` that its own key signs, and that key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), clock.now()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = key.private_bytes(pem, pkcs8, serialization.NoEncryption())
    file.write_bytes(made.public_bytes(pem) + private)


def test_an_unknown_certificate_is_named_with_its_remedy(
    port: int, with_settings: Callable[..., Flask]
) -> None:
    app = with_settings(REDIS_URL=f"rediss://:a-password@localhost:{port}/0")

    said = browser_of(app).get("/readyz").json["redis"]

    assert said == (
        "Redis's certificate is not trusted (self-signed certificate); add "
        "?ssl_ca_certs=/path to REDIS_URL, the file of who issued it, or ?ssl_cert_reqs=none to "
        "trust any certificate"
    )


def test_a_missing_file_of_certificates_is_told_from_a_redis_that_is_away(
    port: int, with_settings: Callable[..., Flask]
) -> None:
    app = with_settings(REDIS_URL=f"rediss://localhost:{port}/0?ssl_ca_certs=/no/such.pem")

    said = browser_of(app).get("/readyz").json["redis"]

    assert said.endswith("fix REDIS_URL (FileNotFoundError)")
