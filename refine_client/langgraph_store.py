"""LangGraph's store with Refine behind it: an item is a memory. Needs ``langgraph-checkpoint``.

graph = builder.compile(store=RefineStore(Refine()))
"""

import asyncio
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

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


class RefineStore(BaseStore):
    """Items by namespace and key; what a rule of Refine refuses is raised as RefineError.

    ``search`` finds a part of the text. Vectors and expiry are not kept.
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
            return self._put(op)
        if isinstance(op, SearchOp):
            found_items = [item for item in self._items(op) if _has(item.value, op.filter)]
            return found_items[op.offset : op.offset + op.limit]
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        raise TypeError(f"unknown operation {type(op).__name__}")

    def _put(self, op: PutOp) -> None:
        name = _name(op.namespace, op.key)
        if op.value is not None:
            self._memories.put(name, _text(dict(op.value)))
        elif (found := self._memories.get(name)) is not None:
            self._memories.forget(found)

    def _items(self, op: SearchOp) -> Iterator[SearchItem]:
        prefix = tuple(op.namespace_prefix)
        for each in self._memories.all(op.query):
            item = SearchItem(**_fields(each))
            if item.namespace[: len(prefix)] == prefix:
                yield item

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        spaces = {_place(each.name)[0][: op.max_depth] for each in self._memories.all()}
        wanted = [each for each in sorted(spaces) if _matches(each, op.match_conditions or ())]
        return wanted[op.offset : op.offset + op.limit]


def _name(namespace: tuple[str, ...], key: str) -> str:
    return "/".join((*namespace, key))


def _place(name: str) -> tuple[tuple[str, ...], str]:
    *namespace, key = name.split("/")
    return tuple(namespace), key


def _text(value: dict[str, Any]) -> str:
    text = value.get(_FIELD)
    if len(value) == 1 and isinstance(text, str) and not text.startswith("{"):
        return text
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _value(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {_FIELD: text}


def _fields(found: Named) -> dict[str, Any]:
    namespace, key = _place(found.name)
    times = {
        name: datetime.fromisoformat(found.row[name]) for name in ("created_at", "recorded_at")
    }
    return {
        "namespace": namespace,
        "key": key,
        "value": _value(found.text),
        "created_at": times["created_at"],
        "updated_at": times["recorded_at"],
    }


def _has(value: dict[str, Any], wanted: dict[str, Any] | None) -> bool:
    return all(_compares(value.get(name), each) for name, each in (wanted or {}).items())


def _compares(given: Any, wanted: Any) -> bool:
    if not isinstance(wanted, dict):
        return bool(given == wanted)
    return all(_OPERATORS[name](given, operand) for name, operand in wanted.items())


_OPERATORS = {
    "$eq": lambda given, operand: given == operand,
    "$ne": lambda given, operand: given != operand,
    "$gt": lambda given, operand: given is not None and given > operand,
    "$gte": lambda given, operand: given is not None and given >= operand,
    "$lt": lambda given, operand: given is not None and given < operand,
    "$lte": lambda given, operand: given is not None and given <= operand,
}


def _matches(namespace: tuple[str, ...], conditions: Iterable[MatchCondition]) -> bool:
    return all(_meets(namespace, each) for each in conditions)


def _meets(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    is_prefix = condition.match_type == "prefix"
    part = namespace[: len(path)] if is_prefix else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", given) for wanted, given in zip(path, part, strict=True))
