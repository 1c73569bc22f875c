"""The speed of imports, compared with a floor measured in the same run."""

import json
import random
import resource
import sys
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import click
from sqlalchemy import text

from bench.temporary import settings_for, temporary_database, temporary_folder
from refine.cli.output import console, table
from refine.extensions import db
from refine.models import Account, Agent
from refine.transfer.formats import rows_of
from refine.transfer.importing import BATCH_MEMORIES, import_memories

_CHARACTERS = (40, 400)
_WORDS = ("hive", "library", "train", "window", "Welsh", "frost", "vow", "coffee", "bird", "noon")


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
    """Import files in mem0's format; print memories per second and peak memory.

    The floor is the speed of the database alone: the same rows, already encrypted, inserted a batch
    at a time into a table with the same indexes, without records, digests or duplicate checks.
    """
    with temporary_folder() as folder, temporary_database(settings_for(folder)):
        before = _peak_megabytes()
        figures = [_measured(folder / "memories.json", size) for size in sorted(sizes)]
    columns = ("memories", "file", "per second", "floor", "times slower", "peak memory")
    table(columns, figures, empty="")
    console.print(
        f"peak memory is that of the entire process; before the first import {before:,.0f} MB"
    )


def _measured(path: Path, size: int) -> tuple[str, ...]:
    write_file(path, size)
    agent = _agent(size)
    with path.open("rb") as file:
        began = time.monotonic()
        report = import_memories(agent, partial(rows_of, file, "mem0"), source="mem0")
        seconds = time.monotonic() - began
    peak = _peak_megabytes()
    assert report.added.total() == size, report  # noqa: S101
    floor = _floor_seconds(agent, size)
    return (
        f"{size:,}",
        f"{path.stat().st_size / 1e6:,.1f} MB",
        f"{size / seconds:,.0f}",
        f"{size / floor:,.0f}",
        f"{seconds / floor:.1f}",
        f"{peak:,.0f} MB",
    )


def _agent(size: int) -> Agent:
    account = Account(name=f"Bench {size}", slug=f"bench-{size}")
    agent = Agent(account=account, name="Bench", model_id="rehearsal/bench")
    db.session.add(agent)
    db.session.commit()
    return agent


def write_file(path: Path, size: int) -> None:
    """Write a file like the result of ``get_all``, the same in every run."""
    chance = random.Random(size)  # noqa: S311
    with path.open("w", encoding="utf-8") as file:
        file.write('{"results": [')
        for number in range(size):
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


def _floor_seconds(agent: Agent, size: int) -> float:
    db.session.execute(text("CREATE TABLE bench_floor (LIKE agent_memories INCLUDING ALL)"))
    db.session.commit()
    seconds, after = 0.0, 0
    while rows := _stored(agent, after):
        after = rows[-1]["id"]
        columns, values = ", ".join(rows[0]), ", ".join(f":{column}" for column in rows[0])
        began = time.monotonic()
        db.session.execute(text(f"INSERT INTO bench_floor ({columns}) VALUES ({values})"), rows)  # noqa: S608
        db.session.commit()
        seconds += time.monotonic() - began
    inserted = db.session.scalar(text("SELECT count(*) FROM bench_floor"))
    db.session.execute(text("DROP TABLE bench_floor"))
    db.session.commit()
    assert inserted == size, inserted  # noqa: S101
    return seconds


def _stored(agent: Agent, after: int) -> list[dict[str, Any]]:
    of_agent = text(
        "SELECT * FROM agent_memories WHERE agent_id = :agent AND id > :after "
        "ORDER BY id LIMIT :limit"
    )
    bounds = {"agent": agent.id, "after": after, "limit": BATCH_MEMORIES}
    rows = [dict(row) for row in db.session.execute(of_agent, bounds).mappings()]
    db.session.commit()
    return rows


def _peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
