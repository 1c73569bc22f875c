"""Random sessions against the reference model: whatever happens, the guarantees hold."""

from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import func, select

from refine.errors import Refused
from refine.extensions import db
from refine.models import AgentMemory, AuditLog, RefinementSession, SessionAlreadyLive
from refine.models.audit import EDITS
from refine.models.verification import verify_agent
from refine.tools import RefinementTool, SaveMemoryTool
from tests import factories
from tests.property.reference import Reference

picks = st.integers(min_value=0, max_value=40)
lengths = st.integers(min_value=1, max_value=60)
tag_lists = st.sampled_from([(), (), (), ("relational",), ("voice",), ("relational", "audio")])
mistakes = st.sampled_from(
    [
        {"action": "erase"},
        {"action": None},
        {"action": ["delete"]},
        {"action": "delete"},
        {"action": "delete", "id": True},
        {"action": "delete", "id": 1.0},
        {"action": "delete", "id": "1abc"},
        {"action": "delete", "id": 1, "force": True},
        {"action": "update", "id": 1, "content": ""},
        {"action": "update", "id": 1, "content": "x" * 10_001},
        {"action": "update", "id": 1, "content": "a\x00b"},
        {"action": "consolidate", "ids": [1], "content": "alone"},
        {"action": "consolidate", "ids": [], "content": "none"},
        {"action": "search"},
        {"action": "search", "query": "x" * 501},
        {"action": "complete", "summary": "  "},
    ]
)


