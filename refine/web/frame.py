"""What the frame around every page shows: asked for in one trip, once per request."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from flask import g

from refine.extensions.statements import together

T = TypeVar("T")

_PARTS: list[Callable[[], Any]] = []


def part(ask: Callable[[], T]) -> Callable[[], T]:
    """Make this a part of the frame; whichever part is needed first, all are asked for."""
    _PARTS.append(ask)

    @wraps(ask)
    def of_request() -> T:
        if "frame" not in g:
            g.frame = dict(zip(_PARTS, together(*_PARTS), strict=True))
        return cast(T, g.frame[ask])

    return of_request


def ask_again() -> None:
    """Have the parts asked for anew: something happened since."""
    g.pop("frame", None)
