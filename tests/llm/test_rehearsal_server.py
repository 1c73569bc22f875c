"""The rehearsal model over HTTP."""

import json
import threading
from typing import Any

import pytest
import requests

from refine.llm.rehearsal import serving

QUESTION = {"role": "user", "content": "Do you consent? Answer YES or NO."}
BODY: dict[str, Any] = {"model": "rehearsal/wren", "messages": [QUESTION]}


def ask(url: str, data: str | None = None) -> requests.Response:
    return requests.post(f"{url}/chat/completions", data=data or json.dumps(BODY), timeout=10)


def test_serves_chat_completions_on_loopback_and_logs_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with serving() as url, serving() as other:
        response = ask(url)

    assert url.startswith("http://127.0.0.1:")
    assert url != other
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"].startswith("YES")
    assert capfd.readouterr() == ("", "")


def test_stops_when_the_block_ends_or_fails() -> None:
    with pytest.raises(RuntimeError), serving() as url:
        raise RuntimeError

    assert not [thread for thread in threading.enumerate() if thread.name == "rehearsal"]
    with pytest.raises(requests.ConnectionError):
        ask(url)
