"""JSON from a model's server, without values that no request could repeat."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

# Deeper than any answer, and still accepted by servers in a request.
MAX_DEPTH = 64

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def answered_json(body: bytes) -> Any:
    """Return the value without NaN and lone surrogates; ValueError if it is no JSON."""
    try:
        value = json.loads(body, parse_constant=lambda _name: None, parse_float=_finite)
        if _depth(value) > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        written = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _LONE_SURROGATE.search(written) is None:
        return value
    return json.loads(_LONE_SURROGATE.sub("\ufffd", written))


def at(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path into nested objects; None if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _finite(written: str) -> float | None:
    number = float(written)
    return number if math.isfinite(number) else None


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, dict | list) else 0
