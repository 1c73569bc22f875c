"""Something that is asked of the application, and what it must cost at least."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

AT_MOST_TIMES = 3.0
AT_MOST_QUERIES = 25


@dataclass(frozen=True)
class Asked:
    """What is asked, by its name, and the bare route that, with the main query, is its floor."""

    name: str
    ask: Callable[[], Any]
    bare: Callable[[], Any]
    has_main_query: bool = True
    at_most_times: float = AT_MOST_TIMES
    at_most_queries: int | None = AT_MOST_QUERIES
