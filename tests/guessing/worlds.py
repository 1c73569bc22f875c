"""Two databases that differ in one thing: what an agent keeps to itself.

In one the agents hold the guess, in the other another text of the same length, in every place that
there is. Ids, dates, keys and random numbers are the same, so whatever differs in what comes back
tells whether the guess was right.
"""

import gc
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import time_machine
from flask import Flask
from flask_migrate import upgrade
from redis import Redis
from sqlalchemy import LargeBinary, event, make_url, text

from refine import create_app
from refine.extensions import canonical_json, db
from refine.models import AccessGrant, Agent, AgentMemory, AuditLog, RefinementSession, SignIn, User
from refine.models.agent import PROMPTS, configuring
from refine.models.runs.access.asking_rules import AccessTerms
from refine.settings import Settings
from refine.tools import RefinementTool
from tests import factories
from tests.api.conftest import Program, bearing, platform_of, program_of
from tests.commands import UNUSED_PORT
from tests.web.conftest import world_of

GUESS = "the blue key lies under the third step"
OTHER = "her sister paints the second tall door"
assert len(GUESS) == len(OTHER)

_START = datetime.now(UTC).replace(microsecond=0)

# A clock that stands still, and groups in one order, whatever PostgreSQL thinks of the tables.
_OPTIONS = "-csearch_path=frozen,pg_catalog,public -cenable_hashagg=off"
# Columns that depend on content, but that nobody is shown: keyed hashes, ids of other systems.
_HIDDEN = {"content_hash", "row_digest", "hash", "request_hash", "source_id"}
# Columns that PostgreSQL sets by itself.
_OF_DATABASE = {"transaction_id", "transaction_at"}
# Keyed digests within JSON columns, which are left out of what is shown.
_DIGEST = "[0-9a-f]{40,}"


@dataclass
class Things:
    """What URLs can name, by id, and the secrets of everybody who asks; the same in both worlds."""

    agents: list[int]
    memories: list[int] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    grants: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    users: list[int] = field(default_factory=list)
    accounts: list[int] = field(default_factory=list)
    endpoints: list[int] = field(default_factory=list)
    deliveries: list[int] = field(default_factory=list)
    invitations: list[str] = field(default_factory=list)
    sign_ins: dict[str, str] = field(default_factory=dict)
    bearers: dict[str, str] = field(default_factory=dict)


