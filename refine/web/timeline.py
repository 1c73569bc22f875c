"""A session's steps in time: when each came, what it did, and how near it came to the limit."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from refine.models import AuditLog, RefinementSession
from refine.models.ledger.history import effect_tokens
from refine.web.presenting import changed_core_ids
from refine.web.words import action


class Step(NamedTuple):
    """A step: a record, or an instant that the session's row keeps.

    ``since`` is how long it came after the one before, ``tokens`` by how many it changed the mass.
    """

    at: datetime
    what: str
    since: timedelta | None
    record: AuditLog | None
    memory_ids: Sequence[int]
    tokens: int | None


class _Moment(NamedTuple):
    at: datetime
    what: str
    record: AuditLog | None


def steps(session: RefinementSession, records: Sequence[AuditLog]) -> list[Step]:
    """Return the steps of a session from the first of these records on, oldest first."""
    moments = [_Moment(record.created_at, record.action, record) for record in records]
    begun = moments[0].at if moments else session.created_at
    of_row = [(session.started_at, "a worker began"), (session.consented_at, "the agent agreed")]
    in_row = [_Moment(at, what, None) for at, what in of_row if at is not None and at >= begun]
    # at one and the same time, the work follows the request and comes before the rest
    moments = sorted([*moments[:1], *in_row, *moments[1:]], key=lambda moment: moment.at)
    return list(_measured(moments))


def _measured(moments: Sequence[_Moment]) -> Iterator[Step]:
    before: datetime | None = None
    for at, what, record in moments:
        data: Any = record.data if record is not None else {}
        yield Step(
            at,
            action(what, data.get("operation", "")),
            at - before if before is not None else None,
            record,
            changed_core_ids(record) if record is not None else (),
            effect_tokens(data) if data.get("operation") else None,
        )
        before = at
