"""Programs at the HTTP API whose every word is a canary: what they send, and are answered."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import requests

from refine.rules.content import MAX_CONTENT_CHARACTERS
from tests.privacy.traces import Traces
from tests.web.crawling import CANARY

JSON = {"Content-Type": "application/json"}
PROMPTS = ("system_prompt", "reflection_prompt", "memory_reflection_prompt", "refinement_prompt")


class Program:
    """Whoever bears a token; ``answers`` has all that it was answered but what was its to read."""

    def __init__(self, url: str, secret: str, *, may_read: bool) -> None:
        self.answers: Traces = {}
        self.was_read = ""
        self._url = f"{url}/api/v1"
        self._may_read = may_read
        self._bearer = {"Authorization": f"Bearer {secret}"}

    def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, **options: Any
    ) -> requests.Response:
        # a connection each: what is refused unread ends the one that it came on
        sent = {**self._bearer, **(headers or {})}
        answer = requests.request(method, self._url + path, headers=sent, timeout=30, **options)
        said = f"{answer.status_code} {answer.headers}"
        if self._may_read and answer.ok:
            self.was_read += answer.text
        else:
            said += answer.text
        self.answers[f"answer {len(self.answers)} {method} {path}"] = said.encode()
        return answer

    def says(self, path: str, body: Any, **headers: str) -> requests.Response:
        """Send something that is taken."""
        answer = self.ask("POST", path, json=body, headers=headers)
        assert answer.ok, (path, answer.text)
        return answer


class Bad(NamedTuple):
    """A request that is refused, and how."""

    status: int
    path: str
    body: bytes | dict[str, Any]
    headers: dict[str, str] = {}
    method: str = "POST"


def refused_of_an_agent() -> Iterator[Bad]:
    """Requests that are wrong in every place that holds content."""
    memory = {"content": CANARY, "memory_type": "core"}
    for wrong in (
        {**memory, "memory_type": CANARY},
        {**memory, "tags": [CANARY]},
        {**memory, CANARY: 1},
        {**memory, "content": [CANARY]},
        {**memory, "content": CANARY * MAX_CONTENT_CHARACTERS},
    ):
        yield Bad(422, "/memories", wrong)
    for unreadable in (
        f'{{"content": "{CANARY}',
        f'{{"content": "{CANARY}", "content": "{CANARY}"}}',
        f'{{"{CANARY}": NaN}}',
        f'{{"content": "{CANARY}\\u0000", "memory_type": "core"}}',
    ):
        yield Bad(400, "/memories", unreadable.encode(), JSON)
    yield Bad(413, "/memories", {**memory, "content": CANARY * 30_000})
    yield Bad(415, "/memories", CANARY.encode(), {"Content-Type": "text/plain"})
    message = {"role": "user", "content": CANARY}
    for wrong in (
        {**message, "role": CANARY},
        {**message, CANARY: CANARY},
        {**message, "name": f"{CANARY}\n{CANARY}"},
        {**message, "content": {CANARY: CANARY}},
    ):
        yield Bad(422, "/conversations", {"messages": [message, wrong]})
    yield Bad(404, f"/tools/{CANARY}/calls", {"content": CANARY})
    yield Bad(422, f"/memories?cursor={CANARY}", b"", method="GET")
    yield Bad(404, f"/{CANARY}", {"content": CANARY})
    yield Bad(403, "/agents", {"content": CANARY})


def refused_of_a_platform(agent_id: int) -> Iterator[Bad]:
    """What it may not do, and prompts that are not taken."""
    agent = f"/agents/{agent_id}"
    for wrong in (
        {"system_prompt": CANARY * 1_000},
        {"refinement_prompt": [CANARY]},
        {"system_prompt": f"{CANARY}\0"},
        {"refinement_threshold": CANARY},
        {"active": CANARY},
        {CANARY: CANARY},
    ):
        status = 400 if "\0" in str(*wrong.values()) else 422
        yield Bad(status, agent, wrong, method="PATCH")
    yield Bad(422, f"{agent}/tokens", {"expires_at": CANARY})
    for wrong in ({"url": f"https://{CANARY}/#"}, {"url": "https://a", "kinds": [CANARY]}):
        yield Bad(422, "/webhooks", wrong)
    yield Bad(403, "/memories", {"content": CANARY, "memory_type": "core"})
    yield Bad(403, "/context", b"", method="GET")


def send_refused(program: Program, bad: Bad) -> None:
    """Send it, and have it refused as it should be."""
    given = {"data": bad.body} if isinstance(bad.body, bytes) else {"json": bad.body}
    answer = program.ask(bad.method, bad.path, headers=bad.headers, **given)
    assert answer.status_code == bad.status, (bad.path, str(bad.body)[:100], answer.text)
