"""The cost of an import, against sealing contents and COPY of ready-made rows."""

import gc
import json
import random
import statistics
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from bench.measuring import Benchmark, Figure, Unexpected, plain_connection, print_goals, run, timed
from bench.temporary import settings_for, temporary_database, temporary_folder
from bench.world import CONTENT, World, add_agent, opened
from refine.extensions import db
from refine.models import Account, Agent
from refine.sealing import Place
from refine.transfer.importing import import_memories, rows_at

AT_MOST_TIMES = 12.0

_ROUNDS = 3
_CHARACTERS = (40, 400)
_WORDS = ("hive", "library", "train", "window", "Welsh", "frost", "vow", "coffee", "bird", "noon")


def benchmarks(world: World) -> list[Benchmark]:
    """Return the benchmark of the import."""
    rounds = _ROUNDS if world.size.repetitions > 1 else 1
    account_id = db.session.get_one(Agent, world.large_id).account_id
    return [_benchmark(account_id, world.size.imported, rounds)]


@click.command("import")
@click.option(
    "--rows",
    "sizes",
    type=click.IntRange(1, 10_000_000),
    multiple=True,
    default=(10_000, 100_000),
    show_default=True,
    help="Number of memories to import; can be repeated, and runs in ascending order.",
)
def bench_import(sizes: tuple[int, ...]) -> None:
    """Import files in mem0's format, and compare the time with a floor.

    The floor seals each content, and copies the rows into a table with the same indexes.
    """
    with temporary_folder() as folder, temporary_database(settings_for(folder)):
        account = Account.create("Bench")
        db.session.commit()
        measured = [_benchmark(account.id, size, 1) for size in sorted(sizes)]
        print_goals(list(run(measured)))


def _benchmark(account_id: int, count: int, rounds: int) -> Benchmark:
    return Benchmark(f"import of {count:,}", lambda: _import(account_id, count, rounds))


def _import(account_id: int, count: int, rounds: int) -> Iterator[Figure]:
    with temporary_folder() as folder:
        path = folder / "memories.json"
        _write_file(path, count)
        pairs = [_pair(add_agent(account_id, []), path, count) for _ in range(rounds)]
    ours, floor = map(statistics.median, zip(*pairs, strict=True))
    yield Figure(f"import of {count:,} memories", ours, floor, at_most_times=AT_MOST_TIMES)


def _pair(agent_id: int, path: Path, count: int) -> tuple[float, float]:
    gc.collect()
    gc.freeze()  # as the command does
    ours = timed(lambda: _imported(agent_id, path, count))()
    db.session.expunge_all()
    gc.unfreeze()
    return ours, timed(_PlainImport(agent_id).copy)()


def _imported(agent_id: int, path: Path, count: int) -> None:
    agent = db.session.get_one(Agent, agent_id)
    report = import_memories(agent, partial(rows_at, path), source="mem0")
    if report.added.total() != count:
        raise Unexpected(f"{report.added.total()} of {count} memories were imported")


def _write_file(path: Path, count: int) -> None:
    """Write a file like the result of ``get_all``, the same in every run."""
    chance = random.Random(count)  # noqa: S311
    with path.open("w", encoding="utf-8") as file:
        file.write('{"results": [')
        for number in range(count):
            length = chance.randint(*_CHARACTERS)
            words = " ".join(chance.choices(_WORDS, k=length // 5))
            row = {
                "id": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
                "memory": f"{number} {words}"[:length],
                "metadata": {"topic": chance.choice(_WORDS)},
                "created_at": 1_700_000_000 + number,
                "user_id": "bench",
            }
            file.write(("," if number else "") + json.dumps(row))
        file.write("]}")


class _PlainImport:
    """Seals each content, and copies the rows into a table with the same indexes."""

    def __init__(self, agent_id: int) -> None:
        self._key = db.session.get_one(Agent, agent_id).data_key()
        self._connection = plain_connection()
        self._connection.execute("CREATE TABLE bench_floor (LIKE agent_memories INCLUDING ALL)")
        found = self._connection.execute(
            "SELECT id, content, content_key, * FROM agent_memories WHERE agent_id = %s",
            (agent_id,),
        )
        self._columns = [column.name for column in found.description][3:]
        self._at = self._columns.index("content")
        self._rows = [(opened(self._key, *row[:3]), list(row[3:])) for row in found.fetchall()]
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
