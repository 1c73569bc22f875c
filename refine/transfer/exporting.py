"""Exports of an agent's memories, in Refine's own format.

The first line is the manifest: format, version, agent, with or without contents. Then comes a line
for each memory with a SHA-256 digest of its other fields. The closing line has the number of
memories and a digest of their digests, so that altered and missing lines are detected.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import select

from refine import clock
from refine.extensions import canonical_json, db
from refine.models import Agent, AgentMemory

VERSION = 1
FORMAT = "refine-memories"
PAGE_MEMORIES = 500

_METADATA = ("id", "memory_type", "constitutional", "tags", "token_estimate", "source")
_TIMES = ("created_at", "recorded_at", "updated_at", "discarded_at")


def metadata_lines(agent: Agent, memories: Iterable[AgentMemory]) -> Iterator[str]:
    """Yield the lines of an export without contents: only what an admin may see."""
    return file_lines(
        _manifest(agent, has_contents=False), (_metadata(memory) for memory in memories)
    )


def full_lines(
    agent: Agent, memories: Iterable[tuple[AgentMemory, Mapping[str, Any]]]
) -> Iterator[str]:
    """Yield the lines of a full export: each memory with its ``content`` and ``extra``."""
    rows = (
        {**_metadata(memory), "source_id": memory.source_id, **contents}
        for memory, contents in memories
    )
    return file_lines(_manifest(agent, has_contents=True), rows)


def file_lines(manifest: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield canonical_json(manifest)
    count, total_digest = 0, hashlib.sha256()
    for row in rows:
        digest = digest_of(row)
        count += 1
        total_digest.update(digest.encode())
        yield canonical_json({**row, "sha256": digest})
    yield canonical_json({"end": FORMAT, "count": count, "sha256": total_digest.hexdigest()})


def origin_of(agent: Agent) -> str:
    """Return what tells the agent apart from all others, and reveals nothing about it."""
    return agent.data_key().mac("", "transfer.origin")[:16]


def _manifest(agent: Agent, *, has_contents: bool) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "contents": has_contents,
        "agent_id": agent.id,
        # for whoever imports it: of an erased agent there are no contents, and no key to tell it
        **({"origin": origin_of(agent)} if has_contents else {}),
        "exported_at": clock.iso(clock.now()),
    }


def _metadata(memory: AgentMemory) -> dict[str, Any]:
    return {
        **{field: getattr(memory, field) for field in _METADATA},
        "tags": list(memory.tags),
        **{field: clock.iso(getattr(memory, field)) for field in _TIMES},
        "session_id": str(memory.session_id) if memory.session_id else None,
    }


def digest_of(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(row).encode()).hexdigest()


def pages_of(agent: Agent) -> Iterator[Sequence[AgentMemory]]:
    """Yield the memories in pages; no transaction is open while the output is read."""
    all_memories = (
        select(AgentMemory).where(AgentMemory.agent_id == agent.id).order_by(AgentMemory.id)
    )
    after = 0
    while page := db.session.scalars(
        all_memories.where(AgentMemory.id > after).limit(PAGE_MEMORIES)
    ).all():
        after = page[-1].id
        for memory in page:
            db.session.expunge(memory)  # keeps its loaded values after the commit
        db.session.commit()
        yield page
