"""Health checks of the services that Refine depends on."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from refine import clock, database_roles
from refine.errors import ClocksDiffer, RefineError, Unreachable, WrongKey
from refine.extensions import database_now, db, require_agreement
from refine.jobs import mailing
from refine.jobs.queue import require_redis
from refine.models import Account, PeriodicWork, Verification, WrappedKey, schema_version
from refine.models.audit.verification import Watch
from refine.models.runs.periodic_work import TICK_IS_LATE_AFTER
from refine.models.runs.workload import Workload
from refine.outages import NO_ANSWER
from refine.rules.quantities import ago, plural, rough_span
from refine.rules.targets import is_this_machine
from refine.settings import Settings

QUEUE_IS_LATE_AFTER = timedelta(hours=1)
# Reflections and conversations wait for all sessions, and lapse after a long wait.
TASKS_ARE_LATE_AFTER = timedelta(days=1)

SECRET_KEY_BYTES = 32


# Workers look for runs every few seconds.
_WORKER_IS_LATE_AFTER = timedelta(minutes=1)


@dataclass(frozen=True)
class Check:
    """One check; ``problem``: what is wrong and how to fix it; ``warning``: what is less safe."""

    name: str
    problem: str | None
    detail: str = ""
    warning: str | None = None

    @property
    def is_ok(self) -> bool:
        return self.problem is None


def checks() -> list[Check]:
    """Check database, migrations, keys and redis, in this order; all must be ok."""
    redis = _problem_of(require_redis, Unreachable)  # first: no transaction waits for it
    away = _database()
    schema = away or schema_version.problem()
    keys = schema or _problem_of(WrappedKey.check_keyring, WrongKey)
    return [
        Check("database", away, "PostgreSQL answers"),
        Check("migrations", schema, "up to date"),
        Check("keys", keys, "REFINE_ENCRYPTION_KEYS holds every key in use"),
        Check("redis", redis, "Redis answers"),
    ]


def clock_check() -> Check:
    age = PeriodicWork.age("tick")
    if age is None:
        return Check("clock", "the clock has never run; start `refine clock`")
    if age < -TICK_IS_LATE_AFTER:
        return Check(
            "clock",
            "the last tick is in the future; check that the machines' clocks are synchronized",
        )
    if age > TICK_IS_LATE_AFTER:
        return Check("clock", f"the last tick was {ago(age)}; start `refine clock`")
    return Check("clock", None, f"the last tick was {ago(age)}")


def time_check() -> Check:
    """Check that this machine's clock and the database's agree; otherwise nobody may read."""
    before = datetime.now(UTC)
    problem = _problem_of(lambda: require_agreement(database_now(), before), ClocksDiffer)
    return Check("time", problem, "the database's clock agrees with this machine's")


def schedule_check(at: datetime | None = None) -> Check:
    now = at or clock.now()
    late = func.count().filter(Account.has_late_slot(now))
    following = func.min(Account.next_due_at).filter(Account.paused.is_(False))
    count, due_at = db.session.execute(select(late, following)).one()
    if count:
        return Check("schedule", f"{plural(count, 'account')} with a missed run; check the clock")
    if due_at is None:
        return Check("schedule", None, "no runs ahead")
    if (since_due := now - due_at) >= timedelta(0):
        return Check("schedule", None, f"a run was due {ago(since_due)} and is beginning")
    return Check("schedule", None, f"the next run is {ago(since_due)}")


def queue_check(account_id: int | None = None, at: datetime | None = None) -> Check:
    """Count what waits for workers (in this account), and check that they work."""
    now = at or clock.now()
    load = Workload.at(now, account_id)
    counts = [plural(load.sessions, "session")]
    counts += [plural(load.reflections, "reflection")] if load.reflections else []
    counts += [plural(load.conversations, "conversation")] if load.conversations else []
    said = f"{', '.join(counts)} waiting"
    seen = PeriodicWork.age("worker", now)
    is_working = seen is not None and seen < _WORKER_IS_LATE_AFTER
    if not is_working and (load.sessions or load.tasks_since is not None):
        return Check("queue", f"no worker, and {said}: start `refine worker`")
    for oldest, late_after in (
        (load.sessions_since, QUEUE_IS_LATE_AFTER),
        (load.tasks_since, TASKS_ARE_LATE_AFTER),
    ):
        if oldest is not None and now - oldest > late_after:
            waited = rough_span(now - oldest)
            return Check("queue", f"{said}, the oldest for {waited}: start more workers")
    return Check("queue", None, said)


def older_keys_check() -> Check:
    older = WrappedKey.count_under_older_keys()
    said = f"{plural(older, 'data key')} still wrapped with an older key; run `refine keys rotate`"
    return Check(
        "rotation", None, said if older else "every data key is wrapped with the first key"
    )


def verification_check(watch: Watch | None = None) -> Check:
    alarm, last = watch or Verification.watch()
    if alarm is not None:
        return Check("verification", alarm.alarm_text)
    if last is None:
        return Check("verification", None, warning="nothing has been verified yet")
    assert last.ended_at is not None  # noqa: S101 - for mypy
    said = f"{plural(last.records, 'record')} and {plural(last.memories, 'memory', 'memories')}"
    return Check("verification", None, f"verified {said} {ago(clock.now() - last.ended_at)}")


def signing_check(settings: Settings) -> Check:
    """Warn of a SECRET_KEY that could be guessed: it can sign any cookie."""
    is_short = len(settings.secret_key.encode()) < SECRET_KEY_BYTES
    short = f"SECRET_KEY is shorter than {SECRET_KEY_BYTES} bytes; set a longer random one"
    return Check("signing", None, "SECRET_KEY is long enough", short if is_short else None)


def https_check(settings: Settings) -> Check:
    """Warn of plain http beyond this machine: it carries sign-ins, or memories to the provider."""
    urls = {"PUBLIC_URL": settings.public_url, "OPENROUTER_BASE_URL": settings.openrouter_base_url}
    parts = {name: urlsplit(url) for name, url in urls.items()}
    plain = [
        name
        for name, url in parts.items()
        if url.scheme == "http" and not is_this_machine(url.hostname or "")
    ]
    said = f"{' and '.join(plain)}: plain http beyond this machine; use https"
    return Check(
        "https", None, "nothing leaves this machine in plain http", said if plain else None
    )


def mail_check(settings: Settings, address: str | None = None) -> Check:
    """Check that the mail server lets Refine in, and (to this address) takes a test."""
    if settings.mail_url is None:
        return Check("mail", None, "no REFINE_MAIL_URL: nobody is told anything by mail")
    said = "the mail server answers" if address is None else f"a test is on its way to {address}"
    return Check("mail", mailing.problem(address), said)


def role_check(settings: Settings) -> Check:
    """Warn of a database role that can bypass the guards. Needs the newest migration."""
    if settings.embedded_postgres:
        return Check("role", None, "the bundled PostgreSQL has one role, which owns the tables")
    powers = database_roles.own_powers()
    said = f"the role in DATABASE_URL {powers}; see `refine db roles --help`"
    return Check("role", None, "it cannot bypass the database's guards", said if powers else None)


def _database() -> str | None:
    try:
        with db.engine.connect():
            return None
    except SQLAlchemyError:
        return NO_ANSWER


def _problem_of(check: Callable[[], object], kind: type[RefineError]) -> str | None:
    """Return what an error of this kind says; None if the check raises none."""
    try:
        check()
    except kind as error:
        return str(error)
    return None
