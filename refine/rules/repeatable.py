"""An iterator that can be gone through again."""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Repeatable(Generic[T]):
    """Takes items from a source only when they are first asked for, and keeps them."""

    def __init__(self, source: Iterable[T]) -> None:
        self._source = iter(source)
        self._taken: list[T] = []

    def __iter__(self) -> Iterator[T]:
        position = 0
        while True:
            if position == len(self._taken):
                try:
                    self._taken.append(next(self._source))
                except StopIteration:
                    return
            yield self._taken[position]
            position += 1
