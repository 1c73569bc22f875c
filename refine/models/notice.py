"""What people are told of, once: states, and when they are over; happenings hold for a week."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import datetime, time, timedelta
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlalchemy import ForeignKey, Text, UniqueConstraint, insert, select
from sqlalchemy.orm import Mapped, mapped_column

from refine.extensions import Base, db
from refine.models import attention
from refine.models.agent import Agent
from refine.models.audit import AuditLog, Verification
from refine.models.clients import ApiToken
from refine.models.columns import BigId, in_ids
from refine.models.outbox import Delivery, Endpoint
from refine.models.people import Account
from refine.models.runs.periodic_work import PeriodicWork
from refine.models.runs.run import LIVE
from refine.models.runs.spending import accounts_at_cap
from refine.models.runs.workload import Workload
from refine.rules.events import EVENTS, KINDS as EVENT_KINDS
from refine.rules.notices import KINDS

# States are told once they held for so long, together with what began since.
SETTLES_FOR = timedelta(minutes=10)
# Before the end of a token, and after what happened.
_WEEK = timedelta(days=7)
# On Mondays, in the account's zone.
LETTER_AT = timedelta(hours=8)
# More waits for the next time.
MOST_AT_ONCE = 200
_MOST_IDS = 100


class State(NamedTuple):
    """``subject``: an agent, a token or a record; the rest, what is told together."""

    kind: str
    account_id: int | None
    cause: str = ""
    subject: str = ""


class Notice(Base):
    """A state that holds, and whether people were told."""

    __tablename__ = "notices"
    __table_args__ = (UniqueConstraint(*State._fields, postgresql_nulls_not_distinct=True),)

    id: Mapped[BigId]
    kind: Mapped[str] = mapped_column(Text)
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    cause: Mapped[str] = mapped_column(Text)
    subject: Mapped[str] = mapped_column(Text)
    began_at: Mapped[datetime]
    told_at: Mapped[datetime | None]

    @property
    def state(self) -> State:
        return State(self.kind, self.account_id, self.cause, self.subject)


class News(NamedTuple):
    """States of one kind, account and cause that began together, or are over."""

    notices: list[Notice]
    is_over: bool

    @property
    def event_id(self) -> str:
        return f"notice-{self.notices[0].id}-{'over' if self.is_over else 'begun'}"


def look(at: datetime) -> Iterator[News]:
    """Look at every state, and yield what is to be told now, once. One process at a time."""
    every, groups = select(Notice).order_by(Notice.id), defaultdict[State, list[Notice]](list)
    known = [each.state for each in db.session.scalars(every)]
    held = set(_states(at, known))
    new = sorted(held.difference(known), key=lambda each: (len(each.subject), each.subject))
    if new:
        rows = [{**each._asdict(), "began_at": at} for each in new]
        db.session.execute(insert(Notice), rows)
    for notice in db.session.scalars(every):
        groups[notice.state._replace(subject="")].append(notice)
    news = (found for group in groups.values() for found in _news_of(group, held, at))
    yield from islice(news, MOST_AT_ONCE)


def _news_of(group: list[Notice], held: Collection[State], at: datetime) -> Iterator[News]:
    kind = KINDS[group[0].kind]
    settled_at = at - (SETTLES_FOR if kind.over else timedelta())
    new = [each for each in group if each.told_at is None and each.state in held]
    if new and new[0].began_at <= settled_at:
        for each in new:
            each.told_at = at
        yield News(new, is_over=False)
    gone = [each for each in group if each.state not in held]
    for each in gone:
        db.session.delete(each)
    if kind.over and gone == group and any(each.told_at for each in gone):
        yield News(gone, is_over=True)


def tell_webhooks(news: News, at: datetime) -> None:
    """Queue it for the webhooks that want its kind, unless its record has told them."""
    kind, account_id, cause, _ = news.notices[0].state
    if kind not in EVENT_KINDS or (kind in EVENTS.values() and not news.is_over):
        return
    ids = [each.subject for each in news.notices]
    status = "over" if news.is_over else "begun"
    data = {"status": status, "cause": cause, "number": len(ids), "ids": ids[:_MOST_IDS]}
    about = {"event_id": news.event_id, "kind": kind, "created_at": at, "next_at": at}
    for each in db.session.scalars(select(Endpoint).where(Endpoint.wants(kind))):
        if account_id in (None, each.account_id):
            to = {"endpoint_id": each.id, "account_id": each.account_id}
            db.session.add(Delivery(**to, **about, data=data))


# -- what holds ------------------------------------------------------------------------------------


def _states(at: datetime, known: Collection[State]) -> Iterator[State]:
    yield from _of_agents(known)
    for account, _ in db.session.execute(accounts_at_cap(at)):
        yield State("account.over_cap", account.id)
    yield from _of_access(at)
    yield from _of_tokens(at)
    yield from _letters(at)
    if PeriodicWork.is_silent("tick", at):
        yield State("clock.silent", None)
    load = Workload.at(at)
    if PeriodicWork.is_silent("worker", at) and (load.sessions or load.tasks_since):
        yield State("workers.silent", None)
    if (alarm := Verification.watch().alarm) is not None:
        yield State("verification.failed", None, "failed" if alarm.first_problem else "is overdue")


def _of_agents(known: Collection[State]) -> Iterator[State]:
    for account_id, cause, agent_id in attention.agents_by_cause():
        if (kind := f"agent.{cause.partition(':')[0]}") in KINDS:
            yield State(kind, account_id, cause, str(agent_id))
    # one that is being asked again is not over its failure yet
    last = {int(state.subject): state for state in known if state.kind.startswith("agent.")}
    live = select(Agent.id).where(in_ids(Agent.id, last), Agent.last_session_status.in_(LIVE))
    yield from map(last.__getitem__, db.session.scalars(live))


def _of_access(at: datetime) -> Iterator[State]:
    actions = [action for action, kind in EVENTS.items() if kind.startswith("access.")]
    recent = AuditLog.action.in_(actions), AuditLog.created_at > at - _WEEK
    for each in db.session.scalars(select(AuditLog).where(*recent)):
        about = f"agent #{each.agent_id}, user #{each.data['grant_user_id']}"
        yield State(EVENTS[each.action], each.account_id, about, str(each.id))


def _of_tokens(at: datetime) -> Iterator[State]:
    ends = ApiToken.expires_at.between(at, at + _WEEK), ApiToken.revoked_at.is_(None)
    for each in db.session.scalars(select(ApiToken).where(*ends)):
        about = f"token #{each.id} ({each.kind}) ends on {each.expires_at:%Y-%m-%d}"
        yield State("token.ending", each.account_id, about, str(each.id))


def _letters(at: datetime) -> Iterator[State]:
    """Yield the letter of each account's last Monday morning: its cause is that day."""
    accounts = select(Account.id, Account.time_zone, Account.created_at)
    for id_, name, created_at in db.session.execute(accounts):
        with suppress(ZoneInfoNotFoundError):  # an altered account keeps no other back
            zone = ZoneInfo(name)
            day = (at.astimezone(zone) - LETTER_AT).date()
            monday = datetime.combine(day - timedelta(days=day.weekday()), time(), zone)
            if created_at < monday + LETTER_AT:
                yield State("letter", id_, f"{monday:%Y-%m-%d}")
