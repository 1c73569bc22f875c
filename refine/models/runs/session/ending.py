"""How a session ends: measured, recorded, and told to its agent, written by one statement."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple, cast

from sqlalchemy import (
    Exists,
    SQLColumnExpression,
    Table,
    Text,
    Uuid,
    bindparam,
    delete,
    literal,
    select,
    update,
)
from sqlalchemy.orm.attributes import set_committed_value

from refine import clock
from refine.errors import RowAltered
from refine.extensions import UtcDateTime, db
from refine.extensions.statements import Plain
from refine.models.agent import Agent
from refine.models.attested import Attested
from refine.models.audit import ChainHead
from refine.models.audit.chain import StoredHead
from refine.models.audit.linking import Event, next_records
from refine.models.audit.record import APPENDED, RECORD_IDS, appended
from refine.models.ledger import AgentMemory, Change
from refine.models.ledger.memory import FIGURES, about_changes, apply_changes
from refine.models.ledger.row import ID_SEQUENCE
from refine.models.ledger.stored import ADDED, StoredMemory, added
from refine.models.people import User
from refine.models.people.recording import is_recorded, to_record
from refine.models.runs.log import log_after_commit
from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.notes import closing_note
from refine.models.runs.session.state import CONSENTED_ENDS, EndStatus, SessionState
from refine.models.unrecorded import note_change

END_ACTION = {
    "completed": "memory_refinement_complete",
    "rolled_back": "memory_refinement_rollback",
    "incomplete": "memory_refinement_incomplete",
    "declined": "memory_refinement_declined",
    "skipped": "memory_refinement_skipped",
    "failed": "memory_refinement_failed",
}

# The attributes that an end changes.
_CHANGED = (
    *("status", "end_reason", "error_kind", "lease_token", "ended_at"),
    *("memories_after", "mass_after", "sealed_summary", "row_digest"),
)


class Reversal(NamedTuple):
    """What a rollback undoes, what its record adds to the figures, and what the agent is told."""

    changes: Sequence[Change]
    data: Mapping[str, Any]
    note: str | None


NO_REVERSAL = Reversal((), {}, None)


class SessionEnding(SessionState, Attested):
    """A session's end."""

    def give_up(
        self, reason: str, error_kind: str | None = None, *, at: datetime | None = None
    ) -> None:
        """End after a failure: ``incomplete`` if something was changed, else ``failed``.

        A session that somebody asked to stop ends like any other that is stopped: a failure would
        be tried again.
        """
        status: EndStatus = "incomplete" if self.mutation_count else "failed"
        user = None
        if self.is_stop_requested:
            status, user = self.stopped_status, self.stop_requested_by
            reason = f"{self.stop_reason}; {reason}"
        self.finish(status, reason, error_kind=error_kind, user=user, at=at)

    def finish(
        self,
        status: EndStatus,
        reason: str,
        *,
        error_kind: str | None = None,
        summary: str | None = None,
        reversal: Reversal = NO_REVERSAL,
        user: User | None = None,
        at: datetime | None = None,
    ) -> None:
        """End with a status and a record of measured figures, and tell the agent in its journal.

        A rollback's ``reversal`` becomes part of the same record; the figures are those after it.
        ``user`` is who asked for the end, if anybody did. For an agent that was erased or altered
        meanwhile, only figures are recorded, and no journal memory is added.
        """
        at = at or clock.now()
        db.session.flush()
        self.require_genuine()
        edited = [change.memory_id for change in reversal.changes]
        memories = AgentMemory.lock_rows(self.agent, edited) if edited else {}
        head, record_id, note_id = self._end_of_chain()
        with db.session.no_autoflush:  # everything that is set is written together
            self._measure_end(reversal.changes)
            self.status, self.end_reason, self.error_kind = status, reason, error_kind
            self.lease_token, self.ended_at = None, at
            note = self._told(note_id, summary, reversal.note)
            event = self._end_event(reversal, note, user)
            self._write_end(head, (record_id, event), note)
        apply_changes(reversal.changes, memories, at)
        log_after_commit("session ended", self.facts())

    def require_no_end(self) -> None:
        """Raise RowAltered if an end is on record: an earlier version of the row was put back."""
        if db.session.scalar(select(_is_end_on_record(literal(self.id)))):
            raise RowAltered(self.row_name)

    def _end_of_chain(self) -> tuple[StoredHead, int, int]:
        """Lock and return the end of the agent's chain, and ids for a record and a memory.

        RowAltered as in ``require_no_end``.
        """
        rows = _END_OF_CHAIN.execute({"agent_id": self.agent_id, "session_id": str(self.id)})
        if not rows:
            raise RowAltered(f"the audit chain of agent {self.agent_id}")
        is_end_on_record, record_id, note_id, *head = rows[0]
        if is_end_on_record:
            raise RowAltered(self.row_name)
        return StoredHead.genuine(head), record_id, note_id

    def _measure_end(self, changes: Collection[Change]) -> None:
        """Measure the ledger as it is once ``changes`` are made."""
        count, mass = self.agent.ledger.core_totals()
        self.memories_after = count + sum(change.count_difference for change in changes)
        self.mass_after = mass + sum(change.mass_difference for change in changes)

    def _told(
        self, note_id: int, summary: str | None, rollback_note: str | None
    ) -> StoredMemory | None:
        """Set the summary; return the journal memory that tells the agent, if there is any."""
        if self.agent.is_unusable:
            return None
        if self.status in CONSENTED_ENDS:
            self.summary = f"{self.summary_line()} {summary or ''}".strip()
        note = closing_note(self, rollback_note)
        return self._note(note_id, note) if note is not None else None

    def _note(self, id_: int, content: str) -> StoredMemory:
        return StoredMemory.new(
            self.agent.data_key(),
            id=id_,
            agent_id=self.agent_id,
            memory_type="journal",
            content=content,
            tags=[],
            created_at=self.ended_at,
            recorded_at=clock.now(),
            session_id=self.id,
        )

    def _end_event(self, reversal: Reversal, note: StoredMemory | None, user: User | None) -> Event:
        data = {**self.measured(), **reversal.data}
        if self.agent.is_unusable:
            return self._end_record(user, data=data)
        told = [Change(note.id, None, note.image())] if note is not None else []
        changes, mass = [*reversal.changes, *told], self.agent.core_tokens
        sealed = {"summary": self.summary, "consent_reply": self.consent_reply}
        about = about_changes(changes, self.agent.data_key(), mass, data, sealed)
        return self._end_record(user, **about)

    def _end_record(self, user: User | None, **about: Any) -> Event:
        """Return the record of the end."""
        about |= {"session_id": self.id, "subject": ("RefinementSession", self.id), "user": user}
        return to_record(END_ACTION[self.status], **about)

    def _write_end(
        self, head: StoredHead, event: tuple[int, Event], note: StoredMemory | None
    ) -> None:
        """Write the end, its record and the note to the agent."""
        before, at = self.row_digest, cast(datetime, self.ended_at)
        self.row_digest = self.digest_of_row()
        note_change(self, is_update=True, before=before)
        (record,) = next_records(head, [event], self.agent.chain, at)
        changed = {name: getattr(self, name) for name in _CHANGED}
        written = {
            **appended(record, head),
            **changed,
            "refined_at": at if self.status in CONSENTED_ENDS else None,
            "before": before,
            **(added(note) if note is not None else {}),
        }
        if not _writing(cast(Any, type(self)), note is not None).execute(written):
            raise RowAltered(self.row_name)
        for name, value in changed.items():
            set_committed_value(self, name, value)
        db.session.expire(self.agent, (*FIGURES, "last_refinement_at", "updated_at"))


