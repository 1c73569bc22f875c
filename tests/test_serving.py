"""The web server, by real sockets: clients that are slow, or say nothing, hold up nobody."""

import multiprocessing
import resource
import signal
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

from refine import serving
from refine.errors import Refused
from tests.browser.serving import free_port
from tests.commands import eventually, services

pytestmark = pytest.mark.slow

HOST = "127.0.0.1"
_BIG = 5_000_000
_SLOW_HEAD = b"GET /healthz HTTP/1.1\r\nX-Slow: "
_SLOW_BODY = (
    b"POST /api/v1/memories HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Closes the connections that a test opens."""
    with ExitStack() as stack:
        yield stack


def connect(opened: ExitStack, port: int, said: bytes = b"", host: str = HOST) -> socket.socket:
    client = opened.enter_context(socket.create_connection((host, port), timeout=10))
    client.sendall(said)
    return client


def ask(port: int, path: str = "/healthz", *headers: str, host: str = HOST) -> bytes:
    """The whole answer to a request."""
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]
    with socket.create_connection((host, port), timeout=10) as client:
        client.sendall("\r\n".join(lines).encode())
        return read_all(client)


def read_all(client: socket.socket) -> bytes:
    return b"".join(iter(partial(client.recv, 65536), b""))


def is_answering(port: int) -> bool:
    try:
        return ask(port).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


@pytest.fixture
def web(environ: dict[str, str], tmp_path: Path) -> Iterator[int]:
    """The port of a running `refine web`."""
    with running_web(environ, tmp_path, processes=1) as port:
        yield port


@contextmanager
def running_web(environ: dict[str, str], folder: Path, *, processes: int) -> Iterator[int]:
    port = free_port()
    own = {**environ, "HOST": HOST, "PORT": str(port), "WEB_CONCURRENCY": str(processes)}
    with services(own, folder) as start:
        started = start("web")
        eventually(lambda: is_answering(port))
        yield port
        started.signal(signal.SIGTERM)
        assert started.wait() == 0


@contextmanager
def sending_slowly(clients: list[socket.socket]) -> Iterator[None]:
    """Send one byte a second for each client."""
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            for client in clients:
                client.sendall(b"x")
                ended.wait(1 / len(clients))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


def test_the_server_says_where_it_listens(environ, tmp_path):
    with running_web(environ, tmp_path, processes=1) as port:
        said = (tmp_path / "said-0").read_text()

    assert '"event": "listening"' in said
    assert f'"port": {port}' in said


def test_idle_and_slow_clients_delay_nobody(app, web, opened):
    for _ in range(500):
        connect(opened, web)
    slow = [connect(opened, web, said) for _ in range(250) for said in (_SLOW_HEAD, _SLOW_BODY)]

    with sending_slowly(slow):
        took = {"/healthz": [], "/sign-in": []}
        for _ in range(20):
            for path, seconds in took.items():
                began = time.monotonic()
                assert ask(web, path).startswith(b"HTTP/1.1 200")
                seconds.append(time.monotonic() - began)

    assert statistics.median(took["/healthz"]) < 0.1
    assert statistics.median(took["/sign-in"]) < 0.2


def test_each_process_tells_how_long_requests_to_all_of_them_took(app, environ, tmp_path):
    with running_web(environ, tmp_path, processes=3) as port:
        for _ in range(30):
            assert ask(port, "/sign-in").startswith(b"HTTP/1.1 200")
        told = {ask(port, "/metrics").partition(b"\r\n\r\n")[2] for _ in range(10)}

    count = b'refine_request_seconds_count{route="/sign-in",status="2xx"} 30.0'
    assert [each for each in told if count not in each] == []


# -- the server alone, with an application for tests -----------------------------------------------


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    body = environ["wsgi.input"].read()
    answer = {
        "/big": b"x" * _BIG,
        "/length": str(len(body)).encode(),
        "/client": repr((environ["REMOTE_ADDR"], environ.get("HTTP_X_FORWARDED_FOR"))).encode(),
    }.get(environ["PATH_INFO"], environ["SCRIPT_NAME"].encode())
    if environ["PATH_INFO"] == "/slow":
        time.sleep(1)
        answer = b"finished"
    start_response("200 OK", [("Content-Length", str(len(answer)))])
    return [answer]


