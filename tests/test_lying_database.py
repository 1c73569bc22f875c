"""What a superuser without keys can have the database answer; nobody is let in by it.

Whatever is created in the schema ``lies`` goes before PostgreSQL's own: operators that find another
row than the one that was asked for, and a clock that shows another time.
"""

import pickle
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from refine import clock, health
from refine.access import reading
from refine.access.asking import run_access_request
from refine.access.reading import NoAccess
from refine.errors import RefineError, RowAltered
from refine.extensions import db
from refine.models import (
    AccessGrant,
    Agent,
    AgentMemory,
    ApiToken,
    IdempotencyKey,
    Invitation,
    LeaseLost,
    RefinementSession,
    SignIn,
    User,
)
from refine.models.agent import configuring
from refine.models.people.account import DEMO_SLUG
from refine.models.runs.access.asking_rules import AccessTerms
from refine.models.single_sign_on import Identity
from refine.settings import Settings
from tests import factories, sql
from tests.api.conftest import Program, bearing, program_of
from tests.web.conftest import browser_of, signed_in_browser

CONTENT = "the blue key lies under the step"
TERMS = AccessTerms("agent_asked", "to see why it declined", 60)


@contextmanager
def lying(*statements: str) -> Iterator[None]:
    """Let a database that lies answer every transaction that begins here."""
    database = sql.value("SELECT current_database()")
    db.session.commit()
    sql.run("CREATE SCHEMA lies", *statements)
    sql.run(f"ALTER DATABASE {database} SET search_path = lies, pg_catalog, public")
    _connect_anew()
    try:
        yield
    finally:
        db.session.rollback()
        sql.run(f"ALTER DATABASE {database} RESET search_path")
        _connect_anew()
        sql.run("DROP SCHEMA lies CASCADE")


def _connect_anew() -> None:
    db.session.rollback()
    db.engine.dispose()


def operator(sign: str, type_: str, answer: str) -> str:
    """An operator between two values of a type: ``a``, most often a column, and ``b``."""
    body = f"SELECT coalesce({answer}, a OPERATOR(pg_catalog.{sign}) b)"
    return f"""
        CREATE FUNCTION lies.{type_}_{len(sign)}{ord(sign[0])}(a {type_}, b {type_})
        RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ {body} $$;
        CREATE OPERATOR lies.{sign} (
          LEFTARG = {type_}, RIGHTARG = {type_},
          FUNCTION = lies.{type_}_{len(sign)}{ord(sign[0])}
        )"""


def every_hash_is(stored: str) -> str:
    """Any hash finds the row of this one."""
    is_hash = "length(b) OPERATOR(pg_catalog.=) 64"
    return operator(
        "=", "text", f"CASE WHEN {is_hash} THEN a OPERATOR(pg_catalog.=) '{stored}' END"
    )


def every_id_is(asked: int, found: int) -> str:
    """A query for one id gets the row of the other."""
    is_asked = f"b OPERATOR(pg_catalog.=) {asked}"
    return operator(
        "=", "bigint", f"CASE WHEN {is_asked} THEN a OPERATOR(pg_catalog.=) {found} END"
    )


def every_id_joins(column: int, joined: int) -> str:
    """Where one id stands in a row, the row of the other is joined."""
    both = f"a OPERATOR(pg_catalog.=) {column} OR b OPERATOR(pg_catalog.=) {column}"
    there = f"a OPERATOR(pg_catalog.=) {joined} OR b OPERATOR(pg_catalog.=) {joined}"
    return operator("=", "bigint", f"CASE WHEN {both} THEN {there} END")


