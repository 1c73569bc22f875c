"""Every page that a link leads to, for whoever listens for a canary."""

import re
from collections.abc import Iterator
from typing import Any, Protocol

from tests.web.conftest import links_of

CANARY = "canarysings"
# More than these of one page with the same arguments, and there is nothing new to be found.
_LOOKED_AT_OF_A_KIND = 4


class Reader(Protocol):
    """Whoever asks for pages, in this process or over HTTP."""

    def get(self, path: str, /) -> Any:
        """Return the answer: its status code, headers and text."""


def kind_of(url: str) -> str:
    """Pages that differ by an id or a value alone are of one kind."""
    path, _, query = url.partition("?")
    arguments = re.sub(r"=[^&]*", "", query)
    return re.sub(r"[0-9a-f-]{36}|\d+", "0", path) + "?" + arguments


def _expected_of(url: str) -> tuple[int, ...]:
    """A page that says what would be done may have to say that it is refused."""
    return (200, 409) if url.partition("?")[0].endswith("/undo") else (200,)


def crawl(
    dashboard: Reader, front: str = "/", of_a_kind: int = _LOOKED_AT_OF_A_KIND
) -> Iterator[tuple[str, str]]:
    """Every page that a link leads to, from the front page on: its address, and all it says."""
    waiting, seen, looked_at = [front], {front}, dict[str, int]()
    while waiting:
        url = waiting.pop(0)
        kind = kind_of(url)
        looked_at[kind] = looked_at.get(kind, 0) + 1
        if looked_at[kind] > of_a_kind:
            continue
        answer = dashboard.get(url)
        assert answer.status_code in _expected_of(url), url
        yield url, f"{answer.headers}\n{answer.text}"
        found = [link for link in links_of(answer.text) if link not in seen]
        seen.update(found)
        waiting += found