def _is_end_on_record(id_: SQLColumnExpression[Any]) -> Exists:
    return is_recorded("RefinementSession", id_, *END_ACTION.values())


_HEADS, _AGENTS = cast(Table, ChainHead.__table__), cast(Table, Agent.__table__)
_ENTRIES = cast(Table, SessionEntry.__table__)
_END_OF_CHAIN = Plain(
    select(
        select(_is_end_on_record(bindparam("session_id", type_=Text))).scalar_subquery(),
        select(RECORD_IDS.next_value()).scalar_subquery(),
        select(ID_SEQUENCE.next_value()).scalar_subquery(),
        *_HEADS.c,
    )
    .where(ChainHead.is_of_agent(bindparam("agent_id")))
    .with_for_update()
)
_session_id = bindparam("record_session_id", type_=Uuid)
_refined_at = bindparam("refined_at", type_=UtcDateTime)
_REFINED = (
    update(_AGENTS)
    .where(_AGENTS.c.id == bindparam("record_agent_id"), _refined_at.is_not(None))
    .values(last_refinement_at=_refined_at, updated_at=_refined_at)
    .cte("refined")
)
_GONE = delete(_ENTRIES).where(_ENTRIES.c.session_id == _session_id).cte("gone")


@cache
def _writing(kind: Any, has_note: bool) -> Plain:
    """The statement of ``_write_end``; it finds no row if that is not the one that was read."""
    columns = kind.__mapper__.columns
    return Plain(
        update(kind.__table__)
        .where(columns["id"] == _session_id, columns["row_digest"] == bindparam("before"))
        .values({columns[name].name: bindparam(name) for name in _CHANGED})
        .returning(columns["id"])
        .add_cte(*APPENDED, _REFINED, _GONE, *((ADDED,) if has_note else ()))
    )