class Side:
    """One of the two worlds: an application with a database and a Redis of its own."""

    def __init__(self, environ: dict[str, str], name: str, redis_db: int) -> None:
        self.name = name
        url = make_url(environ["DATABASE_URL"]).set(database=name)
        url = url.update_query_dict({"options": _OPTIONS})
        self._redis_url = environ["REDIS_URL"].replace("db=0", f"db={redis_db}")
        variables = {
            "DATABASE_URL": url.render_as_string(hide_password=False),
            "REDIS_URL": self._redis_url,
            "OPENROUTER_BASE_URL": f"http://127.0.0.1:{UNUSED_PORT}",
            "REFINE_API_READS_PER_MINUTE": "1000000",
            "REFINE_API_WRITES_PER_MINUTE": "1000000",
        }
        self.app: Flask = create_app(Settings.from_environ({**environ, **variables}))
        self.statements: list[str] = []
        with self.app.app_context():
            event.listen(db.engine, "before_cursor_execute", self._note)
        self.kept: list[str] = []
        self._restoring = ""

    def _note(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "alembic_version" not in statement:  # looked at every ten seconds, whoever asks
            self.statements.append(statement)

    def keep(self) -> None:
        """Remember all rows as they are now, for ``restore``."""
        tables = {
            table.name: ", ".join(each.name for each in table.columns if each.computed is None)
            for table in reversed(db.metadata.sorted_tables)
        }
        keeping = "; ".join(f"CREATE TABLE kept.{name} AS TABLE {name}" for name in tables)
        self.run(f"CREATE SCHEMA kept; {keeping}")
        again = [
            f"DELETE FROM {name}; INSERT INTO {name} ({columns}) SELECT {columns} FROM kept.{name}"
            for name, columns in tables.items()
        ]
        with self.app.app_context(), db.engine.connect() as connection:
            counted = connection.execute(text("SELECT sequencename, last_value FROM pg_sequences"))
            again += [f"SELECT setval('{name}', {last})" for name, last in counted if last]
        self.kept = self.open_rows()
        self._restoring = f"SET LOCAL session_replication_role = replica; {'; '.join(again)}"

    def restore(self) -> None:
        """Put all rows back, and empty Redis."""
        self.run(self._restoring)
        with Redis.from_url(self._redis_url) as connection:
            connection.flushdb()

    def run(self, statements: str) -> None:
        with self.app.app_context(), db.engine.begin() as connection:
            connection.exec_driver_sql(statements)

    def open_rows(self) -> list[str]:
        """Return every row: of what is sealed the length, and no keyed hashes."""
        selects = []
        for table in db.metadata.sorted_tables:
            shown = [
                f"octet_length({column.name})" if isinstance(column.type, LargeBinary)
                else column.name
                for column in table.columns
                if column.name not in _HIDDEN | _OF_DATABASE
            ]  # fmt: skip
            row = f"regexp_replace(ROW({', '.join(shown)})::text, '{_DIGEST}', '#', 'g')"
            selects.append(f"SELECT '{table.name} ' || {row} FROM {table.name}")
        with self.app.app_context(), db.engine.connect() as connection:
            found = connection.execute(text(" UNION ALL ".join(selects)).columns())
            return sorted(found.scalars())

    def dispose(self) -> None:
        with self.app.app_context():
            db.session.remove()
            db.engine.dispose()


class Worlds:
    """Both worlds, and the things that are in both."""

    def __init__(self, sides: list[Side], things: Things) -> None:
        self.sides = sides
        self.things = things

    def restore(self) -> None:
        for side in self.sides:
            side.restore()


@contextmanager
def two_worlds(migrated_app: Flask, environ: dict[str, str]) -> Iterator[Worlds]:
    """Build both: a copy of the first, before its agents hold anything, becomes the second."""
    with ExitStack() as stack:
        _create(migrated_app, "ways_guess", template="template0")
        stack.callback(_drop, migrated_app, "ways_guess")
        _migrate(environ, "ways_guess")
        guess = Side(environ, "ways_guess", redis_db=2)
        stack.callback(guess.dispose)
        _freeze_clock(guess)
        with same_circumstances(0), guess.app.app_context():
            things = _build(guess.app)
        guess.dispose()
        _create(migrated_app, "ways_other", template="ways_guess")
        stack.callback(_drop, migrated_app, "ways_other")
        other = Side(environ, "ways_other", redis_db=3)
        stack.callback(other.dispose)
        for side, content in ((guess, GUESS), (other, OTHER)):
            with side.app.app_context():
                _hold(side.app, things, content)
            side.keep()
        with guess.app.app_context():
            _name_things(things)
        yield Worlds([guess, other], things)


@contextmanager
def same_circumstances(number: int) -> Iterator[None]:
    """Make time and chance the same in both worlds: so many milliseconds after the start.

    Chance is random ids, secrets and nonces; and when objects that the database's session holds
    only weakly are collected, to be loaded again.
    """
    streams = defaultdict[int, random.Random](lambda: random.Random(number))

    def bytes_of(count: int) -> bytes:
        # one stream for each length: libraries name things at random, but each only once
        return streams[count].randbytes(count)

    at = _START + timedelta(milliseconds=number)
    gc.disable()
    try:
        with (
            time_machine.travel(at, tick=False),
            patch("time.perf_counter", lambda: 0.0),
            patch("os.urandom", bytes_of),
            patch("random._urandom", bytes_of),
        ):
            yield
    finally:
        gc.enable()


def _create(app: Flask, name: str, *, template: str) -> None:
    _drop(app, name)
    _administer(app, f"CREATE DATABASE {name} TEMPLATE {template}")


def _migrate(environ: dict[str, str], name: str) -> None:
    url = make_url(environ["DATABASE_URL"]).set(database=name)
    variables = {"DATABASE_URL": url.render_as_string(hide_password=False)}
    app = create_app(Settings.from_environ({**environ, **variables}))
    with app.app_context():
        upgrade()
        db.session.remove()
        db.engine.dispose()


def _drop(app: Flask, name: str) -> None:
    _administer(app, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _administer(app: Flask, statement: str) -> None:
    """Execute outside any transaction, with no other connection to the template."""
    with app.app_context():
        db.session.remove()
        db.engine.dispose()
        engine = db.create_engine(db.engine.url.set(database="postgres"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


def _freeze_clock(side: Side) -> None:
    """Let the database's clock stand still, as the application's does."""
    side.run(
        "CREATE SCHEMA frozen; CREATE FUNCTION frozen.clock_timestamp() RETURNS timestamptz "
        f"LANGUAGE sql STABLE AS $$ SELECT timestamptz '{_START.isoformat()}' $$"
    )


def _build(app: Flask) -> Things:
    """An account with one of everything, and everybody in and outside it."""
    admin = factories.user(account=factories.account(name="House", slug="house"))
    world = world_of(admin)
    empty = factories.agent(account=world.account, name="Bea", model_id="test/bea")
    foreign = factories.agent("of a stranger", account=world.stranger.account)
    things = Things([world.agent.id, empty.id])
    people = ("viewer", "admin", "site_admin", "stranger")
    things.sign_ins = {who: _signed_in(getattr(world, who)) for who in people}
    things.accounts = [world.account.id]
    things.users = [factories.user(account=world.account).id]
    things.invitations = [world.invitation]
    things.bearers = {
        "its agent": program_of(app, world.agent),
        "a sibling": program_of(app, world.live.agent),
        "its platform": platform_of(app, world.account),
        "a foreign agent": program_of(app, foreign),
        "a foreign platform": platform_of(app, foreign.account),
    }  # fmt: skip
    things.bearers = {who: program.secret or "" for who, program in things.bearers.items()}
    return things


def _signed_in(user: User) -> str:
    begun = SignIn.begin(user)
    db.session.commit()
    return begun.secret


def _hold(app: Flask, things: Things, content: str) -> None:
    """Have both agents keep this, in every place where an agent can keep something."""
    ada, bea = (db.session.get_one(Agent, id_) for id_ in things.agents)
    own = bearing(app, things.bearers["its agent"])
    keeping = (
        lambda content: [configuring.author(ada, each, content) for each in PROMPTS],
        lambda content: [configuring.author(bea, each, content) for each in PROMPTS],
        lambda content: ada.ledger.remember(content, "core")[0].discard(),
        partial(_save, own, "journal"),
        partial(_save, own, "core"),
        partial(_bring, ada),
        partial(_complete, ada),
        partial(_decline_session, ada),
        partial(_decline_reader, ada, things.users[0]),
        partial(factories.memory, ada),  # a duplicate, for the next session
        partial(factories.extraction, ada),
    )
    for number, keep in enumerate(keeping, 1):
        with same_circumstances(number):
            keep(content)
            db.session.commit()


def _save(own: Program, memory_type: str, content: str) -> None:
    answer = own.post(
        "/memories",
        json={"content": content, "memory_type": memory_type},
        headers={"Idempotency-Key": memory_type},
    )
    assert answer.status_code == 201


def _bring(agent: Agent, content: str) -> None:
    """As an import does."""
    extra = canonical_json({"note": content})
    factories.memory(agent, "from elsewhere", source="mem0", source_id=content, extra=extra)


def _complete(agent: Agent, content: str) -> None:
    tool = RefinementTool(factories.session(agent))
    assert tool.execute(action="search", query=content)["type"] != "error"
    assert tool.execute(action="complete", summary=content)["type"] == "refinement_complete"


def _decline_session(agent: Agent, content: str) -> None:
    session = RefinementSession.queue(agent, "manual")
    session.claim()
    session.consent_reply = f"NO, {content}"
    session.finish("declined", "the agent declined")


def _decline_reader(agent: Agent, user_id: int, content: str) -> None:
    terms = AccessTerms.checked(
        reason="agent_asked", purpose="to see why it declined", duration_minutes=60
    )
    grant = AccessGrant.request(agent, db.session.get_one(User, user_id), terms)
    assert grant.claim()
    grant.settle(f"NO, {content}", agreed=False, generation_id="gen-1")


def _name_things(things: Things) -> None:
    """Note the ids of all that the agents have by now."""
    mine = AgentMemory.agent_id == things.agents[0]
    held = db.select(AgentMemory.id).where(mine).order_by(AgentMemory.id)
    discarded = held.where(AgentMemory.discarded)
    things.memories = [
        db.session.scalars(held.order_by(None).order_by(AgentMemory.id.desc())).first() or 0,
        *db.session.scalars(discarded),
    ]
    newest_of_each = db.select(db.func.max(AuditLog.id)).group_by(AuditLog.action)
    things.records = sorted(db.session.scalars(newest_of_each))
    for name in (
        *("refinement_sessions", "access_grants", "memory_tasks", "api_tokens", "users"),
        *("endpoints", "deliveries"),
    ):
        found = db.session.scalars(text(f"SELECT id FROM {name} ORDER BY created_at, id"))
        kind = {"refinement_sessions": "sessions", "access_grants": "grants"}.get(name, name)
        setattr(
            things, kind.removeprefix("api_").removeprefix("memory_"), [str(id_) for id_ in found]
        )
