"""LangGraph's store with Refine behind it: an item is a memory. Needs ``langgraph-checkpoint``.

graph = builder.compile(store=RefineStore(Refine()))
"""

import asyncio
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any
from urllib.parse import unquote

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from refine_client.client import Refine
from refine_client.named import Named, NamedMemories

# A value that is a text in this field alone is kept as that text, so that it reads well.
_FIELD = "content"

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


class RefineStore(BaseStore):
    """Items by namespace and key; what a rule of Refine refuses is raised as RefineError.

    A search ranks by the words that an item shares with the query. Vectors and expiry are not kept.
    """

    def __init__(self, refine: Refine) -> None:
        self._memories = NamedMemories(refine)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out the operations one by one, in their order."""
        return [self._carry_out(op) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out the operations in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _carry_out(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            found = self._memories.get(_name(op.namespace, op.key))
            return None if found is None else Item(**_fields(found))
        if isinstance(op, PutOp):
            self._put(op)
            return None
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        raise TypeError(f"unknown operation {type(op).__name__}")

    def _put(self, op: PutOp) -> None:
        name = _name(op.namespace, op.key)
        if op.value is not None:
            self._memories.put(name, _text(op.value))
        elif (found := self._memories.get(name)) is not None:
            self._memories.forget(found)

    def _search(self, op: SearchOp) -> list[SearchItem]:
        found = (
            SearchItem(**_fields(each), score=_score(op.query, each) if op.query else None)
            for each in self._memories.all()
        )
        prefix = tuple(op.namespace_prefix)
        items: Iterator[SearchItem] = (
            item
            for item in found
            if item.namespace[: len(prefix)] == prefix and _has(item.value, op.filter or {})
        )
        if op.query:
            items = iter(sorted(items, key=lambda item: -(item.score or 0)))
        return list(islice(items, op.offset, op.offset + op.limit))

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        spaces = {_place(each.name)[0][: op.max_depth] for each in self._memories.all()}
        wanted = [
            space
            for space in sorted(spaces)
            if all(_meets(space, each) for each in op.match_conditions or ())
        ]
        return wanted[op.offset : op.offset + op.limit]


def _name(namespace: tuple[str, ...], key: str) -> str:
    return "/".join(_escaped(part) for part in (*namespace, key))


def _escaped(part: str) -> str:
    return re.sub(r"[%/\[\]\n]", lambda found: f"%{ord(found[0]):02X}", part)


def _place(name: str) -> tuple[tuple[str, ...], str]:
    *namespace, key = map(unquote, name.split("/"))
    return tuple(namespace), key


def _text(value: Mapping[str, Any]) -> str:
    text = value.get(_FIELD)
    if len(value) == 1 and isinstance(text, str) and not text.startswith("{"):
        return text
    return json.dumps(dict(value), ensure_ascii=False, sort_keys=True)


def _value(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {_FIELD: text}


def _fields(found: Named) -> dict[str, Any]:
    namespace, key = _place(found.name)
    return {
        "namespace": namespace,
        "key": key,
        "value": _value(found.text),
        "created_at": datetime.fromisoformat(found.row["created_at"]),
        "updated_at": datetime.fromisoformat(found.row["recorded_at"]),
    }


def _score(query: str, found: Named) -> float:
    """Return which share of the query's words stands in the item."""
    wanted = _words(query)
    return len(wanted & _words(f"{found.name} {found.text}")) / (len(wanted) or 1)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def _has(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(_compares(value.get(name), each) for name, each in wanted.items())


def _compares(given: Any, wanted: Any) -> bool:
    if not isinstance(wanted, dict):
        return bool(given == wanted)
    return all(_holds(name, given, operand) for name, operand in wanted.items())


def _holds(name: str, given: Any, operand: Any) -> bool:
    if name not in _OPERATORS:
        raise ValueError(f"unknown operator {name}; there are {', '.join(_OPERATORS)}")
    has_order = given is not None or name in ("$eq", "$ne")
    return has_order and _OPERATORS[name](given, operand)


def _meets(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    is_prefix = condition.match_type == "prefix"
    part = namespace[: len(path)] if is_prefix else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", given) for wanted, given in zip(path, part, strict=True))
