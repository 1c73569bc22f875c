"""The HTTP API with an agent's token, an operation a method."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self
from urllib.parse import quote

import requests
from requests.auth import AuthBase

Reason = Literal["same", "outdated", "wrong"]
MemoryType = Literal["core", "journal"]
Row = dict[str, Any]

_SECONDS = 60


class RefineError(Exception):
    """What Refine refused, in its own words; ``status`` is 0 if it could not be reached.

    ``retry_after_seconds`` is set if the same may be done a little later.
    """

    def __init__(self, status: int, detail: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.retry_after_seconds = retry_after_seconds


class _Bearer(AuthBase):
    """Sends the token, which .netrc would replace if it were only a header."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class Refine:
    """An agent's memory, by its token; REFINE_TOKEN and REFINE_URL say what is not given.

    Every method raises RefineError if Refine refuses, or cannot be reached.
    """

    def __init__(self, token: str | None = None, url: str | None = None) -> None:
        if token is None:
            token = os.environ.get("REFINE_TOKEN", "").strip()
        if url is None:
            url = os.environ.get("REFINE_URL", "http://localhost:8000")
        self._api = url.rstrip("/") + "/api/v1"
        self._session = requests.Session()
        self._session.auth = _Bearer(token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are kept open."""
        self._session.close()

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
        new = {"content": content, "reason": reason}
        return self._row("PATCH", f"/memories/{memory_id}", json=new)

    def forget(self, memory_id: int, reason: Reason = "outdated") -> Row:
        """Forget a memory, which can be restored."""
        return self._row("DELETE", f"/memories/{memory_id}", params={"reason": reason})

    def bring(self, source: str, rows: Sequence[Mapping[str, Any]]) -> Row:
        """Import up to 1,000 rows; return what became of each."""
        return self._post("/imports", {"source": source, "rows": list(rows)})

    def export(self) -> list[Row]:
        """Return all kept memories as rows that can be imported."""
        rows: list[Row] = self._get("/export")["rows"]
        return rows

    # -- tools and conversations ------------------------------------------------------------------

    def tools(self) -> list[Row]:
        """Return the function definitions for chat completions."""
        definitions: list[Row] = self._ask("GET", "/tools")
        return definitions

    def call(self, tool: str, arguments: str) -> Row:
        """Carry out a tool call of the model, with its arguments as it wrote them.

        What is refused is no RefineError, but an answer of the type ``error``, for the model.
        """
        path = f"/tools/{quote(tool, safe='')}/calls"
        return self._row("POST", path, data=arguments.encode())

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

    def undo_last_session(self) -> Row:
        """Undo the last session that changed memories."""
        last = next((each for each in self.sessions() if _has_changes(each)), None)
        if last is None:
            raise RefineError(409, "There is no session to undo.")
        return self._post(f"/sessions/{last['id']}/undo", {})

    def grants(self) -> Iterator[Row]:
        """Yield who asked to read the memories, and what became of it, newest first."""
        return self._pages("/grants", "grants", {})

    def revoke(self, grant_id: str) -> None:
        """End somebody's access."""
        self._ask("DELETE", f"/grants/{quote(grant_id, safe='')}")

    # ---------------------------------------------------------------------------------------------

    def _get(self, path: str, **query: Any) -> Row:
        return self._row("GET", path, params=query)

    def _post(self, path: str, body: Mapping[str, Any]) -> Row:
        return self._row("POST", path, json=body)

    def _row(self, method: str, path: str, **sent: Any) -> Row:
        row: Row = self._ask(method, path, **sent)
        return row

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
            after = answer.headers.get("Retry-After", "")
            wait = int(after) if after.isdecimal() else None
            raise RefineError(answer.status_code, _detail(answer), wait)
        return answer.json() if answer.content else None


def _has_changes(session: Row) -> bool:
    has_edits = session["mutation_count"] > 0 and session["status"] != "rolled_back"
    return session["ended_at"] is not None and (has_edits or session["duplicates_removed"] > 0)


def _plain(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _detail(answer: requests.Response) -> str:
    try:
        problem = answer.json()
        if "errors" in problem:
            return "; ".join(each["detail"] for each in problem["errors"])
        title = f"{problem['title']}. " if answer.status_code == 401 else ""
        return f"{title}{problem['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"Refine answered with status {answer.status_code}"