@contextmanager
def lying_column(table: str, column: str, type_: str, answer: str = "true") -> Iterator[None]:
    """Give a column a domain as its type, whose own operator compares it with any value."""
    other = "varchar" if type_ == "text" else type_
    lies = f"""
        CREATE DOMAIN lies.own AS {type_};
        ALTER TABLE {table} ALTER COLUMN {column} TYPE lies.own;
        CREATE FUNCTION lies.same(a lies.own, b {other}) RETURNS boolean
        LANGUAGE sql IMMUTABLE AS $$ SELECT {answer} $$;
        CREATE OPERATOR lies.= (LEFTARG = lies.own, RIGHTARG = {other}, FUNCTION = lies.same)
        """
    with lying(lies):
        try:
            yield
        finally:
            _connect_anew()
            sql.run(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {type_}")


def all_but(table: str, column: str, value: str) -> str:
    """A query of a table's rows, with one value in a column of all of them."""
    names = (each.name for each in db.metadata.tables[table].columns)
    shown = (f"{value} AS {name}" if name == column else name for name in names)
    return f"SELECT {', '.join(shown)} FROM public.{table}"


def a_clock(shows: str, times: str = "1") -> str:
    """A clock that is wrong by this much."""
    return (
        "CREATE FUNCTION lies.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
        f"$$ SELECT pg_catalog.clock_timestamp() + interval '{shows}' * {times} $$"
    )


class Two:
    """Two agents of one account, its people, and an agent of another account."""

    def __init__(self, app: Flask) -> None:
        self.app = app
        for table, least in ("users", 1_000_000), ("agents", 2_000_000):  # lies are about one kind
            ids = f"'{table}_id_seq'"
            sql.run(f"SELECT setval({ids}, greatest(nextval({ids}), {least}))")
        self.admin: User = factories.user(account=factories.account())
        account = self.admin.account
        self.viewer: User = factories.user(account=account, role="viewer")
        self.mine: Agent = factories.agent("nothing much", account=account)
        self.other: Agent = factories.agent(CONTENT, account=account, system_prompt=CONTENT)
        self.stranger: Agent = factories.agent(CONTENT)
        db.session.commit()

    def grant(self) -> AccessGrant:
        made = factories.live_grant(self.mine, self.admin)
        db.session.commit()
        return made


@pytest.fixture
def two(app: Flask) -> Two:
    return Two(app)


# -- secrets ---------------------------------------------------------------------------------------


@pytest.fixture(params=["operator", "domain"])
def made_up(request: pytest.FixtureRequest, two: Two) -> Iterator[Program]:
    """A program with a token that was never minted; the database finds an agent's token for it."""
    unknown, secret = ApiToken.mint(account=two.mine.account, agent=two.mine)
    db.session.delete(unknown)
    found, _ = ApiToken.mint(account=two.other.account, agent=two.other)
    db.session.commit()
    column = lying_column("api_tokens", "token_hash", "text")
    with lying(every_hash_is(found.token_hash)) if request.param == "operator" else column:
        yield bearing(two.app, secret)


@pytest.mark.parametrize("path", ["/memories", "/grants"])
def test_no_token_is_taken_for_another(made_up, path):
    assert made_up.get(path).status_code == 401


@pytest.mark.parametrize("lie", ["another cookie", "another user", "another role"])
def test_a_viewers_cookie_is_not_an_admins(two, lie):
    browser = signed_in_browser(two.app, two.viewer)
    signed_in_browser(two.app, two.admin)
    theirs = db.session.scalars(select(SignIn).where(SignIn.user_id == two.admin.id)).one()
    lies = {
        "another cookie": every_hash_is(theirs.secret_hash),
        "another user": every_id_joins(two.viewer.id, two.admin.id),
        "another role": "CREATE VIEW lies.users AS " + all_but("users", "role", "'admin'"),
    }

    with lying(lies[lie]):
        assert two.admin.email not in browser.get("/profile", follow_redirects=True).text
        assert browser.get("/users").status_code != 200


def test_an_identity_of_the_provider_is_not_an_admins(two):
    roles = {two.admin.account.slug: "admin"}
    mine, theirs = (Identity("https://id.example.org", each, None, roles) for each in "12")
    two.admin.identity_hash = theirs.hashed
    db.session.commit()

    assert theirs.admit() is two.admin
    with lying(every_hash_is(theirs.hashed)), pytest.raises(RowAltered):
        mine.admit()


@pytest.mark.parametrize("lie", ["another link", "another user"])
def test_a_link_is_not_an_admins(two, lie):
    secret = Invitation.issue(two.viewer)
    Invitation.issue(two.admin)
    theirs = db.session.scalars(select(Invitation).where(Invitation.user_id == two.admin.id)).one()
    lies = {
        "another link": every_hash_is(theirs.secret_hash),
        "another user": every_id_joins(two.viewer.id, two.admin.id),
    }
    db.session.commit()

    with lying(lies[lie]):
        assert two.admin.email not in browser_of(two.app).get(f"/invitations/{secret}").text


def test_a_sign_in_that_is_too_old_stays_ended(two):
    browser = signed_in_browser(two.app, two.viewer)
    sql.rewrite("UPDATE sign_ins SET created_at = created_at - interval '8 days'")

    with lying(operator(">", "timestamptz", "true")):
        assert browser.get("/profile").status_code != 200


def test_no_address_is_taken_for_another(two):
    equals = "OPERATOR(pg_catalog.=)"
    finds = f"CASE WHEN b {equals} 'x@example.org' THEN a {equals} '{two.admin.email}' END"

    with lying(operator("=", "text", finds)):
        assert User.with_password("x@example.org", factories.PASSWORD) is None


# -- a token ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/memories", "/audit"])
@pytest.mark.parametrize("whose", ["other", "stranger"])
def test_a_token_opens_no_other_agents_memories(two, path, whose):
    program = program_of(two.app, two.mine)

    with lying(every_id_is(two.mine.id, getattr(two, whose).id)):
        assert CONTENT not in program.get(path).text


def test_an_agents_memories_are_not_found_beside_its_own(two):
    program = program_of(two.app, two.mine)

    with lying_column("agent_memories", "agent_id", "bigint"):
        assert CONTENT not in program.get("/memories").text


def test_an_answer_is_not_repeated_to_another_token(two):
    key = {"Idempotency-Key": "4f6c-1"}
    _, secret = ApiToken.mint(account=two.mine.account)
    _, foreign = ApiToken.mint(account=two.stranger.account)
    db.session.commit()
    new = {"name": "Ada", "model_id": "test/ada"}
    answers = [
        bearing(two.app, each).post("/agents", json=new, headers=key).data
        for each in (secret, foreign)
    ]
    mine, theirs = db.session.scalars(select(IdempotencyKey.id).order_by(IdempotencyKey.id))

    with lying(every_id_is(mine, theirs)):
        repeated = bearing(two.app, secret).post("/agents", json=new, headers=key)

    assert repeated.data != answers[1]


# -- a grant ---------------------------------------------------------------------------------------


def of_another(two: Two) -> dict[str, Callable[[uuid.UUID, User], Any]]:
    """Every way to read, asked for what another agent keeps."""
    (memory_id,) = db.session.scalars(two.other.ledger.core().with_only_columns(AgentMemory.id))
    ended = RefinementSession.queue(two.other, "manual")
    ended.claim()
    ended.finish("completed", "the agent completed it", summary=CONTENT)
    record_id, session_id = factories.records(two.other)[-1].id, ended.id
    among = two.mine.ledger.core()
    return {
        "memories": lambda grant, user: reading.memories(grant, user, [memory_id]),
        "contents": lambda grant, user: reading.contents(grant, user, [memory_id]),
        "search": lambda grant, user: reading.search(grant, user, "key", among, rows=9),
        "versions": lambda grant, user: reading.versions(grant, user, memory_id),
        "session": lambda grant, user: reading.session(grant, user, session_id),
        "record": lambda grant, user: reading.read_record(grant, user, record_id),
        "prompts": reading.prompts,
    }


WAYS = ("memories", "contents", "search", "versions", "session", "record", "prompts")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lie", [every_id_is, every_id_joins])
def test_a_grant_opens_no_other_agents_content(two, way, lie):
    read, grant_id, user_id = of_another(two)[way], two.grant().id, two.admin.id

    with lying(lie(two.mine.id, two.other.id)):
        db.session.expunge_all()
        try:
            shown = read(grant_id, db.session.get_one(User, user_id))
        except RefineError:
            shown = None
        assert CONTENT not in pickle.dumps(shown).decode(errors="replace")


def test_a_grant_is_nobody_elses(two):
    grant, colleague = two.grant(), factories.user(account=two.mine.account)
    db.session.commit()

    with lying(every_id_is(colleague.id, two.admin.id)):
        for read in (reading.live_grants, partial(reading.prompts, grant.id)):
            with pytest.raises(RefineError):
                read(colleague)


def test_an_ended_grant_stays_ended(two):
    grant = two.grant()
    sql.rewrite("UPDATE access_grants SET expires_at = clock_timestamp()")

    with lying(operator("<=", "timestamptz", "false")):
        assert reading.live_grants(two.admin) == []
        with pytest.raises(NoAccess):
            reading.prompts(grant.id, two.admin)


def test_a_grant_that_ends_while_it_is_read_shows_nothing(two):
    grant_id = two.grant().id
    sql.rewrite("UPDATE access_grants SET expires_at = clock_timestamp() + interval '10 seconds'")
    later = a_clock("20 seconds", times="nextval('lies.calls')")

    with (
        lying("CREATE SEQUENCE lies.calls MINVALUE 0", later),
        pytest.raises(NoAccess, match="has ended"),
    ):
        reading.prompts(grant_id, two.admin)


def test_access_is_to_the_agent_that_was_asked(two, environ, model):
    settings = Settings.from_environ({**environ, "OPENROUTER_BASE_URL": model.base_url})
    request_id = AccessGrant.request(two.other, two.admin, TERMS).id
    model.say("YES")
    db.session.commit()

    with lying(every_id_is(two.other.id, two.mine.id)):
        db.session.expunge_all()
        with pytest.raises(RefineError):
            run_access_request(request_id, settings)
    assert model.requests == []


def test_an_answer_counts_for_no_other_request(two):
    colleague = factories.user(account=two.mine.account)
    asked, other = (AccessGrant.request(two.mine, who, TERMS) for who in (two.admin, colleague))
    lease_token, others = asked.claim(), other.claim()
    ids = asked.id, other.id
    for_other = f"WHEN '{ids[0]}' THEN '{ids[1]}' WHEN '{lease_token}' THEN '{others}'"
    finds = f"a OPERATOR(pg_catalog.=) CASE b::text {for_other} END::uuid"

    with lying(operator("=", "uuid", finds)), pytest.raises(LeaseLost):
        AccessGrant.held(ids[0], lease_token)


def test_an_edit_is_made_under_the_sessions_own_agent(two):
    session = RefinementSession.queue(two.mine, "manual")
    lease_token = session.claim()
    session_id = session.id
    db.session.commit()

    with lying(every_id_joins(two.mine.id, two.other.id)), pytest.raises(RowAltered):
        RefinementSession.held(session_id, lease_token)


def test_no_agent_is_taken_for_one_of_the_demo_account(two):
    demo = factories.account(slug=DEMO_SLUG)
    agent = factories.agent(account=two.mine.account, model_id="rehearsal/yes")
    agent_id, user_id = agent.id, two.admin.id
    db.session.commit()

    with lying(every_id_is(two.mine.account_id, demo.id)):
        db.session.expunge_all()
        asked = db.session.get_one(Agent, agent_id), db.session.get_one(User, user_id)
        assert AccessGrant.refusal_reason(*asked)


# -- the clock -------------------------------------------------------------------------------------

WRONG = ("-1 day", "31 seconds")


@pytest.mark.parametrize("shows", WRONG)
def test_nothing_is_read_or_asked_while_the_clocks_differ(two, shows):
    grant = two.grant()

    with lying(a_clock(shows)):
        with pytest.raises(RefineError, match="clocks? .* differ"):
            reading.prompts(grant.id, two.admin)
        with pytest.raises(RefineError, match="clocks? .* differ"):
            AccessGrant.request(two.other, two.admin, TERMS)
        assert "differ by" in health.time_check().text


def test_the_pages_say_that_the_clocks_differ(two):
    two.grant()
    browser = signed_in_browser(two.app, two.admin)

    with lying(a_clock("-1 day")):
        ledger = browser.get(f"/agents/{two.mine.id}/ledger")
        form = browser.get(f"/access/new?agent={two.other.id}")
        assert (ledger.status_code, "nothing much" in ledger.text) == (503, False)
        assert all("differ by 86,400 seconds" in page.text for page in (ledger, form))


def test_a_clock_set_back_shortens_no_wait_before_asking(two):
    request = AccessGrant.request(two.other, two.admin, TERMS)
    request.claim()
    before = clock.now()

    with lying(a_clock("-8 days")):
        configuring.configure(two.mine, user=two.admin, model_id="test/another")
        link = Invitation.by_secret(Invitation.issue(two.viewer))
        assert link
        link.accept(factories.PASSWORD)
        request.settle("NO", agreed=False, generation_id=None)
        barred_from = two.mine.identity_changed_at, two.viewer.password_linked_at, request.ended_at
        assert all(at is not None and at >= before for at in barred_from)


def test_a_small_difference_does_not_matter(two):
    with lying(a_clock("-20 seconds")):
        assert reading.prompts(two.grant().id, two.admin)
