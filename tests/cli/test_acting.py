"""Commands that do what pages do: change agents, stop sessions, reset passwords."""

from flask import Flask
from flask.testing import FlaskClient

from refine.extensions import db
from refine.models import Account, Agent, AuditLog, RefinementSession
from tests import factories
from tests.cli.conftest import problem
from tests.commands import refine
from tests.scripted_model import ScriptedModel


def last_record(action: str) -> AuditLog:
    db.session.rollback()
    found = db.select(AuditLog).filter_by(action=action).order_by(AuditLog.id.desc())
    return db.session.scalars(found.limit(1)).one()


def test_agent_set_changes_settings_and_records_the_actor(
    ledger: Agent, environ: dict[str, str]
) -> None:
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


def test_agent_set_tells_the_agent_of_a_new_model_and_warns_of_one_that_cannot_be_used(
    ledger: Agent, environ: dict[str, str], model: ScriptedModel
) -> None:
    model.catalogue = [{"id": "test/listed", "supported_parameters": ["tools"]}]
    provider = {**environ, "OPENROUTER_BASE_URL": model.base_url}

    good = refine("agent", "set", "Ada", "--model", "test/listed", environ=provider)
    bad = refine("agent", "set", "Ada", "--model", "test/none", environ=provider)

    db.session.rollback()
    warning = "refine: warning: sessions may fail: the provider lists no model 'test/none'\n"
    assert (good.stderr, bad.stderr) == ("", warning)
    assert ledger.model_id == "test/none"
    assert ledger.identity_changed_at is not None
    assert "An admin changed my settings: model." in [
        each.content for each in factories.journal(ledger)
    ]


def test_an_agent_is_paused_and_resumed_once(ledger: Agent, environ: dict[str, str]) -> None:
    for option, outcome in (
        ("--paused", "paused changed"),
        ("--paused", "as before"),
        ("--resumed", "paused changed"),
    ):
        said = refine("agent", "set", "Ada", option, environ=environ).stdout
        assert said == f"Ada (agent {ledger.id}): {outcome}\n"
    db.session.rollback()
    assert not ledger.paused


def test_session_stop_skips_a_waiting_session(ledger: Agent, environ: dict[str, str]) -> None:
    session = RefinementSession.queue(ledger, "manual")
    db.session.commit()

    done = refine("session", "stop", str(session.id), environ=environ)
    again = refine("session", "stop", str(session.id), environ=environ)

    record = last_record("memory_refinement_skipped")
    assert done.stdout == f"session {session.id} of Ada is skipped; the agent was not asked\n"
    assert record.data["reason"] == "stopped on the command line while it was queued"
    assert problem(again) == "the session has already ended (skipped)"


def test_session_stop_ends_a_running_session_before_its_next_step(
    app: Flask, environ: dict[str, str]
) -> None:
    session = factories.session()

    done = refine("session", "stop", str(session.id), environ=environ)

    db.session.rollback()
    assert done.stdout.endswith(" ends before its next step\n")
    assert (session.is_stop_requested, session.stop_requested_by_id) == (True, None)
    assert session.status == "running"


def test_user_reset_prints_a_link_with_which_a_new_password_is_chosen(
    demo: Account, environ: dict[str, str], client: FlaskClient
) -> None:
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
