"""The tick: once a minute, whatever is due is claimed, and whatever was lost is ended.

It may run any number of times, late, or twice at once, without doing anything twice: what is due
stands in the database, and each agent is claimed and served in a transaction of its own.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import partial

import structlog
from rq.timeouts import BaseTimeoutException
from sqlalchemy import Select
from sqlalchemy.exc import DBAPIError

from refine import clock
from refine.errors import RefineError
from refine.extensions import db
from refine.jobs.access import dispatch_access
from refine.jobs.dispatch import dispatch
from refine.models import (
    AccessGrant,
    Account,
    Agent,
    ClockMark,
    IdempotencyKey,
    MemoryTask,
    RefinementSession,
    ReflectionAlreadyLive,
    SessionAlreadyLive,
)
from refine.models.memory_task import REFLECTION_SCHEDULE
from refine.rules.due import last_slot

INTERVAL = timedelta(minutes=1)
BUDGET_CHECK_EVERY = timedelta(hours=1)
# An agent that cannot be served holds its account's slot open for so long.
SLOT_STAYS_OPEN = timedelta(hours=1)
# What takes longer goes on with the next tick, so that every duty comes round in time.
LONGEST_STEP_SECONDS = 5.0

_log = structlog.get_logger(__name__)


@dataclass
class Ticked:
    """What one tick did, in numbers of what it did it to; ``faults``: what failed in part."""

    lost: int = 0
    access_ended: int = 0
    access_dispatched: int = 0
    queued: int = 0
    skipped: int = 0
    retried: int = 0
    dispatched: int = 0
    answers_forgotten: int = 0
    tasks_lost: int = 0
    tasks_lapsed: int = 0
    reflections: int = 0
    faults: int = 0


@dataclass
class Pass:
    """How far the agents of a query were served: all of them, or up to an id; which failed."""

    is_whole: bool = False
    after_id: int = 0
    failed: set[int] = field(default_factory=set)


def tick() -> None:
    """Run one tick, now: the one job that rq-scheduler knows."""
    run_tick()


def run_tick(at: datetime | None = None) -> Ticked:
    """Do everything that is due at ``at``, commit at every step, and return what was done.

    A step that fails is logged, and keeps no other from its turn.
    """
    running = _Tick(at or clock.now())
    for step in (
        running.end_lost,
        running.end_lost_tasks,
        running.end_lapsed_tasks,
        running.end_access,
        running.dispatch_access,
        running.dispatch,
        running.queue_slots,
        running.retry_failed,
        running.check_budgets,
        running.queue_reflections,
        running.dispatch,
        running.forget_answers,
        running.mark,
    ):
        running.take(step)
    if any(asdict(running.done).values()):
        _log.info("tick", **asdict(running.done))
    return running.done


class _Tick:
    """One tick at one instant."""

    def __init__(self, at: datetime) -> None:
        self.at = at
        self.done = Ticked()
        self._deadline = 0.0

    # -- the steps --------------------------------------------------------------------------------

    def end_lost(self) -> None:
        """End the sessions whose worker gives no sign of life."""
        self._each(RefinementSession.lost(self.at), self._end_lost)

    def end_lost_tasks(self) -> None:
        """Give up the memory tasks whose worker gives no sign of life."""
        self._each(MemoryTask.lost(self.at), self._end_lost_task)

    def end_lapsed_tasks(self) -> None:
        """End the memory tasks that waited for longer than they may, conversations with them."""
        self._each(MemoryTask.lapsed(self.at), self._end_lapsed_tasks)

    def end_access(self) -> None:
        """End the grants and requests for access whose time is over."""
        failed: list[uuid.UUID] = []
        while time.monotonic() < self._deadline:
            due = AccessGrant.next_due(but=failed)
            if due is None:
                return
            grant_id = due.id
            if self._guarded(due.end_as_due, grant_id=str(grant_id)):
                self.done.access_ended += 1
            else:
                failed.append(grant_id)

    def dispatch_access(self) -> None:
        """Hand over the requests for access that no worker has got."""
        self.done.access_dispatched += dispatch_access()

    def dispatch(self) -> None:
        """Hand what is queued to the workers."""
        self.done.dispatched += dispatch(self.at)

    def queue_slots(self) -> None:
        """Queue what each account's slot owes its agents."""
        for schedule, time_zone in Account.schedules():
            self._guarded(partial(Account.reschedule, schedule, time_zone, self.at))
        for account in Account.due(self.at):
            self._guarded(partial(self._serve_slot, account), account_id=account.id)

    def retry_failed(self) -> None:
        """Try again what failed, after its pause."""
        self._each(RefinementSession.failed_last(self.at), self._retry)

    def check_budgets(self) -> None:
        """Every hour, queue the agents over their budget that were left alone for long enough."""
        after_id = ClockMark.begin("budget_check", every=BUDGET_CHECK_EVERY, at=self.at)
        db.session.commit()
        if after_id is not None:
            over = RefinementSession.over_budget(self.at)
            served = self._each(over, self._ask_over_budget, after_id)
            ClockMark.reached("budget_check", None if served.is_whole else served.after_id)

    def forget_answers(self) -> None:
        """Delete what was kept to answer repeated requests with, once its day is over."""
        self.done.answers_forgotten += IdempotencyKey.forget_old(self.at)

    def queue_reflections(self) -> None:
        """Once a day, at night in each time zone, queue the reflections that are due."""
        for time_zone in MemoryTask.reflecting_zones():
            self._guarded(partial(self._reflect_in, time_zone), time_zone=time_zone)

    def mark(self) -> None:
        """Note that there was a tick."""
        ClockMark.note("tick", self.at)

    # -- one agent, one account -------------------------------------------------------------------

    def _end_lost(self, agent: Agent) -> None:
        live = RefinementSession.live_of(agent)
        self.done.lost += live is not None and live.end_if_lost(self.at)

    def _end_lost_task(self, agent: Agent) -> None:
        for task in MemoryTask.live_of(agent):
            self.done.tasks_lost += task.end_if_lost(self.at)

    def _end_lapsed_tasks(self, agent: Agent) -> None:
        for task in MemoryTask.live_of(agent):
            self.done.tasks_lapsed += task.end_if_lapsed(self.at)

    def _reflect_in(self, time_zone: str) -> None:
        slot_at = last_slot(REFLECTION_SCHEDULE, time_zone, self.at)
        due = MemoryTask.due_for_reflection(time_zone, slot_at)
        self._each(due, partial(self._queue_reflection, slot_at))

    def _queue_reflection(self, slot_at: datetime, agent: Agent) -> None:
        MemoryTask.reflect(agent, "daily", slot_at=slot_at, at=self.at)
        self.done.reflections += 1

    def _serve_slot(self, account: Account) -> None:
        """The slot is over when it owes nothing more; who has a live session is waited for."""
        slot_at = account.slot_to_serve(self.at)
        owed = RefinementSession.due_for_slot(account, slot_at)
        is_over = account.paused
        if not is_over:
            free = owed.where(~RefinementSession.has_live())
            served = self._each(free, partial(self._ask_for_slot, slot_at))
            is_late = self.at - slot_at > SLOT_STAYS_OPEN
            given_up = served.failed if is_late else set()
            open_still = owed.where(Agent.id.not_in(given_up)).limit(1)
            is_over = served.is_whole and db.session.scalar(open_still) is None
        if is_over:
            account.next_due_at = account.next_slot(self.at)

    def _ask_for_slot(self, slot_at: datetime, agent: Agent) -> None:
        """A session that may not run is recorded all the same, and says why."""
        session = RefinementSession.queue(agent, "weekly", slot_at=slot_at, at=self.at)
        if why_not := RefinementSession.why_not_ask(agent, self.at):
            session.finish("skipped", why_not, at=self.at)
            self.done.skipped += 1
        else:
            self.done.queued += 1

    def _retry(self, agent: Agent) -> None:
        failed = RefinementSession.latest_of(agent)
        if failed is not None and failed.is_due_again(self.at):
            failed.queue_again(self.at)
            self.done.retried += 1

    def _ask_over_budget(self, agent: Agent) -> None:
        is_left_alone = RefinementSession.is_left_alone(agent, self.at)
        if not is_left_alone and RefinementSession.why_not_ask(agent, self.at) is None:
            RefinementSession.queue(agent, "over_budget", at=self.at)
            self.done.queued += 1

    # -- going through them -----------------------------------------------------------------------

    def take(self, step: Callable[[], None]) -> None:
        """Take a step, for as long as one may last."""
        self._deadline = time.monotonic() + LONGEST_STEP_SECONDS
        self._guarded(step, step=step.__name__)

    def _each(
        self, agent_ids: Select[int], serve: Callable[[Agent], None], after_id: int = 0
    ) -> Pass:
        """Serve each agent of the query in a transaction of its own, as long as there is time.

        An agent that another tick or a tool call holds is left to it, and one whose service fails
        keeps no other waiting.
        """
        served = Pass(after_id=after_id)
        while time.monotonic() < self._deadline:
            free = agent_ids.where(Agent.id > served.after_id).order_by(Agent.id).limit(1)
            claim = free.with_for_update(key_share=True, skip_locked=True, of=Agent)
            agent_id = db.session.scalar(claim)
            if agent_id is None:
                served.is_whole = True
                break
            served.after_id = agent_id
            agent = db.session.get_one(Agent, agent_id)
            if not self._guarded(partial(serve, agent), agent_id=agent_id):
                served.failed.add(agent_id)
        db.session.commit()
        return served

    def _guarded(self, work: Callable[[], None], **about: object) -> bool:
        """Do something and commit it; a fault undoes it, is counted and logged, and ends here.

        Tells whether there was none. That another was quicker is none.
        """
        try:
            work()
            db.session.commit()
        except (SessionAlreadyLive, ReflectionAlreadyLive):
            db.session.rollback()
        except BaseTimeoutException:
            db.session.rollback()
            raise
        except Exception as fault:
            db.session.rollback()
            self.done.faults += 1
            is_ours = isinstance(fault, DBAPIError | RefineError)
            said = fault.args[0] if is_ours and fault.args else type(fault).__name__
            _log.warning("a tick failed in part", fault=said, **about)
            return False
        return True
