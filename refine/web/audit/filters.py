"""What the URL asks of the audit log; a filter that is bookmarked is a saved view."""

import uuid
from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

from flask import request
from sqlalchemy import ColumnElement, Select, and_, func, select, true

from refine.extensions import db
from refine.models import AuditLog, User
from refine.models.audit.kinds import ACTIONS_OF_KIND
from refine.models.columns import one_of_ids, one_of_names
from refine.models.ledger.history import record_ids_about
from refine.models.paging import OneOf
from refine.models.people.acting import AGENT_OR_SYSTEM, OTHER_ACTORS, is_by, user_id_of
from refine.rules.ids import id_in
from refine.web import scope
from refine.web.forms import day_of, midnight, uuid_of
from refine.web.links import here
from refine.web.words import ACTIONS, RECORD_KINDS

_MAX_WHO_CHARACTERS = 254
_MAX_SUGGESTED = 50


class View(NamedTuple):
    """A kind of records, and the address of this page with it."""

    name: str
    url: str
    is_current: bool


class AuditFilter(NamedTuple):
    """Which records are shown; ``record_ids`` are those about the memory, if one is chosen."""

    kind: str
    action: str
    who: str
    user_id: int | None
    agent_id: int | None
    session_id: uuid.UUID | None
    memory_id: int | None
    record_ids: Sequence[int]
    since: date | None
    until: date | None

    @classmethod
    def of_request(cls) -> "AuditFilter":
        """Read the filter from the URL; invalid values are ignored."""
        args = request.args
        who = args.get("who", "").strip()[:_MAX_WHO_CHARACTERS]
        memory_id = id_in(args.get("memory", "").strip().removeprefix("#"))
        return cls(
            kind=args.get("kind", "") if args.get("kind", "") in ACTIONS_OF_KIND else "",
            action=args.get("action", "") if args.get("action", "") in ACTIONS else "",
            who=who,
            user_id=user_id_of(who),
            agent_id=scope.chosen_agent_id(),
            session_id=uuid_of(args.get("session", "")),
            memory_id=memory_id,
            record_ids=record_ids_about(memory_id) if memory_id is not None else (),
            since=day_of(args.get("since", "")),
            until=day_of(args.get("until", "")),
        )

    @property
    def has_few_records(self) -> bool:
        """Whether it narrows to one agent, session, memory or actor, so that few records match."""
        chosen = (self.agent_id, self.session_id, self.memory_id)
        return any(each is not None for each in chosen) or self.who not in ("", AGENT_OR_SYSTEM)

    @property
    def one_of(self) -> OneOf | None:
        """Return the actions of the kind, if a page is to be put together of them."""
        if not self.kind or self.action or self.has_few_records:
            return None
        return OneOf(AuditLog.action, ACTIONS_OF_KIND[self.kind])

    def condition(self, *, but_kind: bool = False) -> ColumnElement[bool]:
        """Return it in SQL."""
        is_of_kind = AuditLog.action == one_of_names(ACTIONS_OF_KIND.get(self.kind, ()))
        return and_(
            is_of_kind if self.kind and not but_kind else true(),
            AuditLog.action == self.action if self.action else true(),
            is_by(self.who, self.user_id) if self.who else true(),
            AuditLog.agent_id == self.agent_id if self.agent_id is not None else true(),
            AuditLog.session_id == self.session_id if self.session_id is not None else true(),
            AuditLog.id == one_of_ids(self.record_ids) if self.memory_id is not None else true(),
            AuditLog.created_at >= midnight(self.since) if self.since else true(),
            AuditLog.created_at < midnight(self.until, 1) if self.until else true(),
        )

    def records(
        self, of: Select[*tuple[Any, ...]], *, but_kind: bool = False
    ) -> Select[*tuple[Any, ...]]:
        """Return those of the records that it lets through and the user may see, newest first.

        The installation's own are for site admins alone.
        """
        return of.where(
            self.condition(but_kind=but_kind), scope.owns(AuditLog.account_id)
        ).order_by(AuditLog.created_at.desc(), AuditLog.id.desc())

    def views(self) -> list[View]:
        """Return the kinds of records, and all of them, with the other filters as they are."""
        return [
            View(name, here(kind=kind or None, action=None, page=None), kind == self.kind)
            for kind, name in {"": "All", **RECORD_KINDS}.items()
        ]

    @property
    def actions(self) -> dict[str, Sequence[str]]:
        """The actions that can be chosen, by the name of their kind."""
        kinds = [self.kind] if self.kind else ACTIONS_OF_KIND
        return {RECORD_KINDS[kind]: ACTIONS_OF_KIND[kind] for kind in kinds}

    def as_args(self) -> dict[str, str]:
        """Return the arguments of a URL with this filter, the empty ones left out."""
        named = {**self._asked(), "account": request.args.get("account", "")}
        return {name: str(value) for name, value in named.items() if value not in (None, "")}

    def as_data(self) -> dict[str, Any]:
        """Return it as a record keeps it; a user is named by id.

        Others are not named: the record would tell that somebody elsewhere has this address.
        """
        user = db.session.get(User, self.user_id) if self.user_id is not None else None
        is_known = user is not None and scope.user().may_see(user.account_id)
        asked = {**self._asked(), "user_id": self.user_id if is_known else None}
        if "@" in self.who:
            del asked["who"]
        names = {"agent": "agent_id", "session": "session_id", "memory": "memory_id"}
        return {
            names.get(name, name): value if isinstance(value, int) else str(value)
            for name, value in asked.items()
            if value not in (None, "")
        }

    def _asked(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "action": self.action,
            "who": self.who,
            "agent": self.agent_id,
            "session": self.session_id,
            "memory": self.memory_id,
            "since": self.since,
            "until": self.until,
        }


def suggested_actors() -> list[str]:
    """Return whom a record may be by, the account's first users among them."""
    users = select(User.email).where(scope.owns(User.account_id)).order_by(func.lower(User.email))
    return [*OTHER_ACTORS, *db.session.scalars(users.limit(_MAX_SUGGESTED))]
