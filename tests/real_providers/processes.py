"""Starts the servers of others on loopback, waits until they answer, and ends them."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import requests

_STARTING_SECONDS = 120.0
_POLL_SECONDS = 0.25
_ENDING_SECONDS = 15.0
_SHOWN_LINES = 30

# They answer on loopback only, and ask nobody else for anything.
_AT_HOME = {
    "NO_PROXY": "*",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "HF_HUB_OFFLINE": "1",
}


class DidNotStart(Exception):
    """A server ended, or did not answer in time; the message ends with what it said."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    command: list[str], ready_url: str, said: Path, variables: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a server until the block ends; what it says goes to the file ``said``."""
    environ = {**os.environ, **_AT_HOME, **(variables or {})}
    with said.open("wb") as output:
        process = subprocess.Popen(
            command, env=environ, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        try:
            _wait_for(process, ready_url, said)
            yield
        finally:
            _end(process)


def _wait_for(process: subprocess.Popen[bytes], ready_url: str, said: Path) -> None:
    deadline = time.monotonic() + _STARTING_SECONDS
    while not _answers(ready_url):
        if process.poll() is not None or time.monotonic() > deadline:
            last = said.read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
            raise DidNotStart("\n".join([f"no answer from {urlsplit(ready_url).netloc}:", *last]))
        time.sleep(_POLL_SECONDS)


def _answers(url: str) -> bool:
    with requests.Session() as http:
        http.trust_env = False
        try:
            return http.get(url, timeout=5).ok
        except requests.RequestException:
            return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
