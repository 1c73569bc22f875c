"""Health checks of the services that Refine depends on."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

from sqlalchemy import func, select

from refine import clock, database_roles
from refine.diagnoses import Finding
from refine.errors import ClocksDiffer, RefineError, Unreachable, WrongKey
from refine.extensions import database_now, db, require_agreement
from refine.health import database
from refine.jobs import mailing
from refine.jobs.queue import require_redis
from refine.models import Account, PeriodicWork, Verification, WrappedKey, schema_version
from refine.models.audit.verification import Watch
from refine.models.runs.periodic_work import TICK_IS_LATE_AFTER
from refine.models.runs.workload import Workload
from refine.rules.quantities import ago, plural, rough_span
from refine.rules.targets import is_this_machine
from refine.settings import Settings

QUEUE_IS_LATE_AFTER = timedelta(hours=1)
# Reflections and conversations wait for all sessions, and lapse after a long wait.
TASKS_ARE_LATE_AFTER = timedelta(days=1)

SECRET_KEY_BYTES = 32
# Workers look for runs every few seconds.
_WORKER_IS_LATE_AFTER = timedelta(minutes=1)


class Check(NamedTuple):
    """One check: ``detail`` says what is well, unless something was ``found``."""

    name: str
    detail: str
    found: Finding | None = None

    @property
    def is_ok(self) -> bool:
        """Whether nothing must be fixed; a warning counts as ok."""
        return self.found is None or self.found.is_warning

    @property
    def state(self) -> str:
        return "fix" if not self.is_ok else "ok" if self.found is None else "warn"

    @property
    def text(self) -> str:
        return str(self.found or self.detail)

    def as_json(self) -> dict[str, str | None]:
        sentence, _, remedy = self.text.partition("; ")
        code = self.found.code if self.found is not None else None
        about = {"code": code, "sentence": sentence, "remedy": remedy or None}
        return {"check": self.name, "state": self.state, **about}


def checks() -> list[Check]:
    """Check database, migrations, keys and redis, in this order; all must be ok."""
    redis = _fault_of(require_redis, Unreachable)  # first: no transaction waits for it
    away = _fault_of(database.require_answer, Unreachable)
    schema = away or schema_version.problem()
    keys = schema or _fault_of(WrappedKey.check_keyring, WrongKey, "keys_wrong")
    return [
        Check("database", "PostgreSQL answers", away),
        Check("migrations", "up to date", schema),
        Check("keys", "REFINE_ENCRYPTION_KEYS holds every key in use", keys),
        Check("redis", "Redis answers", redis),
    ]


def clock_check() -> Check:
    age = PeriodicWork.age("tick")
    if age is None:
        return Check("clock", "", Finding.of("clock_never"))
    found = None
    if abs(age) > TICK_IS_LATE_AFTER:
        code = "clock_stopped" if age > timedelta(0) else "clock_ahead"
        found = Finding.of(code, ago=ago(age))
    return Check("clock", f"the last tick was {ago(age)}", found)


def time_check() -> Check:
    """Check that this machine's clock and the database's agree; otherwise nobody may read."""
    before = datetime.now(UTC)
    found = _fault_of(
        lambda: require_agreement(database_now(), before), ClocksDiffer, "clocks_differ"
    )
    return Check("time", "the database's clock agrees with this machine's", found)


def schedule_check() -> Check:
    now = clock.now()
    late = func.count().filter(Account.has_late_slot(now))
    following = func.min(Account.next_due_at).filter(Account.paused.is_(False))
    count, due_at = db.session.execute(select(late, following)).one()
    if count:
        missed = Finding.of("slots_missed", accounts=plural(count, "account"))
        return Check("schedule", "", missed)
    if due_at is None:
        return Check("schedule", "no runs ahead")
    if (since_due := now - due_at) >= timedelta(0):
        return Check("schedule", f"a run was due {ago(since_due)} and is beginning")
    return Check("schedule", f"the next run is {ago(since_due)}")


def queue_check(account_id: int | None = None) -> Check:
    """Count what waits for workers (in this account), and check that they work."""
    now = clock.now()
    load = Workload.at(now, account_id)
    counts = [plural(load.sessions, "session")]
    counts += [plural(load.reflections, "reflection")] if load.reflections else []
    counts += [plural(load.conversations, "conversation")] if load.conversations else []
    said = f"{', '.join(counts)} waiting"
    if not worker_check().is_ok and (load.sessions or load.tasks_since is not None):
        return Check("queue", said, Finding.of("worker_none", waiting=said))
    for oldest, late_after in (
        (load.sessions_since, QUEUE_IS_LATE_AFTER),
        (load.tasks_since, TASKS_ARE_LATE_AFTER),
    ):
        if oldest is not None and now - oldest > late_after:
            waited = rough_span(now - oldest)
            return Check("queue", said, Finding.of("workers_few", waiting=said, span=waited))
    return Check("queue", said)


def worker_check() -> Check:
    seen = PeriodicWork.age("worker")
    is_working = seen is not None and seen < _WORKER_IS_LATE_AFTER
    return Check("workers", "at work", None if is_working else Finding.of("worker_never"))


def older_keys_check() -> Check:
    older = WrappedKey.count_under_older_keys()
    said = f"{plural(older, 'data key')} still wrapped with an older key; run `refine keys rotate`"
    return Check("rotation", said if older else "every data key is wrapped with the first key")


def verification_check(watch: Watch | None = None) -> Check:
    alarm, last = watch or Verification.watch()
    if alarm is not None:
        return Check("verification", "", Finding.of("verification", said=alarm.alarm_text))
    if last is None:
        return Check("verification", "", Finding.of("verified_never"))
    assert last.ended_at is not None  # noqa: S101 - for mypy
    said = f"{plural(last.records, 'record')} and {plural(last.memories, 'memory', 'memories')}"
    return Check("verification", f"verified {said} {ago(clock.now() - last.ended_at)}")


def signing_check(settings: Settings) -> Check:
    """Warn of a SECRET_KEY that could be guessed: it can sign any cookie."""
    is_short = len(settings.secret_key.encode()) < SECRET_KEY_BYTES
    short = Finding.of("secret_short", bytes=SECRET_KEY_BYTES) if is_short else None
    return Check("signing", "SECRET_KEY is long enough", short)


def https_check(settings: Settings) -> Check:
    """Warn of plain http beyond this machine: it carries sign-ins, or memories to the provider."""
    urls = {"PUBLIC_URL": settings.public_url, "OPENROUTER_BASE_URL": settings.openrouter_base_url}
    parts = {name: urlsplit(url) for name, url in urls.items()}
    plain = [
        name
        for name, url in parts.items()
        if url.scheme == "http" and not is_this_machine(url.hostname or "")
    ]
    found = Finding.of("plain_http", names=" and ".join(plain)) if plain else None
    return Check("https", "nothing leaves this machine in plain http", found)


def mail_check(settings: Settings, address: str | None = None) -> Check:
    """Check that the mail server lets Refine in, and (to this address) takes a test."""
    if settings.mail_url is None:
        return Check("mail", "no REFINE_MAIL_URL: nobody is told anything by mail")
    said = "the mail server answers" if address is None else f"a test is on its way to {address}"
    return Check("mail", said, Finding.saying("mail", mailing.problem(address)))


def role_check(settings: Settings) -> Check:
    """Warn of a database role that can bypass the guards. Needs the newest migration."""
    if settings.embedded_postgres:
        return Check("role", "the bundled PostgreSQL has one role, which owns the tables")
    powers = database_roles.own_powers()
    found = Finding.of("role_powers", powers=powers) if powers else None
    return Check("role", "it cannot bypass the database's guards", found)


def proxies_check(settings: Settings) -> Check:
    found = Finding.of("proxies_none") if settings.is_https and not settings.proxies else None
    return Check("proxies", f"{plural(settings.proxies, 'proxy', 'proxies')} trusted", found)


def _fault_of(
    check: Callable[[], object], kind: type[RefineError], code: str = ""
) -> Finding | None:
    """Return what an error of this kind says; None if the check raises none."""
    try:
        check()
    except kind as error:
        (said,) = error.args
        return said if isinstance(said, Finding) else Finding.of(code, said=said)
    return None
