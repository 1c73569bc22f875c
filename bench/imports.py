"""What an import costs, against sealing the contents and COPY of ready-made rows."""

import gc
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.beginnings import Unexpected
from bench.import_command import write_file
from bench.measuring import Benchmark, Figure, plain_connection, timed
from bench.world import CONTENT, World, add_agent
from refine.extensions import db
from refine.models import Agent
from refine.sealing import Place
from refine.transfer.formats import rows_of
from refine.transfer.importing import import_memories

AT_MOST_TIMES = 4.0

_ROUNDS = 3


def benchmarks(world: World) -> list[Benchmark]:
    """Return that of the import."""
    return [Benchmark(f"import of {world.size.imported:,}", lambda: _import(world))]


def _import(world: World) -> Iterator[Figure]:
    rounds = _ROUNDS if world.size.repetitions > 1 else 1
    account_id = db.session.get_one(Agent, world.large_id).account_id
    with TemporaryDirectory() as folder:
        path = Path(folder, "memories.json")
        write_file(path, world.size.imported)
        pairs = [_pair(add_agent(account_id, []), path, world.size.imported) for _ in range(rounds)]
    ours, floors = map(statistics.median, zip(*pairs, strict=True))
    yield Figure(
        f"import of {world.size.imported:,} memories", ours, floors, at_most_times=AT_MOST_TIMES
    )


def _pair(agent_id: int, path: Path, count: int) -> tuple[float, float]:
    gc.collect()
    gc.freeze()  # as the command does
    ours = timed(lambda: _imported(agent_id, path, count))()
    db.session.expunge_all()
    gc.unfreeze()
    return ours, timed(_PlainImport(agent_id).copy)()


def _imported(agent_id: int, path: Path, count: int) -> None:
    agent = db.session.get_one(Agent, agent_id)
    with path.open("rb") as file:
        report = import_memories(agent, partial(rows_of, file, "mem0"), source="mem0")
    if report.added.total() != count:
        raise Unexpected(f"{report.added.total()} of {count} memories were imported")


class _PlainImport:
    """Seals each content, and copies the rows into a table with the same indexes."""

    def __init__(self, agent_id: int) -> None:
        self._key = db.session.get_one(Agent, agent_id).data_key()
        self._connection = plain_connection()
        self._connection.execute("CREATE TABLE bench_floor (LIKE agent_memories INCLUDING ALL)")
        found = self._connection.execute(
            "SELECT content, * FROM agent_memories WHERE agent_id = %s", (agent_id,)
        )
        self._columns = [column.name for column in found.description][1:]
        self._at = self._columns.index("content")
        id_at = self._columns.index("id")
        self._rows = [
            (self._key.open(row[0], Place(CONTENT, row[1 + id_at])), list(row[1:]))
            for row in found.fetchall()
        ]
        self._connection.commit()
        db.session.rollback()

    def copy(self) -> None:
        """Do it, and commit."""
        copying = f"COPY bench_floor ({', '.join(self._columns)}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(copying) as copied:
            for content, row in self._rows:
                row[self._at] = self._key.seal(content, Place(CONTENT, row[0]))
                copied.write_row(row)
        self._connection.commit()
        self._connection.execute("DROP TABLE bench_floor")
        self._connection.commit()
        self._connection.close()
