"""Everything that an installation leaves behind: where a canary could be heard."""

import base64
import zlib
from collections.abc import Iterator
from pathlib import Path

from redis import Redis
from sqlalchemy import select, text

from refine.extensions import Base, db
from refine.models import AgentMemory, AuditLog
from refine.models.keys import SealedText

Traces = dict[str, bytes]


def heard(canary: str, traces: Traces) -> list[str]:
    """Where the canary is, as it is or in one of the ways in which bytes are written down."""
    disguises = list(_disguises(canary.encode()))
    lowered = ((place, said.lower()) for place, said in traces.items())
    return sorted(
        place for place, said in lowered if any(disguise in said for disguise in disguises)
    )


def of_tables() -> Traces:
    """Every row of every table, as PostgreSQL writes it."""
    with db.engine.connect() as connection:
        tables = connection.execute(
            text("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 2200::oid")
        ).scalars()
        return {
            f"table {name}": "\n".join(
                connection.exec_driver_sql(f'SELECT t::text FROM "{name}" t').scalars()
            ).encode()
            for name in tables.all()
        }


def of_opened() -> list[str]:
    """All texts that the keys that are left open."""
    db.session.rollback()
    sealed = [
        (mapper.class_, name)
        for mapper in Base.registry.mappers
        for name, kept in vars(mapper.class_).items()
        if isinstance(kept, SealedText)
    ]
    assert len(sealed) == 14
    texts = [str(record.sealed) for record in db.session.scalars(select(AuditLog))]
    for model, name in [*sealed, (AgentMemory, "content")]:
        rows = db.session.scalars(select(model)).all()
        texts += [str(getattr(row, name)) for row in rows if not getattr(row, "is_erased", False)]
    db.session.rollback()  # PostgreSQL ends a transaction that idles for a minute
    return texts


def of_redis(connection: Redis) -> Traces:
    """Every key with all that it holds, unpacked where it is packed."""
    return {
        f"redis {key.decode()}": b"\n".join([key, *map(_unpacked, _values(connection, key))])
        for key in connection.scan_iter("*")
    }


def of_files(folder: Path) -> Traces:
    """Every file of the installation: the database's own, its journal, the servers' logs."""
    return {
        f"file {path.relative_to(folder)}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _disguises(canary: bytes) -> Iterator[bytes]:
    yield canary
    yield canary.hex().encode()
    yield canary.decode().encode("utf-16-le")
    for before in range(3):  # wherever it begins within a group of three bytes
        written = base64.b64encode(b"\0" * before + canary)
        # the groups at both ends hold bytes of its neighbours, too
        yield written[4 : len(written) // 4 * 4 - 4].lower()


def _values(connection: Redis, key: bytes) -> Iterator[bytes]:
    kind = connection.type(key)
    if kind == b"string":
        yield connection.get(key) or b""
    elif kind == b"hash":
        for name, value in connection.hgetall(key).items():
            yield from (name, value)
    elif kind == b"list":
        yield from connection.lrange(key, 0, -1)
    elif kind == b"set":
        yield from connection.smembers(key)
    elif kind == b"zset":
        yield from connection.zrange(key, 0, -1)
    else:
        for _, fields in connection.xrange(key):
            for name, value in fields.items():
                yield from (name, value)


def _unpacked(value: bytes) -> bytes:
    try:
        return zlib.decompress(value)
    except zlib.error:
        return value
