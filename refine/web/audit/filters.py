"""The filters of the audit log, and how many records each of the last days has."""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Select, func, select, true

from refine import clock
from refine.extensions import db
from refine.models import AuditLog, User
from refine.models.audit.kinds import ACTIONS_OF_KIND
from refine.models.columns import one_of_ids, one_of_names
from refine.models.ledger.history import record_ids_about
from refine.models.paging import OneOf
from refine.models.people.acting import AGENT_OR_SYSTEM, OTHER_ACTORS, is_by, user_id_of
from refine.rules.ids import id_in
from refine.rules.quantities import plural
from refine.web import scope
from refine.web.charts import DAYS_SHOWN
from refine.web.formatting import day
from refine.web.forms import day_of, midnight, uuid_of
from refine.web.links import here
from refine.web.lists import Chosen, Filter, of_agent
from refine.web.words import ACTIONS, RECORD_KINDS, action

_MAX_WHO_CHARACTERS = 254
_MAX_SUGGESTED = 50


class Actor(NamedTuple):
    """Who acted: as the URL says, and the id of the user of that address."""

    who: str
    user_id: int | None

    def as_data(self) -> dict[str, Any]:
        """Return the actor as a record keeps them: a user by id.

        Users of other accounts are left out: the record would tell that they exist.
        """
        if "@" not in self.who:
            return {"who": self.who}
        user = db.session.get(User, self.user_id) if self.user_id is not None else None
        is_known = user is not None and scope.user().may_see(user.account_id)
        return {"user_id": self.user_id} if is_known else {}


def _actions(chosen: Chosen) -> dict[str, dict[str, str]]:
    """Return the words of the actions that can be chosen, by the name of their kind."""
    kinds = [chosen["kind"]] if chosen["kind"] else list(ACTIONS_OF_KIND)
    return {
        RECORD_KINDS[kind]: {each: action(each) for each in ACTIONS_OF_KIND[kind]} for kind in kinds
    }


def _suggested_actors() -> list[str]:
    """Return whom a record may be by, the account's first users among them."""
    users = select(User.email).where(scope.owns(User.account_id)).order_by(func.lower(User.email))
    return [*OTHER_ACTORS, *db.session.scalars(users.limit(_MAX_SUGGESTED))]


# A new filter is one more entry: the list, its days, exports and their records follow.
FILTERS = [
    Filter(
        "kind",
        "Kind",
        read=lambda text: text if text in ACTIONS_OF_KIND else None,
        condition=lambda kind: AuditLog.action == one_of_names(ACTIONS_OF_KIND[kind]),
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
        read=lambda text: (
            Actor(text[:_MAX_WHO_CHARACTERS], user_id_of(text[:_MAX_WHO_CHARACTERS]))
            if text
            else None
        ),
        condition=lambda actor: is_by(*actor),
        input="text",
        suggested=_suggested_actors,
        attributes={"placeholder": "e-mail, or command line", "size": 22},
        shown=lambda actor: f"by {actor.who}",
        recorded=lambda actor: actor.as_data(),
    ),
    Filter(
        "memory",
        "Memory",
        read=lambda text: id_in(text.removeprefix("#")),
        condition=lambda id_: AuditLog.id == one_of_ids(record_ids_about(id_)),
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
    Filter(
        "since",
        "From",
        read=day_of,
        condition=lambda on: AuditLog.created_at >= midnight(on),
        input="date",
        shown=lambda on: f"from {day(on)}",
    ),
    Filter(
        "until",
        "To",
        read=day_of,
        condition=lambda on: AuditLog.created_at < midnight(on, 1),
        input="date",
        shown=lambda on: f"to {day(on)}",
    ),
]


def one_of_kind(chosen: Chosen) -> OneOf | None:
    """Return the actions of the kind, if a page is to be put together of the rows of each.

    Not where another filter lets few records through: these are sorted sooner.
    """
    by = chosen["who"]
    has_few = any(chosen[name] is not None for name in ("action", "agent", "session", "memory"))
    if chosen["kind"] is None or has_few or (by is not None and by.who != AGENT_OR_SYSTEM):
        return None
    return OneOf(AuditLog.action, ACTIONS_OF_KIND[chosen["kind"]])


def visible_records(
    chosen: Chosen, of: Select[*tuple[Any, ...]], *, without: tuple[str, ...] = ()
) -> Select[*tuple[Any, ...]]:
    """Return the chosen records that the user may see, newest first.

    The installation's own are for site admins alone.
    """
    return of.where(scope.owns(AuditLog.account_id), *chosen.conditions(without=without)).order_by(
        AuditLog.created_at.desc(), AuditLog.id.desc()
    )


class View(NamedTuple):
    """A kind of records, and the address of this page with it."""

    name: str
    url: str
    is_current: bool


def views(chosen: Chosen) -> list[View]:
    """Return the kinds of records, and all of them, with the other filters as they are."""
    return [
        View(name, here(kind=kind, action=None, page=None), kind == chosen["kind"])
        for kind, name in [(None, "All"), *RECORD_KINDS.items()]
    ]


# Every so many days the axis names one where there is little room.
_TICK_DAYS = 7
_A_DAY = timedelta(days=1)
# More are not counted: reading them all takes too long in a large installation.
_MOST_COUNTED = 1_000


class DayBar(NamedTuple):
    """A day: how many records it has, its bar in a height of 100, and how the axis marks it."""

    day: date
    records: int
    height: int
    begins_month: bool
    is_tick: bool

    @property
    def top(self) -> int:
        return 100 - self.height

    @property
    def text(self) -> str:
        return _in_words(self.records, is_capped=self.records == _MOST_COUNTED)


def strip(chosen: Chosen) -> list[DayBar]:
    """Count the chosen records of each recent day, oldest first, whatever days are chosen."""
    today = clock.now().astimezone(scope.zone()).date()
    days = [today - timedelta(days=back) for back in reversed(range(DAYS_SHOWN))]
    counts = _counts(chosen, days[0], today)
    most = max(counts) or 1
    return [
        DayBar(
            day,
            count,
            height=100 * count // most,
            begins_month=day.day == 1 or day == days[0],
            is_tick=(today - day).days % _TICK_DAYS == 0,
        )
        for day, count in zip(days, counts, strict=True)
    ]


def _counts(chosen: Chosen, since: date, until: date) -> Sequence[int]:
    """Count the records of each of these days, as far as ``_MOST_COUNTED``."""
    days = func.generate_series(_midnight(since), _midnight(until), _A_DAY)
    begun = days.table_valued("day", name="begun").render_derived()
    day, zone = begun.c.day, scope.zone().key
    records = visible_records(chosen, select(AuditLog.id), without=("since", "until"))
    some = (
        records.where(AuditLog.created_at >= func.timezone(zone, day))
        .where(AuditLog.created_at < func.timezone(zone, day + _A_DAY))
        .order_by(None)
        .limit(_MOST_COUNTED)
        .lateral()
    )
    counted = select(func.count(some.c.id)).select_from(begun).outerjoin(some, true())
    return db.session.scalars(counted.group_by(day).order_by(day)).all()


def _midnight(on: date) -> datetime:
    """Return when a day begins, by any clock."""
    return datetime.combine(on, time())  # noqa: DTZ001 - the database adds the page's zone


def total(bars: Sequence[DayBar]) -> str:
    """Say how many records these days have."""
    is_capped = any(bar.records == _MOST_COUNTED for bar in bars)
    return _in_words(sum(bar.records for bar in bars), is_capped=is_capped)


def _in_words(records: int, *, is_capped: bool) -> str:
    return f"{records:,} or more records" if is_capped else plural(records, "record")
