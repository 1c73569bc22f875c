"""What an agent's program and an admin do meanwhile, over HTTP; and what they were promised."""

import re
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import requests

from tests import factories

_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')
_ID = re.compile(r"/sessions/([0-9a-f-]{36})")
_TIMEOUT_SECONDS = 20
_TIMES = 4
_UNAVAILABLE = 503


@dataclass(frozen=True)
class Tenant:
    """An agent with its token, and a memory whose flag the admin sets and lifts."""

    agent_id: int
    token: str
    toggled_id: int


@dataclass(frozen=True)
class Promise:
    """What an answer promised to be there: a memory, session, conversation or undo."""

    kind: str
    id: str
    agent_id: int


class Load:
    """Threads that ask for things until they are stopped."""

    def __init__(self, tenants: Sequence[Tenant], email: str, base_url: str, seed: int) -> None:
        self.promises: list[Promise] = []
        self.saved: list[tuple[int, str]] = []  # by which agent, and what; each by one request
        self.faults: list[str] = []
        self.requests = 0
        self._tenants, self._email, self.base_url = tenants, email, base_url
        self._stopped = threading.Event()
        self._csrf: str | None = None
        acts = (self._program, self._program, self._program, self._admin)
        self._threads = [
            threading.Thread(target=self._live, args=(act, Random(f"{seed} {n}")), daemon=True)
            for n, act in enumerate(acts)
        ]
        self._browser = requests.Session()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask for nothing more, and wait for the answers that are due."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(_TIMES * _TIMEOUT_SECONDS)

    def _live(self, act: Any, dice: Random) -> None:
        while not self._stopped.wait(dice.uniform(0, 1.2)):
            try:
                act(dice, dice.choice(self._tenants))
            except (requests.RequestException, ValueError, KeyError):
                continue  # no answer promises nothing

    def _ask(self, with_: Any, method: str, path: str, **options: Any) -> requests.Response:
        """Ask; what is away is called unavailable, anything else of 500 is a fault."""
        self.requests += 1
        url = self.base_url + path
        answer = with_.request(
            method, url, timeout=_TIMEOUT_SECONDS, allow_redirects=False, **options
        )
        if answer.status_code >= 500 and answer.status_code != _UNAVAILABLE:
            self.faults.append(f"{answer.status_code} to {method} {path}")
        return answer

    # -- the agent's program ----------------------------------------------------------------------

    def _program(self, dice: Random, tenant: Tenant) -> None:
        acts = (self._save, self._ask_for_session, self._hand_over, self._undo)
        dice.choices(acts, (4, 6, 1, 1))[0](dice, tenant)

    def _save(self, dice: Random, tenant: Tenant) -> None:
        """Save something that nobody else says, under one key, until there is an answer."""
        content = f"{factories.text_of(20)} {factories.mark(dice.getrandbits(40))}"
        self.saved.append((tenant.agent_id, content))
        kind = dice.choice(("core", "core", "journal"))
        key = {"Idempotency-Key": str(uuid.UUID(int=dice.getrandbits(128)))}
        for _ in range(_TIMES):
            try:
                body = {"content": content, "memory_type": kind}
                answer = self._send(tenant, "POST", "/memories", body, key)
            except requests.RequestException:
                time.sleep(1)
                continue
            if answer.status_code in (200, 201):
                self._promised("memory", tenant, answer.json()["id"])
            if answer.status_code < 500:
                return
            time.sleep(1)

    def _ask_for_session(self, _dice: Random, tenant: Tenant) -> None:
        asked = self._send(tenant, "POST", "/sessions", {})
        if asked.status_code == 202:
            self._promised("session", tenant, asked.json()["id"])

    def _hand_over(self, _dice: Random, tenant: Tenant) -> None:
        said = [{"role": "user", "content": "Remember the bees."}]
        handed = self._send(tenant, "POST", "/conversations", {"messages": said})
        if handed.status_code == 202:
            self._promised("conversation", tenant, handed.json()["id"])

    def _undo(self, _dice: Random, tenant: Tenant) -> None:
        for session in self._send(tenant, "GET", "/sessions?limit=5").json()["sessions"]:
            if session["status"] == "completed" and session["undone_at"] is None:
                undone = self._send(tenant, "POST", f"/sessions/{session['id']}/undo", {})
                if undone.status_code == 200:
                    self._promised("undo", tenant, session["id"])
                return

    def _promised(self, kind: str, tenant: Tenant, id_: object) -> None:
        self.promises.append(Promise(kind, str(id_), tenant.agent_id))

    def _send(
        self,
        tenant: Tenant,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> requests.Response:
        bearing = {"Authorization": f"Bearer {tenant.token}", **(headers or {})}
        return self._ask(requests, method, f"/api/v1{path}", json=body, headers=bearing)

    # -- the admin --------------------------------------------------------------------------------

    def _admin(self, dice: Random, tenant: Tenant) -> None:
        if self._csrf is None:
            self._browser.cookies.clear()
            fields = {"email": self._email, "password": factories.PASSWORD}
            self._submit("/sign-in", {"csrf_token": self._token("/sign-in"), **fields})
            self._csrf = self._token("/profile")
        elif dice.random() < 0.7:
            answer = self._submit(f"/agents/{tenant.agent_id}/sessions", {})
            if (found := _ID.search(answer.headers.get("Location", ""))) is not None:
                self._promised("session", tenant, found[1])
        else:
            path = f"/agents/{tenant.agent_id}/memories/{tenant.toggled_id}/constitutional"
            self._submit(path, {"constitutional": dice.choice("01")})

    def _token(self, path: str) -> str:
        found = _TOKEN.search(self._ask(self._browser, "GET", path).text)
        if found is None:
            raise ValueError(path)
        return found[1]

    def _submit(self, path: str, fields: dict[str, Any]) -> requests.Response:
        data = {"csrf_token": self._csrf, **fields}
        answer = self._ask(self._browser, "POST", path, data=data)
        leads_to = answer.headers.get("Location", "")
        if answer.status_code in (400, 401, 403) or leads_to.startswith("/sign-in"):
            self._csrf = None
        return answer
