"""Commands that do what pages do: change agents, stop sessions, reset passwords."""

from refine import clock
from refine.extensions import db
from refine.models import AuditLog, SignIn
from tests import factories
from tests.commands import refine


def last_record(action: str) -> AuditLog:
    db.session.rollback()
    found = db.select(AuditLog).filter_by(action=action).order_by(AuditLog.id.desc())
    return db.session.scalars(found.limit(1)).one()


def test_agent_set_changes_settings_and_records_the_actor(ledger, environ):
    done = refine(
        *("agent", "set", "ada", "--budget", "6000", "--threshold", "0.8", "--inactive"),
        environ=environ,
    )

    record = last_record("agent_settings_update")
    changed = "core_token_budget, refinement_threshold, active changed"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"Ada (agent {ledger.id}): {changed}\n"
    assert (ledger.core_token_budget, ledger.refinement_threshold) == (6000, 0.8)
    assert not ledger.active
    assert (record.user_id, record.data["by"]) == (None, "command line")
    assert record.data["changes"]["core_token_budget"] == [5000, 6000]


def test_an_agent_is_paused_and_resumed_once(ledger, environ):
    for option, outcome in (
        ("--paused", "paused changed"),
        ("--paused", "as before"),
        ("--resumed", "paused changed"),
    ):
        said = refine("agent", "set", "Ada", option, environ=environ).stdout
        assert said == f"Ada (agent {ledger.id}): {outcome}\n"
    db.session.rollback()
    assert not ledger.paused


def test_session_stop_ends_a_session_that_waits_for_another_worker(app, environ):
    session = factories.session()
    session.consented_at = clock.now()
    session.hand_back("its process was asked to stop", {})
    db.session.commit()

    done = refine("session", "stop", str(session.id), environ=environ)

    assert done.stdout.endswith("ended\n")
    db.session.refresh(session)
    assert session.status == "incomplete"


def test_session_stop_ends_a_running_session_before_its_next_step(app, environ):
    session = factories.session()

    done = refine("session", "stop", str(session.id), environ=environ)

    db.session.rollback()
    assert done.stdout.endswith(" ends before its next step\n")
    assert (session.is_stop_requested, session.stop_requested_by_id) == (True, None)
    assert session.status == "running"


def test_user_reset_prints_a_link_with_which_a_new_password_is_chosen(demo, environ, client):
    user = factories.user(email="ada@example.org", account=demo)
    db.session.commit()

    first = refine("user", "reset", "ADA@Example.org", environ=environ)
    second = refine("user", "reset", str(user.id), environ=environ)

    record = last_record("user_invited")
    links = [each.stdout.strip().removeprefix("http://localhost:8000") for each in (first, second)]
    assert first.stderr.startswith("refine: for ada@example.org; the link is shown only now")
    assert (record.data, record.user_id, record.auditable_id) == (
        {"by": "command line"},
        None,
        str(user.id),
    )
    assert [client.get(link).status_code for link in links] == [404, 200]


def test_a_user_or_an_account_is_locked_out_and_let_in_again(demo, environ):
    user = factories.user(email="ada@example.org", account=demo)
    db.session.commit()
    states = []

    for arguments in (
        ("lock", "ada@example.org", "--reason", "lost_device"),
        ("unlock", str(user.id)),
        ("lock", "--account", "demo", "--reason", "incident", "--tokens"),
        ("unlock", "--account", "demo"),
    ):
        done = refine(*arguments, environ=environ)
        db.session.rollback()
        states.append((done.stdout.strip(), user.active, demo.locked_at is None))

    assert states == [
        ("locked; ended: 0 grants, 0 tokens, 0 links, 0 sign-ins", False, True),
        ("unlocked", True, True),
        ("locked; ended: 0 grants, 0 tokens, 0 links, 0 sign-ins", False, False),
        ("unlocked", True, True),
    ]
    assert last_record("account_unlocked").data == {"users": 1, "by": "command line"}


def test_a_user_who_lost_their_second_factor_is_let_in_by_the_server(app, environ):
    user = factories.user(email="ada@example.org")
    factories.app_of(user)
    grant = factories.live_grant(factories.agent(account=user.account), user)
    secret = SignIn.begin(user, factor_at=clock.now()).secret
    db.session.commit()

    refine("user", "reset", "ada@example.org", "--second-factors", environ=environ)

    db.session.expire_all()
    assert not user.has_second_factor
    assert user.password_linked_at is not None
    assert grant.status == "ended"
    assert SignIn.find_valid(secret) is None
    assert last_record("second_factors_reset").user_id is None
