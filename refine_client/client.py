"""The HTTP API with an agent's token, an operation a method."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import requests

Reason = Literal["same", "outdated", "wrong"]
MemoryType = Literal["core", "journal"]
Row = dict[str, Any]

_SECONDS = 60


class RefineError(Exception):
    """What Refine refused, in its own words; ``status`` is 0 if it could not be reached."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Refine:
    """An agent's memory; without arguments, those of REFINE_URL and REFINE_TOKEN.

    Every method raises RefineError if Refine refuses, or cannot be reached.
    """

    def __init__(self, token: str | None = None, url: str | None = None) -> None:
        address = url or os.environ.get("REFINE_URL", "http://localhost:8000")
        self._api = address.rstrip("/") + "/api/v1"
        self._session = requests.Session()
        self._session.trust_env = False  # .netrc would replace the token
        secret = token or os.environ.get("REFINE_TOKEN", "")
        self._session.headers["Authorization"] = f"Bearer {secret}"

    # -- memories ---------------------------------------------------------------------------------

    def context(self) -> str | None:
        """Return the memory as Markdown for the agent's prompt; None if it is empty."""
        text: str | None = self._get("/context")["context"]
        return text

    def memories(self, query: str | None = None, **filters: Any) -> Iterator[Row]:
        """Yield memories, newest first: with this part of a text, of a ``type``, ``retired`` …"""
        wanted = {name: _plain(value) for name, value in filters.items()}
        return self._pages("/memories", "memories", {**wanted, "query": query})

    def memory(self, memory_id: int) -> Row:
        """Return one memory with its history."""
        return self._get(f"/memories/{memory_id}")

    def save(self, content: str, memory_type: MemoryType = "core", tags: Sequence[str] = ()) -> Row:
        """Save a memory; return it, or the core memory that says exactly the same."""
        new = {"content": content, "memory_type": memory_type, "tags": list(tags)}
        return self._post("/memories", new)

    def correct(self, memory_id: int, content: str, reason: Reason = "wrong") -> Row:
        """Put a new memory in place of one, which can be restored; return the new one."""
        return self._ask(
            "PATCH", f"/memories/{memory_id}", json={"content": content, "reason": reason}
        )

    def forget(self, memory_id: int, reason: Reason = "outdated") -> Row:
        """Forget a memory, which can be restored."""
        return self._ask("DELETE", f"/memories/{memory_id}", params={"reason": reason})

    def bring(self, source: str, rows: Sequence[Mapping[str, Any]]) -> Row:
        """Import up to 1,000 rows; return what became of each."""
        return self._post("/imports", {"source": source, "rows": list(rows)})

    def export(self) -> list[Row]:
        """Return all kept memories as rows that can be imported."""
        rows: list[Row] = self._get("/export")["rows"]
        return rows

    # -- tools and conversations ------------------------------------------------------------------

    def tools(self) -> Any:
        """Return the function definitions for chat completions."""
        return self._get("/tools")

    def call(self, tool: str, arguments: str) -> Row:
        """Carry out a tool call of the model, with its arguments as it wrote them."""
        path = f"/tools/{quote(tool, safe='')}/calls"
        return self._ask("POST", path, data=arguments.encode())

    def hand_over(self, messages: Sequence[Mapping[str, Any]]) -> Row:
        """Hand over a finished conversation, to be read for what is worth keeping."""
        return self._post("/conversations", {"messages": list(messages)})

    # -- sessions, and who may read ---------------------------------------------------------------

    def sessions(self) -> Iterator[Row]:
        """Yield the agent's sessions, newest first."""
        return self._pages("/sessions", "sessions", {})

    def request_session(self) -> Row:
        """Ask for a session, in which the agent tidies its memory; it will be asked first."""
        return self._post("/sessions", {})

    def undo(self, session_id: str) -> Row:
        """Undo the last session."""
        return self._post(f"/sessions/{quote(session_id, safe='')}/undo", {})

    def grants(self) -> Iterator[Row]:
        """Yield who asked to read the memories, and what became of it, newest first."""
        return self._pages("/grants", "grants", {})

    def revoke(self, grant_id: str) -> None:
        """End somebody's access."""
        self._ask("DELETE", f"/grants/{quote(grant_id, safe='')}")

    # ---------------------------------------------------------------------------------------------

    def _get(self, path: str, **query: Any) -> Any:
        return self._ask("GET", path, params=query)

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._ask("POST", path, json=body)

    def _pages(self, path: str, name: str, query: Mapping[str, Any]) -> Iterator[Row]:
        cursor: str | None = None
        while True:
            page = self._get(path, **query, cursor=cursor)
            yield from page[name]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _ask(self, method: str, path: str, **sent: Any) -> Any:
        try:
            answer = self._session.request(
                method, self._api + path, timeout=_SECONDS, allow_redirects=False, **sent
            )
        except requests.RequestException as fault:
            raise RefineError(0, f"Refine does not answer: {type(fault).__name__}") from None
        if not answer.ok or answer.is_redirect:
            raise RefineError(answer.status_code, _detail(answer))
        return answer.json() if answer.content else None


def _plain(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _detail(answer: requests.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"Refine answered with status {answer.status_code}"
