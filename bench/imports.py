"""The cost of an import, against sealing contents and COPY of ready-made rows; and its memory."""

import contextvars
import gc
import json
import multiprocessing
import random
import statistics
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click
from flask import current_app

from bench.measuring import Benchmark, Figure, Unexpected, plain_connection, print_goals, run, timed
from bench.temporary import settings_for, temporary_database, temporary_folder
from bench.world import CONTENT, World, add_agent, opened
from refine import settings
from refine.cli.context import in_context
from refine.extensions import db
from refine.models import Account, Agent, ApiToken
from refine.sealing import Place
from refine.transfer.importing import import_memories, rows_at

AT_MOST_TIMES = 12.0
# Of the import of a JSON file.
OTHER_WAYS_AT_MOST_TIMES = 1.5
MEMORY_AT_MOST_TIMES = 1.1

_ROUNDS = 3
_PAGE_ROWS = 1_000
_LARGE = 100_000
# With fewer, processes of their own are not worth while.
_ROWS_OF_A_TRY = 1_000
_CHARACTERS = (40, 400)
_WORDS = ("hive", "library", "train", "window", "Welsh", "frost", "vow", "coffee", "bird", "noon")


def benchmarks(world: World, *, is_large: bool) -> list[Benchmark]:
    """Return the benchmarks of the import."""
    rounds = _ROUNDS if world.size.repetitions > 1 else 1
    account_id = db.session.get_one(Agent, world.large_id).account_id
    count = _LARGE if is_large else world.size.imported
    return [_benchmark(account_id, world.size.imported, rounds), *_others(account_id, count)]


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
    with temporary_folder() as folder, temporary_database(settings_for(folder), valkey=True):
        account = Account.create("Bench")
        db.session.commit()
        measured = [_benchmark(account.id, size, 1) for size in sorted(sizes)]
        measured += _others(account.id, max(sizes))
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


def _rows(count: int) -> Iterator[dict[str, Any]]:
    """Yield rows like those of ``get_all``, the same in every run."""
    chance = random.Random(count)  # noqa: S311
    for number in range(count):
        length = chance.randint(*_CHARACTERS)
        words = " ".join(chance.choices(_WORDS, k=length // 5))
        yield {
            "id": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
            "memory": f"{number} {words}"[:length],
            "metadata": {"topic": chance.choice(_WORDS)},
            "created_at": 1_700_000_000 + number,
            "user_id": "bench",
        }


def _write_file(path: Path, count: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write('{"results": [')
        for number, row in enumerate(_rows(count)):
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


# -- other ways, and their memory ------------------------------------------------------------------


def _others(account_id: int, count: int) -> list[Benchmark]:
    measure = partial(_other_ways, account_id, count)
    return [Benchmark(f"other ways to import {count:,}", measure)]


def _other_ways(account_id: int, count: int) -> Iterator[Figure]:
    """Compare the time with that of a JSON file, and the memory with that of a tenth."""
    by_file = timed(lambda: _by_file(account_id, count))()
    for name, way in (("as Markdown", _by_markdown), ("by POST /imports", _by_pages)):
        ours = timed(partial(way, account_id, count))()
        yield Figure(
            f"import of {count:,} {name}", ours, by_file, at_most_times=OTHER_WAYS_AT_MOST_TIMES
        )
        if count < _ROWS_OF_A_TRY:
            continue
        most, floor = (_peak_megabytes(way, account_id, each) for each in (count, count // 10))
        named = f"memory of an import of {count:,} {name}"
        yield Figure(named, most, floor, at_most_times=MEMORY_AT_MOST_TIMES, unit="MB")


def _by_file(account_id: int, count: int) -> None:
    with temporary_folder() as folder:
        path = folder / "memories.json"
        _write_file(path, count)
        _imported(add_agent(account_id, []), path, count)


def _by_markdown(account_id: int, count: int) -> None:
    with temporary_folder() as folder:
        path = folder / "memories.md"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"- {row['memory']}\n" for row in _rows(count))
        _imported(add_agent(account_id, []), path, count)


def _by_pages(account_id: int, count: int) -> None:
    agent = db.session.get_one(Agent, add_agent(account_id, []))
    _, token = ApiToken.mint(account=agent.account, agent=agent)
    db.session.commit()
    client, all_rows = current_app.test_client(), _rows(count)
    while rows := list(islice(all_rows, _PAGE_ROWS)):
        page = [
            {"content": row["memory"], "created_at": row["created_at"], "source_id": row["id"]}
            for row in rows
        ]
        sent = partial(
            client.post,
            "/api/v1/imports",
            json={"source": "mem0", "rows": page},
            headers={"Authorization": f"Bearer {token}"},
            buffered=True,
        )
        answer = contextvars.Context().run(sent)  # as a request of its own
        if answer.status_code != 200 or answer.get_json()["added"] != len(rows):
            raise Unexpected(f"POST /imports: {answer.status_code}")


def _peak_megabytes(way: Callable[[int, int], None], account_id: int, count: int) -> float:
    """Return the most memory that a new process needs for an import."""
    db.session.rollback()  # PostgreSQL ends a transaction that is idle for so long
    new = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=new) as pool:
        data_dir = settings.current().data_dir
        return pool.submit(_measured, data_dir, way, account_id, count).result()


def _measured(
    data_dir: Path, way: Callable[[int, int], None], account_id: int, count: int
) -> float:
    with in_context(settings_for(data_dir)):
        way(account_id, count)
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
