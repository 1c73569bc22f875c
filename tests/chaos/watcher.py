"""Looks at the live sessions twice a second, as long as the storm lasts.

What a table says in the end does not tell what it said meanwhile: when a session last showed a sign
of life, and whether an agent ever had two live ones, or an ended one came to life again. All times
are of the database's clock.
"""

import threading
import uuid
from pathlib import Path
from typing import NamedTuple

import psycopg

from refine.embedded import database_url
from refine.models import RefinementSession

_PAUSE_SECONDS = 0.5
_LIVE = f"""
    SELECT id, agent_id, status || coalesce(heartbeat_at::text, ''),
           extract(epoch FROM clock_timestamp())::float
    FROM {RefinementSession.__tablename__} WHERE status IN ('queued', 'running')
"""
_COUNT = f"SELECT count(*) FROM {RefinementSession.__tablename__} WHERE ended_at IS NOT NULL"


class Sign(NamedTuple):
    """When a session last changed: a new status or heartbeat, and when it was seen."""

    text: str
    at: float


class Watcher:
    """A thread with a connection of its own, made anew whenever it breaks."""

    def __init__(self, folder: Path) -> None:
        self.signs: dict[uuid.UUID, Sign] = {}
        self.revived: set[uuid.UUID] = set()
        self.crowded: set[int] = set()
        self.ended = self.live = self.looks = 0
        self._address = database_url(folder).replace("+psycopg", "")
        self._before: set[uuid.UUID] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(_PAUSE_SECONDS):
            try:
                with psycopg.connect(self._address, autocommit=True, connect_timeout=5) as open_:
                    while not self._stopped.wait(_PAUSE_SECONDS):
                        self._look(open_)
            except psycopg.Error:
                continue

    def _look(self, connection: psycopg.Connection) -> None:
        rows = connection.execute(_LIVE).fetchall()
        counted = connection.execute(_COUNT).fetchone()
        self.ended, self.live = counted[0] if counted else 0, len(rows)
        self.note(rows)

    def note(self, rows: list[tuple[uuid.UUID, int, str, float]]) -> None:
        """Note what was seen at one look: each live session, its agent, its sign, and the time."""
        self.looks += 1
        now_live = {id_ for id_, *_ in rows}
        self.revived |= (now_live - self._before) & self.signs.keys()
        agents = [agent_id for _, agent_id, *_ in rows]
        self.crowded |= {agent_id for agent_id in agents if agents.count(agent_id) > 1}
        for id_, _, text, at in rows:
            if id_ not in self.signs or self.signs[id_].text != text:
                self.signs[id_] = Sign(text, at)
        self._before = now_live
