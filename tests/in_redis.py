"""What stands in Redis, and what Redis takes."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from redis import Redis

from refine.jobs.workers import REMEMBERED_FOR


def everything_in(redis: Redis) -> bytes:
    """Every key and value, and what is compressed among the values in clear as well."""
    found = []
    for key in redis.scan_iter():
        kind = redis.type(key)
        values = {
            b"string": lambda key: [redis.get(key)],
            b"hash": lambda key: [part for pair in redis.hgetall(key).items() for part in pair],
            b"list": lambda key: redis.lrange(key, 0, -1),
            b"set": redis.smembers,
            b"zset": lambda key: redis.zrange(key, 0, -1),
            b"stream": lambda key: [repr(redis.xrange(key)).encode()],
        }[kind](key)
        found += [key, *values]
        found += [zlib.decompress(value) for value in values if value.startswith(b"\x78\x9c")]
    return b"\n".join(found)


def started_jobs(redis: Redis) -> list[bytes]:
    """What RQ's registries say is being worked on."""
    return [job for key in redis.keys("rq:wip:*") for job in redis.zrange(key, 0, -1)]


def let_pass(redis: Redis, worker_key: str, time: timedelta) -> None:
    """Make a worker's last heartbeat so old."""
    redis.pexpire(worker_key, REMEMBERED_FOR - time)


def is_idle(redis: Redis, count: int = 1) -> bool:
    """Whether so many workers are there, and all of them wait for jobs."""
    states = [redis.hget(key, "state") for key in redis.smembers("rq:workers")]
    return states == [b"idle"] * count


@contextmanager
def without_command(redis: Redis, command: str) -> Iterator[None]:
    """Redis refuses this command to everybody."""
    redis.execute_command("ACL", "SETUSER", "default", f"-{command}")
    try:
        yield
    finally:
        redis.execute_command("ACL", "SETUSER", "default", f"+{command}")
