"""The tick: queues what is due and ends what was lost, each minute; safe to repeat and overlap."""

import operator
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import structlog
from sqlalchemy import Select, select

from refine import clock
from refine.errors import Unreachable
from refine.extensions import db, safe_rollback
from refine.jobs import mailing
from refine.jobs.batches import BATCH, Failed, in_parts, safe_message
from refine.jobs.delivering import deliver_due
from refine.jobs.queue import RUN_KINDS, announce_waiting
from refine.jobs.telling import tell
from refine.jobs.verifying import verify_slice
from refine.models import (
    AccessGrant,
    Account,
    Agent,
    Delivery,
    IdempotencyKey,
    Invitation,
    Mail,
    MemoryTask,
    PeriodicWork,
    RefinementSession,
    SharedCount,
    SignIn,
    agent_erasure,
    erasing,
    retention,
    schema_version,
)
from refine.models.people.account import SLOT_IS_LATE_AFTER
from refine.models.people.pruning import prune
from refine.models.runs import task as tasks
from refine.models.runs.run import Run
from refine.models.runs.session import scheduling
from refine.models.runs.session.scheduling import Candidates, Prospects, due_for_sweep
from refine.models.runs.session.session import SessionRequest
from refine.models.runs.spending import CostCaps
from refine.models.runs.task import REFLECTION_SCHEDULE
from refine.rules.schedules import last_slot

INTERVAL = timedelta(minutes=1)
BUDGET_CHECK_EVERY = timedelta(hours=1)
PRUNE_EVERY = timedelta(days=1)
ERASE_EVERY = timedelta(hours=1)
# Nothing is erased sooner after a gap between ticks, so that people can call it off first.
ERASES_AFTER_GAP = timedelta(days=1)
# A step that takes longer continues in the next tick, so that every step has its turn.
LONGEST_STEP_SECONDS = 5.0

# Selects the agents with something to erase, and erases it of one.
_ERASING = (
    (agent_erasure.due, agent_erasure.carry_out),
    (erasing.due_for_persons, erasing.erase_for_persons),
    (retention.due, retention.erase_old),
)

_log = structlog.get_logger(__name__)


@dataclass
class TickResult:
    """The counts of one tick; ``faults``: failures."""

    lost: int = 0
    access_ended: int = 0
    queued: int = 0
    skipped: int = 0
    announced: int = 0
    keys_deleted: int = 0
    pruned: int = 0
    tasks_lapsed: int = 0
    reflections: int = 0
    erased: int = 0
    faults: int = 0

    def plus(self, other: "TickResult") -> "TickResult":
        return TickResult(*map(operator.add, astuple(self), astuple(other)))


# Serves locked agents, in one transaction.
_Serve = Callable[[Sequence[Agent]], TickResult]


@dataclass
class Progress:
    """How many of a query's agents are done: all, or up to ``after_id`` except ``failed`` ones."""

    is_complete: bool = False
    after_id: int = 0
    failed: set[int] = field(default_factory=set)


def run_tick(at: datetime | None = None) -> TickResult:
    """Do everything due at ``at``; a step that fails is logged, and the others still run."""
    if schema_version.must_wait():
        return TickResult()
    running = _Tick(at or clock.now())
    for step in (
        running.end_lost,
        running.end_lapsed_tasks,
        running.end_access,
        running.serve_accounts,
        running.retry_failed,
        running.check_budgets,
        running.queue_reflections,
        running.announce,
        running.deliver,
        running.prune,
        running.erase,
        running.mark,
        running.tell,
        running.verify,  # last, as a long chain may use up the job's time
    ):
        running.run_step(step)
    if any(asdict(running.done).values()):
        _log.info("tick", **asdict(running.done))
    return running.done


def stand_in(at: datetime) -> None:
    """In a worker while no clock ticks: tell that, and what else is to be told."""
    standing_in = _Tick(at)
    standing_in.run_step(standing_in.tell)
    standing_in.run_step(standing_in.deliver)


class SweepOutcome(NamedTuple):
    """Of how many agents of an account a sweep queues a session, or why it skips them."""

    account: Account
    outcome: str
    agents: int


def sweep_all() -> list[SweepOutcome]:
    """Sweep every account now; what does not fit into one step is left to the clock."""
    at, outcomes = clock.now(), []
    for account in db.session.scalars(select(Account).order_by(Account.id)).all():
        prospects = Prospects.of(account, at)
        if prospects.asked is not None:
            outcomes.append(SweepOutcome(account, "queued", prospects.asked.number))
        outcomes += [
            SweepOutcome(account, str(group.reason), group.number) for group in prospects.left_out
        ]
        account.request_sweep(at=at)
        db.session.commit()
    running = _Tick(at)
    running.run_step(running.serve_accounts)
    with suppress(Unreachable):  # workers find the sessions anyway
        announce_waiting(at)
    return outcomes


