"""What people and agents do meanwhile, over HTTP; and what Refine told them was done."""

import re
import threading
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

import requests

from tests import factories
from tests.chaos.world import Tenant, World

_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')
_ID = re.compile(r"/(?:sessions|access)/([0-9a-f-]{36})")
_TIMEOUT_SECONDS = 20
_TIMES = 4
_UNAVAILABLE = 503
_PURPOSE = "to see whether all is well after the storm"


@dataclass(frozen=True)
class Promise:
    """What an answer of Refine promised: something was saved, queued or changed.

    ``kind`` is memory, session, conversation, undo or access; ``id`` that of the row.
    ``content`` is what was saved.
    """

    kind: str
    agent_id: int
    id: str
    content: str | None = None


class Load:
    """Threads that ask for things until they are stopped; notes promises and refusals."""

    def __init__(self, world: World, base_url: str, seed: int, pause_seconds: float) -> None:
        self.promises: list[Promise] = []
        self.saved_once: list[str] = []
        self.flags: dict[int, bool | None] = {}
        self.faults: list[str] = []
        self.requests = self.unanswered = 0
        self._world, self._base_url, self._pause = world, base_url, pause_seconds
        self._stopped = threading.Event()
        actors = [_Agents(self, Random(f"{seed} agents {number}")) for number in range(3)]
        people = [_Person(self, Random(f"{seed} people {n}"), n) for n in range(len(world.admins))]
        self._threads = [
            threading.Thread(target=self._live, args=(actor,), daemon=True)
            for actor in (*actors, *people)
        ]

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask for nothing more, and wait for the answers that are due."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(_TIMES * _TIMEOUT_SECONDS)

    def _live(self, actor: "_Actor") -> None:
        while not self._stopped.wait(actor.random.uniform(0, 2 * self._pause)):
            try:
                actor.act()
            except (requests.RequestException, ValueError, KeyError):
                self.unanswered += 1


class _Actor:
    """Somebody with a connection of their own."""

    def __init__(self, load: Load, random: Random) -> None:
        self.random = random
        self._load = load
        self._http = requests.Session()
        self._http.trust_env = False

    @abstractmethod
    def act(self) -> None:
        """Do one thing."""

    def _promised(self, *promised: Any) -> None:
        self._load.promises.append(Promise(*promised))

    def _ask(self, method: str, path: str, **options: Any) -> requests.Response:
        self._load.requests += 1
        url = self._load._base_url + path
        answer = self._http.request(
            method, url, timeout=_TIMEOUT_SECONDS, allow_redirects=False, **options
        )
        if answer.status_code >= 500 and answer.status_code != _UNAVAILABLE:
            at = datetime.now(UTC)
            self._load.faults.append(f"{answer.status_code} to {method} {path} at {at:%H:%M:%S}")
        return answer


