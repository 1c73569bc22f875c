"""Rate limits: how many reads and writes a token may send in any minute.

Counted in Redis for all processes together. While Redis is unavailable, each process counts
separately: the API keeps working, and stays limited.
"""

import math
import time

import structlog
from flask import Flask, current_app, request
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage, RedisStorage, Storage
from limits.strategies import SlidingWindowCounterRateLimiter
from redis.exceptions import RedisError

from refine.errors import TooMany
from refine.models import ApiToken
from refine.settings import Settings

READS = ("GET", "HEAD")

_RETRY_REDIS_AFTER_SECONDS = 10.0
_KEY = "refine.limits"
_log = structlog.get_logger(__name__)


def register(app: Flask, settings: Settings) -> None:
    """Set up the counters without connecting to Redis."""
    app.extensions[_KEY] = _Limits(settings)


def count(token: ApiToken) -> None:
    """Count the request; raises TooMany if the token is over its limit."""
    limits: _Limits = current_app.extensions[_KEY]
    limits.count(token.id, is_read=request.method in READS)


class _Limits:
    def __init__(self, settings: Settings) -> None:
        self._reads = RateLimitItemPerMinute(settings.api_reads_per_minute)
        self._writes = RateLimitItemPerMinute(settings.api_writes_per_minute)
        url = settings.redis_url
        self._shared: Storage = RedisStorage(
            f"redis+{url}" if url.startswith("unix:") else url,
            key_prefix="refine-limits",
            socket_connect_timeout=1,
            socket_timeout=1,
        )
        self._local: Storage = MemoryStorage()
        self._local_until = 0.0

    def count(self, token_id: int, *, is_read: bool) -> None:
        item = self._reads if is_read else self._writes
        kind = "reads" if is_read else "writes"
        if time.monotonic() >= self._local_until:
            try:
                self._hit(self._shared, item, kind, token_id)
                return
            except (RedisError, OSError) as fault:
                self._local_until = time.monotonic() + _RETRY_REDIS_AFTER_SECONDS
                _log.warning("rate limits are counted without Redis", fault=type(fault).__name__)
        self._hit(self._local, item, kind, token_id)

    def _hit(
        self, storage: Storage, item: RateLimitItemPerMinute, kind: str, token_id: int
    ) -> None:
        limiter = SlidingWindowCounterRateLimiter(storage)
        key = f"{kind}-{token_id}"
        if limiter.hit(item, key):
            return
        free_at = limiter.get_window_stats(item, key).reset_time
        raise TooMany(
            f"more than {item.amount:,} {kind} per minute",
            retry_after_seconds=max(1, math.ceil(free_at - time.time())),
        )
