"""Health checks of the services that Refine depends on."""

from dataclasses import dataclass
from datetime import timedelta

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from flask import Flask
from sqlalchemy import Select, func, select
from sqlalchemy.exc import SQLAlchemyError

from refine import clock
from refine.errors import Unreachable, WrongKey
from refine.extensions import db
from refine.jobs.queue import live_workers, redis_connection
from refine.models import Account, ClockMark, WrappedKey
from refine.models.runs.session import totals as session_totals
from refine.models.runs.task import totals as task_totals
from refine.rules.quantities import ago, plural, rough_span

# The clock ticks every minute; after this long it has stopped, or is badly delayed.
TICK_IS_LATE_AFTER = timedelta(minutes=5)
QUEUE_IS_LATE_AFTER = timedelta(hours=1)
# Reflections and conversations wait for all sessions, and lapse after a long wait.
TASKS_ARE_LATE_AFTER = timedelta(days=1)


@dataclass(frozen=True)
class Check:
    """One check; ``problem`` says what is wrong and how to fix it, None if nothing is."""

    name: str
    problem: str | None
    detail: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether there is no problem."""
        return self.problem is None


def checks(app: Flask) -> list[Check]:
    """Check database, migrations, keys and redis, in this order; all must be ok."""
    away = _database()
    unfit = away or _migrations(app)
    return [
        Check("database", away, "PostgreSQL answers"),
        Check("migrations", unfit, "the newest one is in place"),
        Check("keys", unfit or _keys(), "REFINE_ENCRYPTION_KEYS holds every key in use"),
        Check("redis", _redis(), "it answers"),
    ]


def clock_check() -> Check:
    """Check that the clock ticks. Needs a database at the newest migration."""
    age = ClockMark.age("tick")
    if age is None:
        return Check("clock", "it never ticked; start `refine clock`")
    if age < -TICK_IS_LATE_AFTER:
        return Check("clock", "its last tick is in the future; set the clocks of the machines")
    if age > TICK_IS_LATE_AFTER:
        return Check("clock", f"its last tick was {ago(age)}; start `refine clock`")
    return Check("clock", None, f"its last tick was {ago(age)}")


def schedule_check() -> Check:
    """Check that the accounts' slots are served."""
    late = select(func.count()).where(Account.has_late_slot(clock.now()))
    following = select(func.min(Account.next_due_at)).where(Account.paused.is_(False))
    if count := db.session.scalar(late):
        return Check("schedule", f"{plural(count, 'account')} with a missed slot; check the clock")
    due_at = db.session.scalar(following)
    if due_at is None:
        return Check("schedule", None, "no account has a slot to come")
    return Check("schedule", None, f"the next slot is at {due_at:%Y-%m-%d %H:%M} UTC")


def queue_check(account_ids: Select[int] | None = None) -> Check:
    """Count workers, and what waits for them (in these accounts), and check for how long."""
    try:
        with redis_connection() as connection:
            workers = live_workers(connection)
    except Unreachable as error:
        return Check("queue", str(error))
    now = clock.now()
    waiting, since = session_totals.waiting(account_ids)
    tasks = task_totals.backlog(now, account_ids)
    counts = [plural(waiting, "session")]
    counts += [plural(tasks.reflections, "reflection")] if tasks.reflections else []
    counts += [plural(tasks.conversations, "conversation")] if tasks.conversations else []
    said = f"{plural(workers, 'worker')}, {', '.join(counts)} waiting"
    if not workers and (waiting or tasks.since is not None):
        return Check("queue", f"{said}: start `refine worker`")
    for oldest, late_after in ((since, QUEUE_IS_LATE_AFTER), (tasks.since, TASKS_ARE_LATE_AFTER)):
        if oldest is not None and now - oldest > late_after:
            waited = rough_span(now - oldest)
            return Check("queue", f"{said}, the oldest for {waited}: start more workers")
    return Check("queue", None, said)


def older_keys_check() -> Check:
    """Tell whether keys are still wrapped by an older encryption key; never a problem."""
    older = WrappedKey.under_older_keys()
    said = f"{plural(older, 'data key')} under an older key; run `refine keys rotate`"
    return Check("rotation", None, said if older else "every data key is under the first key")


def _database() -> str | None:
    try:
        with db.engine.connect():
            return None
    except SQLAlchemyError:
        return "PostgreSQL does not answer at DATABASE_URL; start it, or fix DATABASE_URL"


def _migrations(app: Flask) -> str | None:
    script = ScriptDirectory(app.extensions["migrate"].directory)
    # a commit, because a rollback discards the connection's prepared statements
    with db.engine.begin() as connection:
        present = MigrationContext.configure(connection).get_current_revision()
    if present == script.get_current_head():
        return None
    return "the database is not at the newest migration; run `refine db upgrade`"


def _keys() -> str | None:
    try:
        WrappedKey.check_keyring()
    except WrongKey as error:
        return str(error)
    finally:
        db.session.commit()
    return None


def _redis() -> str | None:
    try:
        with redis_connection() as connection:
            connection.ping()
    except Unreachable as error:
        return str(error)
    return None
