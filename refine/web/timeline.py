"""A session's steps in time: when each came, what it did, and how near it came to the limit."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from refine.models import AuditLog, RefinementSession
from refine.models.ledger import images_in
from refine.models.ledger.history import effect_tokens
from refine.models.ledger.image import mass_of
from refine.web.presenting import Gauge, changed_core_ids
from refine.web.words import action


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


# Exact duplicates go before the session's limit is calculated.
_UNCOUNTED = (None, "dedup")


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
    return list(_measured(session, moments))


def _measured(session: RefinementSession, moments: Sequence[_Moment]) -> Iterator[Step]:
    before: datetime | None = None
    gone = _Gone()
    for at, what, record in moments:
        data: Any = record.data if record is not None else {}
        operation = data.get("operation")
        gone.take(operation, data)
        yield Step(
            at,
            action(what, data.get("operation", "")),
            at - before if before is not None else None,
            record,
            changed_core_ids(record) if record is not None else (),
            effect_tokens(data) if operation else None,
            Gauge(gone.tokens, session.removable_tokens) if operation not in _UNCOUNTED else None,
        )
        before = at


class _Gone:
    """How much is gone of what a session may remove, as the circuit breaker counts it.

    A memory counts at most what it had when the session began, and a merge what its sources
    counted, so growth pays for no loss.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self._most: dict[int, int] = {}
        self._counts: dict[int, int] = {}

    def take(self, operation: str | None, data: dict[str, Any]) -> None:
        """Take a step: an edit, an undo of the whole session, or what counts nothing."""
        if operation == "undo":
            self.tokens = 0
        elif operation not in _UNCOUNTED:
            self._edit(images_in(data))

    def _edit(self, memories: Sequence[Any]) -> None:
        found = [memory for memory in memories if memory["before"] is not None]
        for memory in found:
            tokens = mass_of(memory["before"])
            self._counts.setdefault(memory["id"], self._most.setdefault(memory["id"], tokens))
        counted = sum(self._counts[memory["id"]] for memory in found)
        self.tokens += counted
        for memory in memories:
            most = self._most.setdefault(memory["id"], counted)
            self._counts[memory["id"]] = min(most, mass_of(memory["after"]))
            self.tokens -= self._counts[memory["id"]]
