"""Bearer tokens and rate limits, counted in Redis, or by each process while Redis is away."""

import math
import time

import structlog
from flask import Flask, current_app, request
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from redis.exceptions import RedisError

from refine import request_log
from refine.api.problems import Problem
from refine.errors import NotFound, RowAltered, TooMany
from refine.extensions import db
from refine.models import ApiToken, schema_version
from refine.models.clients.api_token import WELL_FORMED, TokenKind
from refine.settings import Settings

_KINDS: dict[TokenKind, str] = {"agent": "an agent token", "platform": "a platform token"}
_RETRY_REDIS_AFTER_SECONDS = 10.0
_KEY = "refine.limits"
_log = structlog.get_logger(__name__)


def register(app: Flask, settings: Settings) -> None:
    """Set up the counters without connecting to Redis."""
    app.extensions[_KEY] = _Limits(settings)


def require_form() -> str:
    """Return the request's secret; Problem 401 for one that cannot be a token, without a query."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        raise Problem(401, headers={"WWW-Authenticate": 'Bearer realm="refine"'})
    if not WELL_FORMED.fullmatch(secret):
        raise _invalid("This is not a valid Refine token: it is truncated or mistyped.")
    return secret


def authenticate(kind: TokenKind) -> ApiToken:
    """Return the token, and count and commit its use; Problem 401 or 403, or TooMany."""
    schema_version.require_compatible()
    token = _valid_token(require_form())
    request_log.note(token_id=token.id, agent_id=token.agent_id)
    if token.kind != kind:
        raise Problem(403, f"This operation needs {_KINDS[kind]}.")
    if token.agent is not None and not token.agent.active:
        raise Problem(403, "The agent is not active; its platform can activate it.")
    if token.agent is not None and token.agent.is_erased:
        raise Problem(403, "The agent's content was permanently erased.")
    if token.note_use():
        db.session.commit()
    limits: _Limits = current_app.extensions[_KEY]
    limits.count(token.id, "reads" if request.method in ("GET", "HEAD") else "writes")
    return token


def _valid_token(secret: str) -> ApiToken:
    try:
        token = ApiToken.of_secret(secret)
    except (NotFound, RowAltered):
        raise _invalid("This token is unknown.") from None
    agent = token.agent
    owner = (agent.id, agent.account_id) if agent is not None else (None, token.account_id)
    is_genuine = agent is None or agent.is_genuine
    if not is_genuine or owner != (token.agent_id, token.account_id):
        raise _invalid("The agent was changed in the database, not by Refine.")
    if not token.is_valid:
        raise _invalid("This token was revoked or has expired.")
    return token


def _invalid(detail: str) -> Problem:
    challenge = 'Bearer realm="refine", error="invalid_token"'
    return Problem(401, detail, headers={"WWW-Authenticate": challenge})


class _Limits:
    def __init__(self, settings: Settings) -> None:
        self._limits = {
            "reads": RateLimitItemPerMinute(settings.api_reads_per_minute),
            "writes": RateLimitItemPerMinute(settings.api_writes_per_minute),
        }
        url = settings.redis_url
        shared = RedisStorage(
            f"redis+{url}" if url.startswith("unix:") else url,
            key_prefix="refine-limits",
            socket_connect_timeout=1,
            socket_timeout=1,
        )
        self._shared = SlidingWindowCounterRateLimiter(shared)
        self._local = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._local_until = 0.0

    def count(self, token_id: int, kind: str) -> None:
        if time.monotonic() >= self._local_until:
            try:
                self._hit(self._shared, token_id, kind)
                return
            except (RedisError, OSError) as fault:
                self._local_until = time.monotonic() + _RETRY_REDIS_AFTER_SECONDS
                _log.warning("rate limits are counted without Redis", fault=type(fault).__name__)
        self._hit(self._local, token_id, kind)

    def _hit(self, limiter: SlidingWindowCounterRateLimiter, token_id: int, kind: str) -> None:
        limit, key = self._limits[kind], f"{kind}-{token_id}"
        if not limiter.hit(limit, key):
            free_at = limiter.get_window_stats(limit, key).reset_time
            raise TooMany(
                f"more than {limit.amount:,} {kind} per minute",
                retry_after_seconds=max(1, math.ceil(free_at - time.time())),
            )