class _Agents(_Actor):
    """A platform that hosts all agents."""

    def act(self) -> None:
        tenant = self.random.choice(self._load._world.tenants)
        acts: list[Callable[[Tenant], None]] = [
            self._save,
            self._ask_for_session,
            self._hand_over,
            self._undo,
        ]
        self.random.choices(acts, (4, 6, 1, 1))[0](tenant)

    def _save(self, tenant: Tenant) -> None:
        """Save something that nobody else says, under a key, until there is an answer."""
        kind = self.random.choice(("core", "core", "journal"))
        content = f"{factories.text_of(20)} {factories.mark(self.random.getrandbits(40))}"
        self._load.saved_once.append(content)
        saved = self._repeatedly(tenant, "/memories", {"content": content, "memory_type": kind})
        if saved is not None and saved.status_code in (200, 201):
            self._promised("memory", tenant.agent_id, str(saved.json()["id"]), content)

    def _ask_for_session(self, tenant: Tenant) -> None:
        asked = self._send(tenant, "POST", "/sessions", {})
        if asked.status_code == 202:
            self._promised("session", tenant.agent_id, asked.json()["id"])

    def _hand_over(self, tenant: Tenant) -> None:
        said = [{"role": "user", "content": "Remember the bees."}]
        handed = self._repeatedly(tenant, "/conversations", {"messages": said})
        if handed is not None and handed.status_code == 202:
            self._promised("conversation", tenant.agent_id, handed.json()["id"])

    def _undo(self, tenant: Tenant) -> None:
        listed = self._send(tenant, "GET", "/sessions?limit=5").json()["sessions"]
        for session in listed:
            if session["status"] == "completed" and session["undone_at"] is None:
                undone = self._send(tenant, "POST", f"/sessions/{session['id']}/undo", {})
                if undone.status_code == 200:
                    self._promised("undo", tenant.agent_id, session["id"])
                return

    def _repeatedly(
        self, tenant: Tenant, path: str, body: dict[str, Any]
    ) -> requests.Response | None:
        key = {"Idempotency-Key": str(uuid.UUID(int=self.random.getrandbits(128)))}
        for _ in range(_TIMES):
            try:
                answer = self._send(tenant, "POST", path, body, key)
            except requests.RequestException:
                self._load.unanswered += 1
            else:
                if answer.status_code < 500:
                    return answer
            time.sleep(1)
        return None

    def _send(
        self,
        tenant: Tenant,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> requests.Response:
        bearing = {"Authorization": f"Bearer {tenant.token}", **(headers or {})}
        return self._ask(method, f"/api/v1{path}", json=body, headers=bearing)


class _Person(_Actor):
    """An admin with a browser."""

    def __init__(self, load: Load, random: Random, account: int) -> None:
        super().__init__(load, random)
        self._email = load._world.admins[account]
        self._tenants = [each for each in load._world.tenants if each.account == account]
        self._csrf: str | None = None

    def act(self) -> None:
        if self._csrf is None:
            self._sign_in()
            return
        tenant = self.random.choice(self._tenants)
        acts: list[Callable[[Tenant], None]] = [self._refine_now, self._toggle, self._ask_access]
        self.random.choices(acts, (6, 3, 1))[0](tenant)

    def _sign_in(self) -> None:
        self._http.cookies.clear()
        fields = {"email": self._email, "password": self._load._world.password}
        self._submit("/sign-in", {"csrf_token": self._token("/sign-in"), **fields})
        self._csrf = self._token("/profile")

    def _token(self, path: str) -> str:
        found = _TOKEN.search(self._ask("GET", path).text)
        if found is None:
            raise ValueError(path)
        return found[1]

    def _submit(self, path: str, fields: dict[str, Any]) -> requests.Response:
        answer = self._ask("POST", path, data={"csrf_token": self._csrf, **fields})
        if answer.status_code in (400, 401, 403) or answer.headers.get("Location", "").startswith(
            "/sign-in"
        ):
            self._csrf = None
        return answer

    def _refine_now(self, tenant: Tenant) -> None:
        answer = self._submit(f"/agents/{tenant.agent_id}/sessions", {})
        if (found := _ID.search(answer.headers.get("Location", ""))) is not None:
            self._promised("session", tenant.agent_id, found[1])

    def _toggle(self, tenant: Tenant) -> None:
        path = f"/agents/{tenant.agent_id}/memories/{tenant.toggled_id}/constitutional"
        wanted = self.random.random() < 0.5
        self._load.flags[tenant.toggled_id] = None
        answer = self._submit(path, {"constitutional": str(int(wanted))})
        if answer.status_code == 303 and self._csrf is not None:
            self._load.flags[tenant.toggled_id] = wanted

    def _ask_access(self, tenant: Tenant) -> None:
        fields = {"reason": "agent_asked", "purpose": _PURPOSE, "duration_minutes": "15"}
        answer = self._submit(f"/access/new?agent={tenant.agent_id}", fields)
        if (found := _ID.search(answer.headers.get("Location", ""))) is not None:
            self._promised("access", tenant.agent_id, found[1])
