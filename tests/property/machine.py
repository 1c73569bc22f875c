"""One agent's life as a state machine, beside the reference model: whatever happens, it holds."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import func, select

from refine import clock
from refine.errors import Refused
from refine.extensions import db
from refine.models import AgentMemory, AuditLog, RefinementSession, retention
from refine.models.runs.session.duplicates import remove_duplicates
from refine.refinement import time_machine
from refine.refinement.time_machine import Undo, UndoConflict
from refine.tools import RefinementTool, SaveMemoryTool
from tests import factories
from tests.chains import verify_agent
from tests.factories import EDITS, mark
from tests.property.reference import WORD, Reference, tokens

picks = st.integers(min_value=0, max_value=40)
lengths = st.integers(min_value=1, max_value=60)
verbs = st.sampled_from(["update", "delete", "merge", "protect"])
tag_lists = st.sampled_from([(), (), (), ("relational",), ("voice",), ("relational", "audio")])


class Life(RuleBasedStateMachine):
    """Short sessions, chat writes, imports, toggles, restores, undos and erasures, in any order."""

    @initialize(
        sizes=st.lists(lengths, min_size=5, max_size=12), tags=st.lists(tag_lists, max_size=12)
    )
    def begin(self, sizes: list[int], tags: list[tuple[str, ...]]) -> None:
        self.reference = Reference()
        self.written = 0
        self.old: set[int] = set()
        self.agent = factories.agent()
        self.foreign = factories.memory(factories.agent()).id
        for position, size in enumerate(sizes):
            given = tags[position] if position < len(tags) else ()
            self.remember(self.text(size), "core", given)
        self.tool: RefinementTool | None = None
        self.session_ids: list[uuid.UUID] = []
        db.session.commit()

    def remember(self, content: str, kind: str, tags: tuple[str, ...], **dates: datetime) -> int:
        made = factories.memory(self.agent, content, memory_type=kind, tags=list(tags), **dates)
        self.reference.add(made.id, content, kind, tags)
        return made.id

    # -- sessions ---------------------------------------------------------------------------------

    @rule(pick=st.integers(0, 1), verb=verbs)
    def a_session_makes_one_edit(self, pick: int, verb: str) -> None:
        """Of a memory that others edit too: sessions are to get into each other's way."""
        if self.reference.live or len(self.editable()) < 2:
            return
        ids = self.editable()[:3]
        content = self.text(tokens(self.reference.memories[ids[pick]]["content"]))
        self.start()
        if verb == "update":
            self.update_one(ids[pick], content)
        elif verb == "delete":
            self.delete_one(ids[pick])
        elif verb == "merge":
            self.merge(ids[pick:], content)
        else:
            self.protect_one(ids[pick])
        if self.reference.live:
            self.end()

    # -- others -----------------------------------------------------------------------------------

    @rule(size=lengths, kind=st.sampled_from(["core", "journal"]), tags=tag_lists)
    def the_agent_saves_in_a_chat(self, size: int, kind: str, tags: tuple[str, ...]) -> None:
        content = self.text(size)
        saved = SaveMemoryTool(self.agent).execute(
            content=content, memory_type=kind, tags=list(tags)
        )
        self.reference.add(saved["id"], content, kind, tags)

    @rule(pick=picks, tags=tag_lists)
    def an_import_brings_a_copy(self, pick: int, tags: tuple[str, ...]) -> None:
        copied = self.reference.memories[self.own(pick)]
        self.remember(copied["content"].title(), copied["type"], tags)
        db.session.commit()

    @rule(size=lengths, tags=tag_lists)
    def an_old_journal_memory_turns_up(self, size: int, tags: tuple[str, ...]) -> None:
        at = clock.now() - timedelta(days=99)
        dates = {"created_at": at, "recorded_at": at}
        self.old.add(self.remember(self.text(size), "journal", tags, **dates))
        db.session.commit()

    @rule()
    def the_clock_erases_old_journals(self) -> None:
        """Unless they are locked now."""
        gone = {id_ for id_ in self.old if not self.reference.locked(id_)}
        self.agent.account.kept_months = 1
        assert retention.erase_old(self.agent, clock.now()) == len(gone)
        db.session.commit()
        self.old -= gone
        self.reference.erase(gone)

    @rule(pick=picks)
    def an_admin_toggles_the_flag(self, pick: int) -> None:
        memory = self.memory(self.own(pick))
        memory.set_constitutional(not memory.constitutional)
        db.session.commit()
        state = self.reference.memories[memory.id]
        self.reference.change_by_another(memory.id, constitutional=not state["constitutional"])

    @rule(pick=picks)
    def an_admin_discards_or_restores(self, pick: int) -> None:
        memory = self.memory(self.own(pick))
        state = self.reference.memories[memory.id]
        if state["constitutional"] and not state["discarded"]:
            with pytest.raises(Refused):
                memory.discard()
            db.session.rollback()
            return
        verb = memory.restore if state["discarded"] else memory.discard
        verb()
        db.session.commit()
        self.reference.change_by_another(memory.id, discarded=not state["discarded"])

    @rule(pick=picks)
    def an_admin_undoes_a_session(self, pick: int) -> None:
        if not self.session_ids:
            return
        number = self.session(pick)
        if self.reference.sessions[number].is_undone:
            assert self.undo(number, and_after=False).is_done
        elif self.reference.live:
            with pytest.raises(Refused, match="is running"):
                self.undo(number, and_after=False)
        elif self.reference.stands_as_left(number) and not self.reference.left_changes(number):
            with pytest.raises(Refused, match="left no changes"):
                self.undo(number, and_after=False)
        elif self.reference.stands_as_left(number):
            self.undo_from(number, and_after=False)
            self.reference.undo(number)
        else:
            with pytest.raises(UndoConflict):
                self.undo(number, and_after=False)
        db.session.rollback()

    @rule(pick=picks)
    def an_admin_undoes_a_session_and_everything_after_it(self, pick: int) -> None:
        if not self.session_ids:
            return
        number = self.session(pick)
        if self.reference.sessions[number].is_undone:
            assert self.undo(number, and_after=True).is_done
        elif self.reference.live:
            with pytest.raises(Refused, match="is running"):
                self.undo(number, and_after=True)
        elif self.reference.was_something_undone_since(number):
            pass
        elif not self.reference.wider_undo_does_something(number):
            with pytest.raises(Refused, match="left no changes"):
                self.undo(number, and_after=True)
        else:
            self.undo_from(number, and_after=True)
            self.reference.undo_and_after(number)
        db.session.rollback()

    # -- what always holds ------------------------------------------------------------------------

    @invariant()
    def every_memory_is_as_the_reference_has_it(self) -> None:
        if not hasattr(self, "reference"):
            return
        rows = db.session.scalars(
            select(AgentMemory).where(AgentMemory.agent_id == self.agent.id)
        ).all()
        ours = {row.id: row for row in rows if row.source != "note" and not row.is_erased}
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
        if not getattr(self, "session_ids", None):
            return
        session = db.session.get_one(RefinementSession, self.session_ids[-1])
        assert session.removed_tokens == self.reference.removed <= session.removable_tokens
        assert session.mutation_count == self.reference.mutations <= 10
        assert (session.status == "running") == self.reference.live
        db.session.commit()

    @invariant()
    def what_was_undone_is_marked_and_counts_as_removed_no_more(self) -> None:
        if not getattr(self, "session_ids", None):
            return
        sessions = [db.session.get_one(RefinementSession, id_) for id_ in self.session_ids]
        pasts = self.reference.sessions
        assert [session.undone_at is not None for session in sessions] == [
            past.is_undone for past in pasts
        ]
        if not self.reference.live:
            removed = sum(past.removed for past in pasts if not past.is_undone)
            assert RefinementSession.removed_recently(self.agent) == removed
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
        start = mark(self.written)
        words = f"{WORD} " * ((4 * size - len(start)) // len(f"{WORD} "))
        return (start + words).rstrip().ljust(4 * size, ".")

    def editable(self) -> list[int]:
        """The ids of the memories that a session may change, the newest first."""
        kept = self.reference.kept_core()
        return [id_ for id_ in reversed(kept) if not self.reference.locked(id_)]

    def own(self, number: int) -> int:
        """One of the agent's ids."""
        return list(self.reference.memories)[number % len(self.reference.memories)]

    def pick(self, number: int) -> int:
        """One of the agent's ids, or now and then another agent's, or nobody's."""
        choices = [*self.reference.memories, self.foreign, 10**9]
        return choices[number % len(choices)]

    def session(self, number: int) -> int:
        """The place of one of the sessions; of one that is undone where all are."""
        sessions = list(enumerate(self.reference.sessions))
        choices = [place for place, session in sessions if not session.is_undone]
        return (choices or list(range(len(sessions))))[number % len(choices or sessions)]

    def memory(self, id_: int) -> AgentMemory:
        return db.session.get_one(AgentMemory, id_)

    def start(self) -> None:
        """A session as a worker begins it."""
        session = RefinementSession.queue(self.agent, "cli")
        session.claim()
        remove_duplicates(session)
        session.take_snapshot()
        db.session.commit()
        self.reference.start()
        self.tool = RefinementTool(session)
        self.session_ids.append(session.id)
        assert session.removable_tokens == self.reference.allowed

    def delete_one(self, id_: int) -> None:
        expected = self.reference.refusal([id_])
        result = self.call(expected, action="delete", id=f"#{id_}")
        if expected is None:
            self.reference.delete(id_)
            self.check_outcome(result, "deleted")

    def update_one(self, id_: int, content: str) -> None:
        expected = self.reference.refusal([id_], content)
        result = self.call(expected, action="update", id=id_, content=f"  {content}\n")
        if expected is None:
            self.reference.update(id_, content)
            self.check_outcome(result, "updated")

    def merge(self, chosen: list[int], content: str) -> None:
        ids = list(dict.fromkeys(chosen))
        expected = "at least 2" if len(ids) < 2 else self.reference.refusal(ids, content)
        result = self.call(expected, action="consolidate", ids=ids, content=content)
        if expected is None:
            newest = select(func.max(AgentMemory.id)).where(
                AgentMemory.agent_id == self.agent.id, AgentMemory.memory_type == "core"
            )
            self.reference.consolidate(ids, content, db.session.scalar(newest) or 0)
            self.check_outcome(result, "consolidated")

    def protect_one(self, id_: int) -> None:
        kept = self.reference.kept_core()
        already = id_ in kept and kept[id_]["constitutional"]
        expected = None if already else self.reference.refusal([id_], mutates=False)
        result = self.call(expected, action="protect", id=id_)
        if expected is None:
            assert result["type"] == "protected"
            if not already:
                self.reference.protect(id_)

    def end(self) -> None:
        result = self.call(None, action="complete", summary="enough")
        assert result["type"] == "refinement_complete"
        self.reference.end()

    def undo(self, number: int, *, and_after: bool) -> Undo:
        session = db.session.get_one(RefinementSession, self.session_ids[number])
        return time_machine.undo(session, through="dashboard", and_after=and_after)

    def undo_from(self, number: int, *, and_after: bool) -> None:
        """Undo, which says before what it says afterwards, and counts right."""
        session = db.session.get_one(RefinementSession, self.session_ids[number])
        seen = time_machine.preview(session, and_after=and_after)
        found = self.agent.ledger.core_totals()
        done = self.undo(number, and_after=and_after)
        db.session.commit()
        left = self.agent.ledger.core_totals()
        effect = done.effect
        assert (seen.effect, seen.sessions) == (effect, done.sessions)
        assert (effect.memories_before, effect.mass_before) == found
        assert (effect.memories_after, effect.mass_after) == left

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
