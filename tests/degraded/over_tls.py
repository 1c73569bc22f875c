"""A Redis that is reached over TLS, with a certificate of its own that nobody knows."""

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from refine import clock


@contextmanager
def over_tls(valkey_socket: Path, certificate: Path) -> Iterator[int]:
    """Pass connections on to a Valkey; yield the port. The certificate is written to the file."""
    write_certificate(certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    class PassOn(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), socket.socket(socket.AF_UNIX) as valkey:
                valkey.connect(str(valkey_socket))
                with context.wrap_socket(self.request, server_side=True) as client:
                    pass_on(client, valkey)

    with ThreadingTCPServer(("127.0.0.1", 0), PassOn) as server:
        server.daemon_threads = True  # clients keep their connections
        threading.Thread(target=server.serve_forever).start()
        yield server.server_address[1]
        server.shutdown()


def pass_on(client: ssl.SSLSocket, valkey: socket.socket) -> None:
    """Until one of them closes the connection."""
    while True:
        has_more = [client] if client.pending() else select.select([client, valkey], [], [])[0]
        for source in has_more:
            if not (data := source.recv(65_536)):
                return
            (valkey if source is client else client).sendall(data)


def write_certificate(file: Path) -> None:
    """Write a certificate for ``localhost`` that its own key signs, and that key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), clock.now()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = key.private_bytes(pem, pkcs8, serialization.NoEncryption())
    file.write_bytes(made.public_bytes(pem) + private)