class _Tick:
    def __init__(self, at: datetime) -> None:
        self.at = at
        self.done = TickResult()
        self._caps = CostCaps(at)
        self._deadline = 0.0

    def end_lost(self) -> None:
        for kind in RUN_KINDS:
            lost = kind.select_agents_with_lost(self.at)
            self._each(lost, partial(self._end_lost, kind), at_once=1)

    def end_lapsed_tasks(self) -> None:
        self._each(tasks.lapsed(self.at), self._end_lapsed_tasks, at_once=1)

    def end_access(self) -> None:
        failed: list[uuid.UUID] = []
        while time.monotonic() < self._deadline:
            due = AccessGrant.next_overdue(self.at, except_for=failed)
            if due is None:
                return
            grant_id = due.id
            if self._guarded(due.end_overdue, grant_id=str(grant_id)):
                self.done.access_ended += 1
            else:
                failed.append(grant_id)

    def announce(self) -> None:
        self.done.announced += announce_waiting(self.at)

    def deliver(self) -> None:
        deliver_due(self.at, self._deadline)

    def tell(self) -> None:
        tell(self.at)
        db.session.commit()
        mailing.deliver_due(self.at, self._deadline)

    def serve_accounts(self) -> None:
        self._guarded(partial(Account.set_slots, self.at))
        for account in Account.due(self.at):
            account_id = account.id
            if account.next_due_at is not None and account.next_due_at <= self.at:
                self._guarded(partial(self._serve_slot, account), account_id=account_id)
            if account.sweep_requested_at is not None:
                self._guarded(partial(self._serve_sweep, account), account_id=account_id)

    def retry_failed(self) -> None:
        failed = scheduling.with_failed_last_session(self.at)
        self._each(failed, partial(self._queue, _requests_after_failure))

    def check_budgets(self) -> None:
        after_id = PeriodicWork.begin("budget_check", every=BUDGET_CHECK_EVERY, at=self.at)
        db.session.commit()
        if after_id is not None:
            over = scheduling.over_budget(self.at)
            handled = self._each(over, partial(self._queue, _requests_over_budget), after_id)
            PeriodicWork.reached("budget_check", None if handled.is_complete else handled.after_id)

    def prune(self) -> None:
        if PeriodicWork.begin("pruning", every=PRUNE_EVERY, at=self.at) is None:
            return
        self.done.keys_deleted += IdempotencyKey.delete_expired(self.at)
        self.done.pruned += Delivery.prune(self.at) + Mail.prune(self.at)
        SharedCount.delete_ended(self.at)
        db.session.commit()
        for kind in (SignIn, Invitation):
            after_id: int | None = 0
            while after_id is not None:
                if time.monotonic() >= self._deadline:
                    return
                pruned, after_id = prune(kind, self.at, after_id)
                db.session.commit()
                self.done.pruned += pruned
        PeriodicWork.reached("pruning", None)

    def erase(self) -> None:
        if not PeriodicWork.has_ticked_for(ERASES_AFTER_GAP, self.at):
            return
        if PeriodicWork.begin("erasing", every=ERASE_EVERY, at=self.at) is not None:
            for due, erase in _ERASING:
                self._each(due(self.at), partial(self._erase, erase), at_once=1)
            PeriodicWork.reached("erasing", None)

    def verify(self) -> None:
        verify_slice(self.at, self._deadline)

    def queue_reflections(self) -> None:
        for time_zone in tasks.reflecting_zones():
            self._guarded(partial(self._reflect_in, time_zone), time_zone=time_zone)

    def mark(self) -> None:
        PeriodicWork.note_tick(self.at)

    def _end_lost(self, kind: type[Run], agents: Sequence[Agent]) -> TickResult:
        held = [run for agent in agents for run in kind.held_of(agent)]
        return TickResult(lost=sum(run.end_if_lost(self.at) for run in held))

    def _end_lapsed_tasks(self, agents: Sequence[Agent]) -> TickResult:
        waiting = [task for agent in agents for task in tasks.waiting_of(agent)]
        return TickResult(tasks_lapsed=sum(task.end_if_lapsed(self.at) for task in waiting))

    def _erase(
        self, erase: Callable[[Agent, datetime], int], agents: Sequence[Agent]
    ) -> TickResult:
        return TickResult(erased=sum(erase(each, self.at) for each in agents))

    def _reflect_in(self, time_zone: str) -> None:
        slot_at = last_slot(REFLECTION_SCHEDULE, time_zone, self.at)
        due = tasks.due_for_reflection(time_zone, slot_at)
        self._each(due, partial(self._queue_reflections, slot_at))

    def _queue_reflections(self, slot_at: datetime, agents: Sequence[Agent]) -> TickResult:
        return TickResult(reflections=len(MemoryTask.reflect_daily(agents, slot_at, self.at)))

    def _serve_slot(self, account: Account) -> None:
        """Serve a slot, and close it once no agent is still due; live sessions keep it open."""
        slot_at = account.slot_to_serve(self.at)
        due = scheduling.due_for_slot(account, slot_at)
        idle = due.where(~scheduling.has_live_session())
        handled = self._each(idle, partial(self._queue, partial(_requests_for_slot, slot_at)))
        # a late slot no longer waits for agents whose turn failed
        skipped = handled.failed if self._is_late(slot_at) else set()
        if handled.is_complete and not _any_of(due.where(Agent.id.not_in(skipped))):
            account.next_due_at = account.next_slot(self.at)

    def _is_late(self, since: datetime) -> bool:
        return self.at - since > SLOT_IS_LATE_AFTER

    def _serve_sweep(self, account: Account) -> None:
        """Continue a sweep, and end it once no agent is due any longer, or when it is late."""
        due = due_for_sweep(account, self.at)
        handled = self._each(due, partial(self._queue, _requests_for_sweep))
        is_late = self._is_late(account.sweep_requested_at or self.at)
        if handled.is_complete and (is_late or not _any_of(due)):
            account.sweep_requested_at = None

    def _queue(
        self,
        requests_of: Callable[[Candidates], Iterable[SessionRequest]],
        agents: Sequence[Agent],
    ) -> TickResult:
        wanted = list(requests_of(Candidates(agents, self.at, self._caps)))
        sessions = RefinementSession.queue_all(wanted, at=self.at)
        queued = sum(session.is_live for session in sessions)
        return TickResult(queued=queued, skipped=len(sessions) - queued)

    def run_step(self, step: Callable[[], None]) -> None:
        self._deadline = time.monotonic() + LONGEST_STEP_SECONDS
        self._guarded(step, step=step.__name__)

    def _each(
        self, due: Select[int], serve: _Serve, after_id: int = 0, at_once: int = BATCH
    ) -> Progress:
        """Serve the agents that nobody has locked, ``at_once`` together, within the limit."""
        handled = Progress(after_id=after_id)
        while time.monotonic() < self._deadline:
            following = due.where(Agent.id > handled.after_id).order_by(Agent.id).limit(at_once)
            ids = list(dict.fromkeys(db.session.scalars(following)))
            if not ids:
                handled.is_complete = True
                break
            handled.after_id = ids[-1]
            for outcome in in_parts(ids, lambda some: serve(Agent.lock_due(due, some))):
                self._count(outcome, handled)
        db.session.commit()
        return handled

    def _count(self, outcome: TickResult | Failed, handled: Progress) -> None:
        if isinstance(outcome, Failed):
            handled.failed.add(outcome.agent_id)
            self._note(outcome.fault, agent_id=outcome.agent_id)
            return
        self.done = self.done.plus(outcome)

    def _guarded(self, work: Callable[[], None], **about: object) -> bool:
        """Do the work and commit it; return False after a fault, which is undone and logged."""
        try:
            work()
            db.session.commit()
        except Exception as fault:
            safe_rollback()  # the database may be away: the next tick does it then
            self._note(fault, **about)
            return False
        return True

    def _note(self, fault: Exception, **about: object) -> None:
        self.done.faults += 1
        _log.warning("tick step failed", fault=safe_message(fault), **about)


def _requests_for_slot(slot_at: datetime, candidates: Candidates) -> Iterator[SessionRequest]:
    for agent in candidates.agents:
        reason = candidates.automatic_skip_reason(agent)
        yield SessionRequest(agent, "weekly", slot_at, skip_reason=reason)


def _requests_after_failure(candidates: Candidates) -> Iterable[SessionRequest]:
    return filter(None, map(candidates.retry_of, candidates.agents))


def _requests_over_budget(candidates: Candidates) -> Iterator[SessionRequest]:
    for agent in candidates.agents:
        if not candidates.must_wait(agent) and not candidates.automatic_skip_reason(agent):
            yield SessionRequest(agent, "over_budget")


def _requests_for_sweep(candidates: Candidates) -> Iterator[SessionRequest]:
    for agent in candidates.agents:
        if not candidates.forbidden_reason(agent):  # by rows that match their digests
            yield SessionRequest(agent, candidates.due_trigger(agent))


def _any_of(due: Select[int]) -> bool:
    return db.session.scalar(due.limit(1)) is not None
