"""Redis behind TLS with a certificate that nobody trusts by itself, as Heroku's add-on has it."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from refine.errors import Unreachable
from refine.jobs.queue import require_redis
from tests.conftest import app_of


def self_signed(folder: Path) -> Path:
    """A file with a certificate for this machine and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return file


@contextmanager
def tls_before(address: str, certificate: Path) -> Iterator[int]:
    """Pass on what arrives by TLS at this port to a server's Unix socket."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(65536):
                target.sendall(part)

    def serve(plain: socket.socket) -> None:
        with (
            suppress(OSError),
            context.wrap_socket(plain, server_side=True) as client,
            socket.socket(socket.AF_UNIX) as server,
        ):
            server.connect(address)
            back = threading.Thread(target=pump, args=(server, client), daemon=True)
            back.start()
            pump(client, server)
            server.shutdown(socket.SHUT_RDWR)
            back.join()

    def accept() -> None:
        with suppress(OSError):
            while True:
                plain, _ = listening.accept()
                threading.Thread(target=serve, args=(plain,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return self_signed(tmp_path)


@pytest.fixture
def behind_tls(environ: dict[str, str], certificate: Path) -> Iterator[dict[str, str]]:
    """An environment whose Redis shows the certificate."""
    with tls_before(urlsplit(environ["REDIS_URL"]).path, certificate) as port:
        yield {**environ, "REDIS_URL": f"rediss://127.0.0.1:{port}/0"}


def test_a_certificate_that_nobody_trusts_is_told_with_its_remedy(behind_tls):
    with app_of(behind_tls), pytest.raises(Unreachable, match="not trusted.*set REFINE_REDIS_TLS"):
        require_redis()


def test_redis_is_used_over_tls_as_the_setting_says(behind_tls, certificate):
    for tls in ("insecure", str(certificate)):
        with app_of({**behind_tls, "REFINE_REDIS_TLS": tls}):
            require_redis()
