"""Labelled edits through the real tool: which legitimate ones are refused, which wrong ones pass.

A file of edits has one JSON object a line: ``class``; ``before``, the memories, the oldest first;
``operation``; ``after``, the new text; ``should``: ``accept`` or ``refuse``. Operations are
``update``, ``merge`` or ``consolidate``, and ``delete``, of the memories in ``ids`` (``$0``: the
first, ``$last``, ``$all``); ``delete1`` is a deletion of ``$1``. ``reason`` is what the edit
claims: ``same``, if nothing else stands there, ``outdated`` or ``wrong``.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from refine.extensions import db
from refine.models import Account, Agent, AgentMemory, RefinementSession
from refine.refinement.prompting import reading_of
from refine.rules.second_reading import Case, Verdict, answers_in, verdicts_in
from refine.tools import RefinementTool

BUILT_IN = Path(__file__).with_name("meaning_pairs.jsonl")
# Answers what a second reading says to a prompt; None: nothing.
Reader = Callable[[str], str | None]

_FIRST_DAY = datetime(2026, 3, 2, 12, tzinfo=UTC)
_CHANGED = frozenset({"consolidated", "updated", "deleted"})
_CORRECTIONS = frozenset({"outdated", "superseded"})
# So that no edit empties a ledger: that is another rule's to judge.
_BALLAST = "Seven gulls were sitting on the roof of the boathouse when the ferry came in."


@dataclass(frozen=True)
class Pair:
    """An edit, and whether it is legitimate."""

    kind: str
    operation: str
    before: tuple[str, ...]
    after: str | None
    is_legitimate: bool
    ids: tuple[int, ...]
    reason: str = "same"

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Pair":
        """Return the edit that a line of a file describes."""
        operation, before = row["operation"], tuple(row["before"])
        kind = row["class"] or "other"
        if operation.startswith("delete"):
            listed = row.get("ids") or [f"${operation.removeprefix('delete') or 0}"]
        else:
            listed = row.get("ids") or ["$all"]
        ids = tuple(number for each in listed for number in _numbers(each, len(before)))
        return cls(
            kind=kind,
            operation="delete" if operation.startswith("delete") else operation,
            before=before,
            after=row["after"],
            is_legitimate=row["should"] == "accept",
            ids=ids,
            reason=row.get("reason", "outdated" if kind in _CORRECTIONS else "same"),
        )

    @property
    def is_shown(self) -> bool:
        """Tell whether the file shows what is to carry what a legitimate edit takes away."""
        return not self.is_legitimate or self.after is not None or len(self.before) > len(self.ids)

    @property
    def successor(self) -> int | None:
        """Return which memory takes the place of one that is deleted: the last of the others."""
        others = [each for each in range(len(self.before)) if each not in self.ids]
        return others[-1] if others and self.after is None else None


class Outcome(NamedTuple):
    """What the tool answered to an edit."""

    pair: Pair
    is_accepted: bool
    error: str | None


class Counts(NamedTuple):
    """Of one class of edits: how many there are, and how many of them were misjudged."""

    legitimate: int
    refused: int
    wrong: int
    accepted: int

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> "Counts":
        """Count outcomes."""
        judged = [(each.pair.is_legitimate, each.is_accepted) for each in outcomes]
        return cls(
            legitimate=sum(is_legitimate for is_legitimate, _ in judged),
            refused=judged.count((True, False)),
            wrong=sum(not is_legitimate for is_legitimate, _ in judged),
            accepted=judged.count((False, True)),
        )

    def keeps(self, promise: "Promise") -> bool:
        """Tell whether few enough were misjudged."""
        is_useful = self.refused <= promise.refused * self.legitimate
        return is_useful and self.accepted <= promise.accepted * self.wrong


class Promise(NamedTuple):
    """At most these shares: of the legitimate edits are refused, of the wrong ones accepted."""

    refused: float
    accepted: float


ALONE, WITH_READER = Promise(0.4, 0.06), Promise(0.03, 0.03)


def pairs_in(path: Path) -> list[Pair]:
    """Return the edits of a file. Raises ValueError, KeyError or TypeError if it holds none."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Pair.of(json.loads(line)) for line in lines if line.strip()]


def judged(pairs: Iterable[Pair], reader: Reader | None = None) -> Iterator[Outcome]:
    """Yield what the tool says of each edit, in a session of its own.

    Needs an application context on a temporary database. Without a ``reader`` the code decides
    alone; so it does where the reader has no usable answer.
    """
    account = Account(name="Meaning", slug="meaning")
    db.session.add(account)
    for pair in pairs:
        agent = Agent(
            account=account, name="Keeper", model_id="bench/none", refinement_threshold=0.01
        )
        memories = _stored(agent, pair)
        verdicts: dict[Case, Verdict | None] | None = None if reader is None else {}
        tool = RefinementTool(RefinementSession.start(agent), verdicts=verdicts)
        db.session.commit()
        call = _call(pair, [memory.id for memory in memories])
        if reader is not None and verdicts is not None:
            for case in tool.cases_of([call]):
                verdicts[case] = _verdict(reader(_prompt(agent, case)))
        result = tool.execute(**call)
        yield Outcome(pair, result["type"] in _CHANGED, result.get("error"))
        db.session.expunge_all()
        account = db.session.merge(account)


def _prompt(agent: Agent, case: Case) -> str:
    return str(reading_of(agent, [case], is_repeated=False)[-1]["content"])


def _verdict(answer: str | None) -> Verdict | None:
    return verdicts_in(answers_in(answer or ""), 1)[0]


def _stored(agent: Agent, pair: Pair) -> list[AgentMemory]:
    # on the same days whenever it runs: the prompts of second readings tell them
    memories = [
        AgentMemory(agent=agent, content=text, created_at=_FIRST_DAY + timedelta(days=day))
        for day, text in enumerate((*pair.before, _BALLAST))
    ]
    db.session.add_all(memories)
    db.session.flush()
    return memories[:-1]


def _call(pair: Pair, ids: list[int]) -> dict[str, Any]:
    chosen = [ids[number] for number in pair.ids]
    reason = {} if pair.reason == "same" else {"reason": pair.reason}
    if pair.operation == "delete":
        by = {} if pair.successor is None or not reason else {"by": ids[pair.successor]}
        return {"action": "delete", "id": chosen[0], **reason, **by}
    if len(chosen) == 1:
        return {"action": "update", "id": chosen[0], "content": pair.after, **reason}
    return {"action": "consolidate", "ids": chosen, "content": pair.after, **reason}


def _numbers(listed: str, count: int) -> Iterable[int]:
    match listed.removeprefix("$"):
        case "all":
            return range(count)
        case "last":
            return (count - 1,)
        case number:
            return (int(number),)
