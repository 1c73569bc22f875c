"""What a session may do to a ledger, once more and as plainly as possible: dicts and arithmetic."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

LOCKING = {"audio", "somatic", "voice"}


def tokens(content: str) -> int:
    return math.ceil(len(content) / 4)


@dataclass
class Reference:
    """One agent's memories by id, and its session, as the specification says they must be."""

    memories: dict[int, dict[str, Any]] = field(default_factory=dict)
    threshold: Fraction = Fraction(3, 4)
    floor: Fraction = Fraction(1, 2)
    removed_before: int = 0

    live: bool = False
    edits: list[list[tuple[int, str, Any]]] = field(default_factory=list)
    merged: set[int] = field(default_factory=set)
    mutations: int = 0
    records: int = 0

    # -- the ledger -------------------------------------------------------------------------------

    def add(self, id_: int, content: str, kind: str = "core", tags: tuple[str, ...] = ()) -> None:
        self.memories[id_] = {
            "content": content,
            "type": kind,
            "constitutional": False,
            "tags": sorted(tags),
            "discarded": False,
            "date": id_,
        }

    def kept_core(self) -> dict[int, dict[str, Any]]:
        return {
            id_: memory
            for id_, memory in self.memories.items()
            if memory["type"] == "core" and not memory["discarded"]
        }

    def locked(self, id_: int) -> bool:
        memory = self.memories[id_]
        return memory["constitutional"] or bool(LOCKING & set(memory["tags"]))

    # -- the session ------------------------------------------------------------------------------

    def start(self) -> None:
        ledger = self.kept_core()
        self.live = True
        self.mass = sum(tokens(memory["content"]) for memory in ledger.values())
        self.ceiling = {id_: tokens(memory["content"]) for id_, memory in ledger.items()}
        self.counts = dict(self.ceiling)
        self.shown = {id_: dict(memory) for id_, memory in ledger.items()}
        self.allowed = max(
            0,
            min(
                self.mass - math.ceil(self.threshold * self.mass),
                self.mass - math.ceil(self.floor * (self.mass + self.removed_before)),
            ),
        )
        self.edits, self.merged, self.mutations = [], set(), 0

    @property
    def removed(self) -> int:
        return self.mass - sum(self.counts.values())

    def refusal(self, ids: list[int], *, mutates: bool = True) -> str | None:
        """Why an edit of these memories must be refused, as a word of the error; None if it may."""
        if mutates and self.mutations == 10:
            return "Hard cap"
        if any(id_ not in self.kept_core() for id_ in ids):
            return "not found"
        if mutates and any(self.memories[id_]["constitutional"] for id_ in ids):
            return "constitutional"
        if mutates and any(self.locked(id_) for id_ in ids):
            return "immutable"
        for id_ in ids:
            if id_ not in self.shown:
                return "was not there"
            if self.shown[id_] != self.memories[id_]:
                self.shown[id_] = dict(self.memories[id_])
                return "has changed"
        return None

    def update(self, id_: int, content: str) -> None:
        self._edit([(id_, "content", content)])
        self.counts[id_] = min(self.ceiling[id_], tokens(content))
        self._mutated(id_)

    def delete(self, id_: int) -> None:
        self._edit([(id_, "discarded", True)])
        self.counts[id_] = 0
        self._mutated()

    def consolidate(self, ids: list[int], content: str, result: int) -> None:
        sources = [self.memories[id_] for id_ in ids]
        self.add(result, content)
        self.memories[result]["tags"] = sorted(
            {tag for source in sources for tag in source["tags"]}
        )
        self.memories[result]["date"] = min(source["date"] for source in sources)
        self.merged.add(result)
        self._edit([(id_, "discarded", True) for id_ in ids])
        self.edits[-1].append((result, "discarded", True))
        self.ceiling[result] = sum(self.counts[id_] for id_ in ids)
        self.counts[result] = min(self.ceiling[result], tokens(content))
        self.counts.update(dict.fromkeys(ids, 0))
        self._mutated(result)

    def protect(self, id_: int) -> None:
        self._edit([(id_, "constitutional", True)])
        self.shown[id_] = dict(self.memories[id_])

    def end(self) -> None:
        self.live = False
        self.removed_before += self.removed

    def _edit(self, changes: list[tuple[int, str, Any]]) -> None:
        self.edits.append([(id_, name, self.memories[id_][name]) for id_, name, _ in changes])
        for id_, name, value in changes:
            self.memories[id_][name] = value
        self.records += 1

    def _mutated(self, *seen: int) -> None:
        self.mutations += 1
        for id_ in seen:
            self.shown[id_] = dict(self.memories[id_])
        if self.removed > self.allowed:
            self._roll_back()

    def _roll_back(self) -> None:
        for edit in reversed(self.edits):
            for id_, name, value in edit:
                self.memories[id_][name] = value
        self.counts = {id_: count for id_, count in self.ceiling.items() if id_ not in self.merged}
        self.live = False
