"""Redis behind TLS with a private certificate: Debian's, where it is installed."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from refine.embedded import valkey
from refine.embedded.folders import valkey_socket
from refine.embedded.processes import new_log, running_server
from tests.browser.serving import free_port
from tests.jobs.test_redis_tls import self_signed, tls_before


@contextmanager
def redis_over_tls(folder: Path) -> Iterator[dict[str, str]]:
    """Run it in this folder, and yield the variables of who uses it."""
    certificate = self_signed(folder)
    program = shutil.which("redis-server")
    if program is None:
        print("a relay before Valkey: Redis is not installed (apt-get install redis-server)")
        with valkey.running(folder), tls_before(str(valkey_socket(folder)), certificate) as port:
            yield _variables(port, certificate)
        return
    port, data = free_port(), folder / "redis"
    data.mkdir()
    settings = {
        "dir": data,
        "bind": "127.0.0.1",
        "port": 0,
        "tls-port": port,
        "tls-cert-file": certificate,
        "tls-key-file": certificate,
        "tls-auth-clients": "no",
        "appendonly": "yes",
    }
    options = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    with running_server(
        "Redis",
        [program, *options],
        new_log(folder / "redis.log"),
        is_ready=lambda _pid: _answers(port, certificate),
        stop_signals=[signal.SIGTERM],
        folder=data,
    ):
        yield _variables(port, certificate)


def _variables(port: int, certificate: Path) -> dict[str, str]:
    return {"REDIS_URL": f"rediss://127.0.0.1:{port}/0", "REFINE_REDIS_TLS": str(certificate)}


def _answers(port: int, certificate: Path) -> bool:
    try:
        with Redis("127.0.0.1", port, ssl=True, ssl_ca_certs=str(certificate)) as redis:
            return bool(redis.ping())
    except RedisError:
        return False
