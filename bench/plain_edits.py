"""The floor of an edit: five plain statements in one transaction."""

import uuid
from typing import Any

from bench.measuring import plain_connection
from bench.world import World

_RECORD = """
INSERT INTO audit_logs (chain_id, sequence, account_id, agent_id, action, auditable_type,
  auditable_id, data, sealed, created_at, hash)
VALUES (%s, %s, %s, %s, 'memory_refinement_update', 'AgentMemory', %s, %s, %s, now(), %s)
"""
_DATA = '{"image_version":1,"memories":[],"operation":"update","filler":"%s"}' % ("x" * 320)
_SEALED = b"\x02" * 300


class PlainEdits:
    """Changes memories of an agent that nobody else looks at."""

    def __init__(self, world: World) -> None:
        self._connection: Any = plain_connection()
        self._agent_id = world.floor_agent_id
        found = self._connection.execute(
            "SELECT id FROM agent_memories WHERE agent_id = %s ORDER BY id", (self._agent_id,)
        )
        self._memory_ids = [row[0] for row in found]
        self._account_id, self._chain_id, self._sequence = self._connection.execute(
            "SELECT agents.account_id, chain_heads.id, sequence FROM chain_heads "
            "JOIN agents ON agents.id = agent_id WHERE agent_id = %s",
            (self._agent_id,),
        ).fetchone()
        self._connection.commit()

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def edit(self) -> None:
        """Lock the agent, lock a memory, change it, record that, advance the head; commit."""
        execute = self._connection.execute
        self._sequence += 1
        memory_id = self._memory_ids[self._sequence % len(self._memory_ids)]
        digest = uuid.uuid4().hex * 2
        execute(
            "SELECT * FROM agents WHERE id = %s FOR NO KEY UPDATE", (self._agent_id,)
        ).fetchone()
        execute("SELECT * FROM agent_memories WHERE id = %s FOR UPDATE", (memory_id,)).fetchone()
        execute(
            "UPDATE agent_memories SET content = %s, content_hash = %s, token_estimate = %s, "
            "updated_at = now(), row_digest = %s WHERE id = %s",
            (_SEALED, digest, 20, digest, memory_id),
        )
        execute(
            _RECORD,
            (
                *(self._chain_id, self._sequence, self._account_id, self._agent_id),
                *(str(memory_id), _DATA, _SEALED, digest),
            ),
        )
        execute(
            "UPDATE chain_heads SET sequence = %s, hash = %s, digest = %s WHERE id = %s",
            (self._sequence, digest, digest, self._chain_id),
        )
        self._connection.commit()
