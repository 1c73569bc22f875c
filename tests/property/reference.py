"""What may happen to a ledger, once more and as plainly as possible: dicts and arithmetic."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

LOCKING = {"audio", "somatic", "voice"}

# The one word of all texts that have any: what the ledger must go on saying.
WORD = "abcdefg"

State = dict[str, Any]
# What one record tells: a memory before, None where it was made, and after.
Record = dict[int, tuple[State | None, State]]


def tokens(content: str) -> int:
    return math.ceil(len(content) / 4)


def _is_kept(memory: State) -> bool:
    return memory["type"] == "core" and not memory["discarded"]


def _says(original: str) -> Callable[[str], bool]:
    return lambda text: WORD not in original.casefold() or WORD in text.casefold()


@dataclass
class Session:
    """What is remembered of a session: its records, and all memories as its first one found them.

    ``undone_after`` is how many sessions there were when it was undone.
    """

    found: dict[int, State] | None = None
    records: list[Record] = field(default_factory=list)
    # what its edits found, where they changed or removed it
    taken: list[str] = field(default_factory=list)
    # the duplicates that it removed, in lower case
    duplicates: list[str] = field(default_factory=list)
    removed: int = 0
    undone_after: int | None = None
    is_rolled_back: bool = False

    @property
    def is_undone(self) -> bool:
        return self.undone_after is not None


@dataclass
class Reference:
    """One agent's memories by id, and its sessions, as the specification says they must be."""

    memories: dict[int, State] = field(default_factory=dict)
    threshold: Fraction = Fraction(3, 4)
    floor: Fraction = Fraction(1, 2)

    live: bool = False
    sessions: list[Session] = field(default_factory=list)
    born: dict[int, State] = field(default_factory=dict)
    made: set[int] = field(default_factory=set)
    merged: set[int] = field(default_factory=set)
    mutations: int = 0
    records: int = 0
    # what memories said before sessions changed them, and which session knows of which memory
    originals: list[str] = field(default_factory=list)
    touched: set[tuple[int, int]] = field(default_factory=set)

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
        self.born[id_] = dict(self.memories[id_])

    def kept_core(self) -> dict[int, State]:
        return {id_: memory for id_, memory in self.memories.items() if _is_kept(memory)}

    def locked(self, id_: int) -> bool:
        memory = self.memories[id_]
        return memory["constitutional"] or bool(LOCKING & set(memory["tags"]))

    @property
    def ledger_mass(self) -> int:
        return sum(tokens(memory["content"]) for memory in self.kept_core().values())

    # -- the session ------------------------------------------------------------------------------

    def start(self) -> None:
        self.live = True
        removed_before = sum(past.removed for past in self.sessions if not past.is_undone)
        self.sessions.append(Session())
        self._deduplicate()
        ledger = self.kept_core()
        self.mass = self.ledger_mass
        self.ceiling = {id_: tokens(memory["content"]) for id_, memory in ledger.items()}
        self.counts = dict(self.ceiling)
        self.shown = {id_: dict(memory) for id_, memory in ledger.items()}
        self.allowed = max(
            0,
            min(
                self.mass - math.ceil(self.threshold * self.mass),
                self.mass - math.ceil(self.floor * (self.mass + removed_before)),
            ),
        )
        self.since: list[tuple[bool, Record]] = []
        self.merged, self.mutations = set(), 0

    @property
    def removed(self) -> int:
        return self.mass - sum(self.counts.values())

    def refusal(
        self, ids: list[int], content: str | None = None, *, mutates: bool = True
    ) -> str | None:
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
        if content is not None and tokens(content) > self._longest(ids):
            return "may have at most"
        if mutates and (self._loses(ids, content) or self._adds_a_word(ids, content)):
            return "Nothing was changed:"
        return None

    def _longest(self, ids: list[int]) -> int:
        if len(ids) > 1:
            return sum(tokens(self.memories[id_]["content"]) for id_ in ids)
        return self.ceiling[ids[0]] + max(8, self.ceiling[ids[0]] // 10)

    def _loses(self, ids: list[int], content: str | None) -> bool:
        kept = {id_: memory["content"] for id_, memory in self.kept_core().items()}
        removed = [kept.pop(id_) for id_ in ids]
        left = [*kept.values(), *([content] if content is not None else [])]
        return any(
            any(map(_says(original), removed)) and not any(map(_says(original), left))
            for original in [*self.originals, *self._untouched(ids)]
        )

    def _adds_a_word(self, ids: list[int], content: str | None) -> bool:
        """Tell whether an update says what neither the memory says, nor what it said before."""
        if content is None or len(ids) > 1 or WORD not in content:
            return False
        return WORD not in self.memories[ids[0]]["content"].casefold()

    def _untouched(self, ids: Iterable[int]) -> list[str]:
        session = len(self.sessions)
        return [self.memories[id_]["content"] for id_ in ids if (session, id_) not in self.touched]

    def update(self, id_: int, content: str) -> None:
        self._touch([id_])
        self._edit({id_: {"content": content}})
        if self.counts[id_]:  # what the session took away and somebody restored counts as gone
            self.counts[id_] = min(self.ceiling[id_], tokens(content))
        self._mutated(id_)

    def delete(self, id_: int) -> None:
        self._touch([id_])
        self._edit({id_: {"discarded": True}})
        self.counts[id_] = 0
        self._mutated()

    def consolidate(self, ids: list[int], content: str, result: int) -> None:
        self._touch(ids)
        self.touched.add((len(self.sessions), result))
        sources = [self.memories[id_] for id_ in ids]
        made = {
            "content": content,
            "type": "core",
            "constitutional": False,
            "tags": sorted({tag for source in sources for tag in source["tags"]}),
            "discarded": False,
            "date": min(source["date"] for source in sources),
        }
        self.merged.add(result)
        self.made.add(result)
        self.born[result] = dict(made)
        self._edit({**{id_: {"discarded": True} for id_ in ids}, result: made})
        self.ceiling[result] = sum(self.counts[id_] for id_ in ids)
        self.counts[result] = min(self.ceiling[result], tokens(content))
        self.counts.update(dict.fromkeys(ids, 0))
        self._mutated(result)

    def _touch(self, ids: list[int]) -> None:
        self.originals += self._untouched(ids)
        self.sessions[-1].taken += [self.memories[id_]["content"] for id_ in ids]
        self.touched |= {(len(self.sessions), id_) for id_ in ids}

    def protect(self, id_: int) -> None:
        self._edit({id_: {"constitutional": True}})
        self.shown[id_] = dict(self.memories[id_])

    def change_by_another(self, id_: int, **fields: Any) -> None:
        record = self._changed({id_: fields})
        if self.live:
            self.since.append((False, record))

    def erase(self, ids: set[int]) -> None:
        """Forget them, whatever is undone later."""
        founds = [session.found or {} for session in self.sessions]
        records = [record for session in self.sessions for record in session.records]
        if self.live:
            records += [record for _, record in self.since]
        for known in (self.memories, self.born, *founds, *records):
            for id_ in ids & known.keys():
                del known[id_]

    def end(self) -> None:
        self._record({})
        self.sessions[-1].removed = self.removed
        self.live = False

    def _deduplicate(self) -> None:
        groups: dict[str, list[int]] = defaultdict(list)
        for id_, memory in sorted(
            self.kept_core().items(), key=lambda item: (item[1]["date"], item[0])
        ):
            groups[memory["content"].lower()].append(id_)
        for group in groups.values():
            staying = [id_ for id_ in group if self.locked(id_)] or group[:1]
            for id_ in group:
                if id_ not in staying:
                    kept, gone = self.memories[staying[0]], self.memories[id_]
                    changes: dict[int, State] = {id_: {"discarded": True}}
                    if not set(gone["tags"]) <= set(kept["tags"]):
                        changes[staying[0]] = {"tags": sorted({*kept["tags"], *gone["tags"]})}
                    self._record(changes)
                    self.records += 1
                    self.sessions[-1].duplicates.append(gone["content"].lower())

    def _edit(self, changes: dict[int, State]) -> None:
        self.since.append((True, self._record(changes)))
        self.records += 1

    def _record(self, changes: dict[int, State]) -> Record:
        session = self.sessions[-1]
        if session.found is None:
            session.found = dict(self.memories)
        session.records.append(self._changed(changes))
        return session.records[-1]

    def _changed(self, changes: dict[int, State]) -> Record:
        record: Record = {}
        for id_, fields in changes.items():
            before = self.memories.get(id_)
            self.memories[id_] = {**(before or {}), **fields}
            record[id_] = (before, self.memories[id_])
        return record

    def _mutated(self, *seen: int) -> None:
        self.mutations += 1
        for id_ in seen:
            self.shown[id_] = dict(self.memories[id_])
        if self.removed > self.allowed:
            self._roll_back()

    def _roll_back(self) -> None:
        target = dict(self.memories)
        theirs: dict[int, set[str]] = defaultdict(set)
        for is_ours, record in reversed(self.since):
            for id_, (before, after) in record.items():
                if before is None:
                    target[id_] = {**target[id_], "discarded": True}
                    continue
                changed = {name for name in before if before[name] != after[name]}
                if is_ours:
                    back = {name: before[name] for name in changed - theirs[id_]}
                    target[id_] = {**target[id_], **back}
                else:
                    theirs[id_] |= changed
        self._record({id_: target[id_] for id_ in target if target[id_] != self.memories[id_]})
        self.sessions[-1].is_rolled_back = True
        self.counts = {id_: count for id_, count in self.ceiling.items() if id_ not in self.merged}
        self.live = False

    # -- the Time Machine -------------------------------------------------------------------------

    def left_changes(self, number: int) -> bool:
        session = self.sessions[number]
        return bool(session.duplicates) or (any(session.records) and not session.is_rolled_back)

    def stands_as_left(self, number: int) -> bool:
        """Whether its records find every memory as they left it, and no later edit relies on it."""
        back = self._gone_back(number)
        return back is not None and not self._unsays(number, back)

    def undo(self, number: int) -> None:
        """Take back this session alone, which finds every memory as it left it."""
        self.memories.update(self._gone_back(number) or {})
        self.sessions[number].undone_after = len(self.sessions)

    def was_something_undone_since(self, number: int) -> bool:
        return any((session.undone_after or 0) > number for session in self.sessions)

    def undo_and_after(self, number: int) -> None:
        """Bring all memories back to what the session found; what was saved since stays."""
        found = self.sessions[number].found or {}
        for id_ in self.memories:
            gone = {"discarded": True} if id_ in self.made else {}
            self.memories[id_] = found.get(id_, {**self.born[id_], **gone})
        for session in self.sessions[number:]:
            if session is self.sessions[number] or any(session.records):
                session.undone_after = len(self.sessions)

    def wider_undo_does_something(self, number: int) -> bool:
        wider = deepcopy(self)
        wider.undo_and_after(number)
        return self.left_changes(number) or wider.memories != self.memories

    def _unsays(self, number: int, back: dict[int, State]) -> bool:
        """Whether nothing would say any more what a later session changed or removed."""
        kept = self.kept_core()
        removed = [kept.pop(id_)["content"] for id_ in back if id_ in kept]
        left = [memory["content"] for memory in kept.values()]
        left += [state["content"] for state in back.values() if _is_kept(state)]
        later = [session for session in self.sessions[number + 1 :] if not session.is_undone]
        loses_words = any(
            any(map(_says(text), removed)) and not any(map(_says(text), left))
            for session in later
            for text in session.taken
        )
        copies_gone = {text.lower() for text in removed} - {text.lower() for text in left}
        return loses_words or any(not copies_gone.isdisjoint(each.duplicates) for each in later)

    def _gone_back(self, number: int) -> dict[int, State] | None:
        target: dict[int, State] = {}
        for record in reversed(self.sessions[number].records):
            for id_, (before, after) in record.items():
                present = target.get(id_, self.memories[id_])
                if present != after:
                    return None
                target[id_] = before or {**present, "discarded": True}
        return target
