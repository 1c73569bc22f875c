"""A session's steps in time: when each came, what it did, and how near it came to the limit."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from refine.models import AuditLog, RefinementSession
from refine.models.ledger.history import effect_tokens
from refine.web.presenting import Gauge, changed_core_ids


class Step(NamedTuple):
    """A step: a record, or an instant that the session's row keeps.

    ``since`` is how long it came after the one before, ``tokens`` by how many it changed the mass,
    ``gone`` how much of what may go was gone by then.
    """

    at: datetime
    what: str
    since: timedelta | None
    record: AuditLog | None
    memory_ids: Sequence[int]
    tokens: int | None
    gone: Gauge | None

    @property
    def is_too_much(self) -> bool:
        """Whether more was gone than may, so that all was undone."""
        return self.gone is not None and self.gone.used > self.gone.available


class _Moment(NamedTuple):
    at: datetime
    what: str
    record: AuditLog | None


def steps(session: RefinementSession, records: Sequence[AuditLog]) -> list[Step]:
    """Return the steps of a session from the first of these records on, oldest first."""
    moments = [_Moment(record.created_at, record.action, record) for record in records]
    begun = moments[0].at if moments else session.created_at
    of_row = [(session.started_at, "a worker began"), (session.consented_at, "the agent agreed")]
    moments += [_Moment(at, what, None) for at, what in of_row if at is not None and at >= begun]
    return list(_measured(session, sorted(moments, key=lambda moment: moment.at)))


def _measured(session: RefinementSession, moments: Sequence[_Moment]) -> Iterator[Step]:
    before: datetime | None = None
    removed = 0
    for at, what, record in moments:
        data: Any = record.data if record is not None else {}
        tokens = effect_tokens(data) if data.get("operation") else None
        removed -= tokens or 0
        yield Step(
            at,
            what,
            at - before if before is not None else None,
            record,
            changed_core_ids(record) if record is not None else (),
            tokens,
            Gauge(max(0, removed), session.removable_tokens) if tokens is not None else None,
        )
        before = at
