"""The filters of the audit log."""

from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, and_

from refine.extensions import db
from refine.models import AuditLog, User
from refine.models.audit.kinds import ACTIONS_OF_KIND
from refine.models.columns import in_ids, in_names
from refine.models.ledger.history import record_ids_about
from refine.models.paging import OneOf
from refine.rules.ids import id_in
from refine.web import scope
from refine.web.forms import day_of, midnight, uuid_of
from refine.web.links import here
from refine.web.lists import Chosen, Filter, of_agent, since
from refine.web.presenting import AGENT_OR_SYSTEM
from refine.web.words import ACTIONS, RECORD_KINDS, action, day

_MAX_WHO_CHARACTERS = 254


class ActorFilter(NamedTuple):
    who: str
    user_id: int | None

    @classmethod
    def named(cls, who: str) -> "ActorFilter":
        found = User.by_email(who) if "@" in who else None
        return cls(who, found.id if found is not None else None)

    def condition(self) -> ColumnElement[bool]:
        if self.who == AGENT_OR_SYSTEM:
            return and_(AuditLog.user_id.is_(None), AuditLog.by.is_(None))
        if "@" in self.who:  # nobody's, if no user has the address
            return AuditLog.user_id == (self.user_id or 0)
        return AuditLog.by == self.who

    def as_data(self) -> dict[str, Any]:
        """Return the actor as records keep them, without users of other accounts."""
        if "@" not in self.who:
            return {"who": self.who}
        user = db.session.get(User, self.user_id) if self.user_id is not None else None
        is_known = user is not None and scope.user().may_see(user.account_id)
        return {"user_id": self.user_id} if is_known else {}


def _actions(chosen: Chosen) -> dict[str, dict[str, str]]:
    kinds = [chosen["kind"]] if chosen["kind"] else list(ACTIONS_OF_KIND)
    return {
        RECORD_KINDS[kind]: {each: action(each) for each in ACTIONS_OF_KIND[kind]} for kind in kinds
    }


# A new filter is one more entry: the list, exports and their records follow.
FILTERS = [
    Filter(
        "kind",
        "Kind",
        read=lambda text: text if text in ACTIONS_OF_KIND else None,
        condition=lambda kind: in_names(AuditLog.action, ACTIONS_OF_KIND[kind]),
        shown=lambda kind: RECORD_KINDS[kind],
    ),
    Filter(
        "action",
        "Action",
        read=lambda text: text if text in ACTIONS else None,
        condition=lambda name: AuditLog.action == name,
        input="select",
        choices=_actions,
        shown=action,
    ),
    of_agent(AuditLog.agent_id),
    Filter(
        "who",
        "By",
        read=lambda text: ActorFilter.named(text[:_MAX_WHO_CHARACTERS]) if text else None,
        condition=lambda actor: actor.condition(),
        input="text",
        attributes={"placeholder": "e-mail, agent, platform, command line", "size": 32},
        shown=lambda actor: f"by {actor.who}",
        recorded=lambda actor: actor.as_data(),
    ),
    Filter(
        "memory",
        "Memory",
        read=lambda text: id_in(text.removeprefix("#")),
        condition=lambda id_: in_ids(AuditLog.id, record_ids_about(id_)),
        input="text",
        attributes={"placeholder": "number", "size": 8, "inputmode": "numeric"},
        shown=lambda id_: f"memory #{id_}",
        recorded=lambda id_: {"memory_id": id_},
    ),
    Filter(
        "session",
        "Session",
        read=uuid_of,
        condition=lambda id_: AuditLog.session_id == id_,
        shown=lambda id_: "one session",
        recorded=lambda id_: {"session_id": str(id_)},
    ),
    since(AuditLog.created_at, label="From"),
    Filter(
        "until",
        "To",
        read=day_of,
        condition=lambda on: AuditLog.created_at < midnight(on, 1),
        input="date",
        shown=lambda on: f"to {day(on)}",
    ),
]


def actions_of_kind(chosen: Chosen) -> OneOf | None:
    """Return the kind's actions, to union their rows; None where another filter is narrower."""
    by = chosen["who"]
    has_few = any(chosen[name] is not None for name in ("action", "agent", "session", "memory"))
    if chosen["kind"] is None or has_few or (by is not None and by.who != AGENT_OR_SYSTEM):
        return None
    return OneOf(AuditLog.action, ACTIONS_OF_KIND[chosen["kind"]])


def visible_records(
    chosen: Chosen, of: Select[*tuple[Any, ...]], *, without: tuple[str, ...] = ()
) -> Select[*tuple[Any, ...]]:
    """Return the chosen records, newest first; the installation's own for site admins alone."""
    return of.where(
        scope.in_scope(AuditLog.account_id), *chosen.conditions(without=without)
    ).order_by(AuditLog.created_at.desc(), AuditLog.id.desc())


def views(chosen: Chosen) -> list[tuple[str, str, bool]]:
    return [
        (name, here(kind=kind, action=None, page=None), kind == chosen["kind"])
        for kind, name in [(None, "All"), *RECORD_KINDS.items()]
    ]