class Sessions(RuleBasedStateMachine):
    """Tool calls, chat writes, toggles, other sessions and mistakes, in any order."""

    @initialize(sizes=st.lists(lengths, max_size=12), tags=st.lists(tag_lists, max_size=12))
    def begin(self, sizes: list[int], tags: list[tuple[str, ...]]) -> None:
        self.reference = Reference()
        self.written = 0
        self.agent = factories.agent()
        self.foreign = factories.memory(factories.agent()).id
        for position, size in enumerate(sizes):
            given = tags[position] if position < len(tags) else ()
            self.remember(self.text(size), "core", given)
        self.tool: RefinementTool | None = None
        self.session_id: Any = None
        db.session.commit()

    def remember(self, content: str, kind: str, tags: tuple[str, ...]) -> None:
        made = factories.memory(self.agent, content, memory_type=kind, tags=list(tags))
        self.reference.add(made.id, content, kind, tags)

    # -- sessions ---------------------------------------------------------------------------------

    @rule()
    def a_session_starts_unless_one_is_live(self) -> None:
        if self.reference.live:
            with pytest.raises(SessionAlreadyLive) as live:
                RefinementSession.start(self.agent)
            assert live.value.session_id == self.session_id
            db.session.rollback()
            return
        session = RefinementSession.start(self.agent)
        db.session.commit()
        self.reference.start()
        self.tool, self.session_id = RefinementTool(session), session.id
        assert session.removable_tokens == self.reference.allowed

    @precondition(lambda self: self.reference.live)
    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        id_ = self.pick(pick)
        expected = self.reference.refusal([id_])
        result = self.call(expected, action="delete", id=f"#{id_}")
        if expected is None:
            self.reference.delete(id_)
            self.check_outcome(result, "deleted")

    @precondition(lambda self: self.reference.live)
    @rule(pick=picks, size=lengths)
    def update(self, pick: int, size: int) -> None:
        id_, content = self.pick(pick), self.text(size)
        expected = self.reference.refusal([id_])
        result = self.call(expected, action="update", id=id_, content=f"  {content}\n")
        if expected is None:
            self.reference.update(id_, content)
            self.check_outcome(result, "updated")

    @precondition(lambda self: self.reference.live)
    @rule(chosen=st.lists(picks, min_size=2, max_size=4), size=lengths)
    def consolidate(self, chosen: list[int], size: int) -> None:
        ids = list(dict.fromkeys(self.pick(pick) for pick in chosen))
        content = self.text(size)
        expected = "at least 2" if len(ids) < 2 else self.reference.refusal(ids)
        result = self.call(expected, action="consolidate", ids=ids, content=content)
        if expected is None:
            newest = select(func.max(AgentMemory.id)).where(
                AgentMemory.agent_id == self.agent.id, AgentMemory.memory_type == "core"
            )
            self.reference.consolidate(ids, content, db.session.scalar(newest))
            self.check_outcome(result, "consolidated")

    @precondition(lambda self: self.reference.live)
    @rule(pick=picks)
    def protect(self, pick: int) -> None:
        id_ = self.pick(pick)
        kept = self.reference.kept_core()
        already = id_ in kept and kept[id_]["constitutional"]
        expected = None if already else self.reference.refusal([id_], mutates=False)
        result = self.call(expected, action="protect", id=id_)
        if expected is None:
            assert result["type"] == "protected"
            if not already:
                self.reference.protect(id_)

    @precondition(lambda self: self.reference.live)
    @rule(query=st.sampled_from(["abc", "DEFG", "%", "_", "zzz"]))
    def search(self, query: str) -> None:
        result = self.call(None, action="search", query=query)
        found = [
            id_
            for id_, memory in self.reference.kept_core().items()
            if query.lower() in memory["content"].lower()
        ]
        assert result["count"] == len(found)
        for entry in result["results"]:
            if entry["id"] in self.reference.shown:
                memory = self.reference.memories[entry["id"]]
                self.reference.shown[entry["id"]] = dict(memory)

    @precondition(lambda self: self.reference.live)
    @rule(mistake=mistakes)
    def a_mistake_of_the_model_changes_nothing(self, mistake: dict[str, Any]) -> None:
        assert self.tool is not None
        assert self.tool.execute(**mistake)["type"] == "error"

    @precondition(lambda self: self.reference.live)
    @rule()
    def complete(self) -> None:
        result = self.call(None, action="complete", summary="enough")
        assert result["type"] == "refinement_complete"
        self.reference.end()

    @precondition(lambda self: self.tool is not None and not self.reference.live)
    @rule(pick=picks)
    def after_the_end_every_call_is_refused(self, pick: int) -> None:
        self.call("Session terminated", action="delete", id=self.pick(pick))

    # -- others -----------------------------------------------------------------------------------

    @rule(size=lengths, kind=st.sampled_from(["core", "journal"]), tags=tag_lists)
    def the_agent_saves_in_a_chat(self, size: int, kind: str, tags: tuple[str, ...]) -> None:
        content = self.text(size)
        saved = SaveMemoryTool(self.agent).execute(
            content=content, memory_type=kind, tags=list(tags)
        )
        self.reference.add(saved["id"], content, kind, tags)

    @rule(pick=picks)
    def an_admin_toggles_the_flag(self, pick: int) -> None:
        memory = db.session.get(AgentMemory, self.pick(pick))
        if memory is None or memory.agent_id != self.agent.id:
            return
        memory.set_constitutional(not memory.constitutional)
        db.session.commit()
        state = self.reference.memories[memory.id]
        state["constitutional"] = not state["constitutional"]

    @rule(pick=picks)
    def an_admin_discards_or_restores(self, pick: int) -> None:
        memory = db.session.get(AgentMemory, self.pick(pick))
        if memory is None or memory.agent_id != self.agent.id:
            return
        state = self.reference.memories[memory.id]
        if state["discarded"]:
            memory.restore()
            state["discarded"] = False
        elif state["constitutional"]:
            try:
                memory.discard()
            except Refused:
                db.session.rollback()
            else:
                raise AssertionError("a constitutional memory was discarded")
        else:
            memory.discard()
            state["discarded"] = True
        db.session.commit()

    # -- what always holds ------------------------------------------------------------------------

    @invariant()
    def every_memory_is_as_the_reference_has_it(self) -> None:
        if not hasattr(self, "reference"):
            return
        rows = db.session.scalars(
            select(AgentMemory).where(AgentMemory.agent_id == self.agent.id)
        ).all()
        ours = {row.id: row for row in rows if row.session_id is None or row.memory_type == "core"}
        assert set(ours) == set(self.reference.memories)
        for id_, expected in self.reference.memories.items():
            row = ours[id_]
            assert row.content == expected["content"]
            assert row.memory_type == expected["type"]
            assert row.constitutional == expected["constitutional"]
            assert sorted(row.tags) == expected["tags"]
            assert row.discarded == expected["discarded"]
            assert row.created_at == ours[expected["date"]].created_at
        db.session.commit()

    @invariant()
    def never_more_is_removed_than_allowed_nor_changed_than_the_cap(self) -> None:
        if getattr(self, "session_id", None) is None:
            return
        session = db.session.get_one(RefinementSession, self.session_id)
        assert session.removed_tokens == self.reference.removed <= session.removable_tokens
        assert session.mutation_count == self.reference.mutations <= 10
        assert (session.status == "running") == self.reference.live
        db.session.commit()

    @invariant()
    def every_edit_has_its_record_and_every_record_its_edit(self) -> None:
        if not hasattr(self, "reference"):
            return
        edits = select(func.count()).where(
            AuditLog.agent_id == self.agent.id, AuditLog.action.in_(EDITS)
        )
        assert db.session.scalar(edits) == self.reference.records
        db.session.commit()
        assert verify_agent(self.agent).problem is None
        db.session.commit()

    def teardown(self) -> None:
        db.session.rollback()

    # -- help -------------------------------------------------------------------------------------

    def text(self, size: int) -> str:
        """A text of exactly so many tokens, different from every other of this run."""
        self.written += 1
        return (
            (f"{self.written:z>4x}" + " abcdefg" * size)[: 4 * size].rstrip().ljust(4 * size, ".")
        )

    def pick(self, number: int) -> int:
        """One of the agent's ids, or now and then another agent's, or nobody's."""
        choices = [*self.reference.memories, self.foreign, 10**9]
        return choices[number % len(choices)]

    def call(self, expected_error: str | None, **arguments: Any) -> dict[str, Any]:
        assert self.tool is not None
        result = self.tool.execute(**arguments)
        if expected_error is None:
            assert result["type"] != "error", result
        else:
            assert result["type"] == "error", result
            assert expected_error in result["error"]
        return result

    def check_outcome(self, result: dict[str, Any], expected: str) -> None:
        assert result["type"] == (expected if self.reference.live else "refinement_rolled_back")


def test_no_sequence_of_calls_writes_and_toggles_breaks_a_guarantee(app: Flask) -> None:
    run_state_machine_as_test(
        Sessions,
        settings=settings(
            max_examples=50,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
