"""Something that is asked of the application, and what it must cost at least."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

AT_MOST_TIMES = 3.0
AT_MOST_QUERIES = 25


@dataclass(frozen=True)
class Asked:
    """What is asked: by its name, with the bare route and the plain query that are its floor."""

    name: str
    ask: Callable[[], Any]
    bare: Callable[[], Any]
    query: str | None = None
    values: Any = None
    then: Callable[[list[Any]], Any] = len
    """What must be done with the rows of the query by all means."""
    at_most_times: float = AT_MOST_TIMES
    at_most_queries: int | None = AT_MOST_QUERIES

    def floor(self, connection: Any) -> Callable[[], None]:
        """Return the least that has to be done, with this connection of psycopg."""

        def least() -> None:
            self.bare()
            if self.query is not None:
                self.then(connection.execute(self.query, self.values).fetchall())
                connection.commit()

        return least
