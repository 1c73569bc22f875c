"""A canary in every kind of content, and every page that a link leads to."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from refine import clock
from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog, RefinementSession
from refine.models.agent import PROMPTS, configuring
from refine.models.runs import task as tasks
from refine.tools import RefinementTool
from tests import factories
from tests.web.conftest import ended_session, links_of, person

CANARY = "canarysings"
# What a human wrote is not the agent's: the admins of its account may see why somebody asks.
PURPOSE = "to hear why it fell silent"
# More than these of one page with the same arguments, and there is nothing new to be found.
_LOOKED_AT_OF_A_KIND = 4


class Reader(Protocol):
    """A client that asks for pages, in this process or over HTTP."""

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
    """Every linked page, from the front page on: its address and its text."""
    waiting, seen, looked_at = [front], {front}, dict[str, int]()
    while waiting:
        url = waiting.pop(0)
        kind = kind_of(url)
        looked_at[kind] = looked_at.get(kind, 0) + 1
        if looked_at[kind] > of_a_kind:
            continue
        answer = dashboard.get(url)
        assert answer.status_code in _expected_of(url), (url, answer.status_code)
        yield url, f"{answer.headers}\n{answer.text}"
        found = [link for link in links_of(answer.text) if link not in seen]
        seen.update(found)
        waiting += found


class Song(NamedTuple):
    """Some of what an agent keeps; the canary is in each."""

    memory: AgentMemory
    session: RefinementSession
    record: AuditLog


def sing(agent: Agent, canary: str = CANARY) -> Song:
    """Have the agent keep the canary in every kind of content."""
    for prompt in PROMPTS:
        configuring.author(agent, prompt, f"{canary} in the {prompt}")
    memories = [factories.memory(agent, f"{canary} {factories.text_of(25)}") for _ in range(12)]
    factories.memory(agent, f"{canary} in a journal", memory_type="journal")
    admin = person(account=agent.account)
    memories[0].set_constitutional(True, user=admin)
    memories[1].discard(user=admin)
    agent.ledger.remember(f"{canary} once more", "core")
    factories.grant(agent, purpose=f"{PURPOSE}, and nothing else", reply=f"NO, says {canary}")
    _edit(agent, memories[2:5], canary)
    session = ended_session(agent, memories[5], summary=f"{canary} is gone")
    factories.ended_task(agent, status="failed", reason="it failed", error_kind="timeout")
    factories.extraction(agent, f"{canary} in a conversation")
    task = factories.extraction(agent, f"{canary} is read", at=clock.now() - timedelta(hours=1))
    assert task.claim()
    assert tasks.save(task, f"{canary} was heard")
    for status, reply in (("declined", "NO"), ("failed", "YES")):
        ended = RefinementSession.queue(agent, "manual")
        ended.claim()
        ended.consent_reply = f"{reply}, says {canary}"
        ended.finish(status, "so it ended")  # type: ignore[arg-type]
    db.session.commit()
    deleted = [r for r in factories.records(agent) if r.action == "memory_refinement_delete"]
    return Song(memories[6], session, deleted[-1])


def _edit(agent: Agent, memories: list[AgentMemory], canary: str) -> None:
    """A session with one of each edit."""
    first, second, third = (memory.id for memory in memories)
    tool = RefinementTool(factories.session(agent))
    for action, params in (
        ("consolidate", {"ids": [first, second], "content": f"{canary} {factories.text_of(50)}"}),
        ("update", {"id": third, "content": f"{canary} again, " + factories.text_of(22)}),
        ("protect", {"id": third}),
        ("complete", {"summary": f"{canary} was merged"}),
    ):
        assert tool.execute(action=action, **params)["type"] != "error"