@contextmanager
def served(host: str | None = HOST, prefix: str = "", before: Callable[[], None] = lambda: None):
    """The process that serves it, and the port."""
    port = free_port()
    sockets = serving.bound_sockets(host, port)

    def serve() -> None:
        before()
        serving.serve(application, sockets, prefix)

    process = multiprocessing.get_context("fork").Process(target=serve)
    process.start()
    for each in sockets:
        each.close()
    try:
        eventually(lambda: is_answering(port))
        yield process, port
    finally:
        process.terminate()
        process.join(20)
        assert process.exitcode == 0


def write_no_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def test_nothing_that_is_sent_or_answered_is_written_to_the_disk(opened):
    body = b"x" * _BIG
    head = f"POST /length HTTP/1.0\r\nContent-Length: {_BIG}\r\n\r\n".encode()

    with served(before=write_no_files) as (_, port):
        uploaded = read_all(connect(opened, port, head + body))
        slow_reader = connect(opened, port, b"GET /big HTTP/1.0\r\n\r\n")
        time.sleep(0.2)  # what it does not read waits in the server
        is_still_answering = is_answering(port)
        downloaded = read_all(slow_reader)

    assert uploaded.endswith(b"\r\n\r\n5000000")
    assert is_still_answering
    assert downloaded.count(b"x") == _BIG


def test_what_is_being_answered_at_a_stop_is_finished_and_nothing_else(opened):
    with served() as (process, port):
        idle = connect(opened, port)
        asked = connect(opened, port, b"GET /slow HTTP/1.0\r\n\r\n")
        time.sleep(0.3)
        process.terminate()

        assert read_all(asked).endswith(b"finished")
        assert read_all(idle) == b""
        with pytest.raises(ConnectionError):
            ask(port)


def test_the_oldest_connections_make_room_for_new_ones(opened):
    with served() as (_, port):
        oldest, *_, newest = [connect(opened, port) for _ in range(serving.CONNECTIONS + 100)]

        assert is_answering(port)
        assert read_all(oldest) == b""
        newest.sendall(b"GET /length HTTP/1.0\r\n\r\n")
        assert read_all(newest).endswith(b"0")


def test_half_sent_requests_cannot_fill_the_memory(opened):
    length = serving.BODY_BYTES - 1
    head = f"POST /length HTTP/1.0\r\nContent-Length: {length}\r\n\r\n".encode()

    with served() as (_, port):
        clients = [connect(opened, port, head + b"x" * (length - 1)) for _ in range(5)]

        assert read_all(clients[0]) == b""
        clients[-1].sendall(b"x")
        assert read_all(clients[-1]).endswith(str(length).encode())


def test_a_body_that_no_operation_accepts_is_refused_before_it_is_sent(opened):
    head = f"POST /length HTTP/1.0\r\nContent-Length: {serving.BODY_BYTES}\r\n\r\n".encode()

    with served() as (_, port):
        answer = read_all(connect(opened, port, head))

    assert answer.startswith(b"HTTP/1.0 413")


@pytest.mark.parametrize(
    "smuggled",
    [
        b"POST /length HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"POST /length HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST /length HTTP/1.1\r\nContent-Length: +5\r\n\r\n12345",
        b"GET /length HTTP/1.1\nHost: x\r\n\r\n",
        b"GET /length HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET /length HTTP/1.1\r\nX-Long: ".ljust(64 * 1024, b"x"),
    ],
)
def test_what_two_servers_could_read_differently_is_refused(opened, smuggled):
    with served() as (_, port):
        answer = read_all(connect(opened, port, smuggled))

    assert answer[9:12] in (b"400", b"431", b"501")
    assert answer.count(b"HTTP/1.") == 1


def test_the_application_learns_who_calls_and_what_proxies_say(opened):
    with served() as (_, port):
        answer = ask(port, "/client", "X-Forwarded-For: 192.0.2.1", "X_Forwarded_For: 192.0.2.2")

    assert answer.endswith(b"('127.0.0.1', '192.0.2.1')")


def test_a_path_that_the_proxy_passes_on_is_the_prefix(opened):
    with served(prefix="/refine") as (_, port):
        assert ask(port, "/refine/").endswith(b"\r\n\r\n/refine")


def test_all_addresses_are_served_unless_one_is_named(opened):
    with served(host=None) as (_, port):
        assert is_answering(port)
        assert ask(port, "/client", host="::1").endswith(b"('::1', None)")


def test_a_taken_port_is_refused(opened):
    with served() as (_, port), pytest.raises(Refused, match=f"port {port} cannot be used"):
        serving.bound_sockets(HOST, port)


def test_no_operation_accepts_more_than_the_server(app):
    from refine.api.routing import OPERATIONS  # noqa: PLC0415

    assert max(each.max_bytes for each in OPERATIONS) < serving.BODY_BYTES
