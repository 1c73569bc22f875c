"""Commands that succeed."""

import re
import signal
import threading
from collections.abc import Iterator

import click
import pytest

from refine.cli import refine as command_line
from refine.extensions import db
from refine.jobs.queue import RUNS
from refine.models import Agent, AuditLog, RefinementSession, User
from refine.models.clients.api_token import WELL_FORMED, ApiToken
from tests import factories
from tests.commands import eventually, refine, start

PASSWORD = "correct horse battery"


def actions() -> list[str]:
    db.session.rollback()
    return list(db.session.scalars(db.select(AuditLog.action).order_by(AuditLog.id)))


def test_user_add_reads_the_password_from_standard_input(demo, environ):
    added = refine(
        *("user", "add", "Ada@Example.org", "--account", "demo", "--role", "viewer"),
        *("--site-admin", "--password-stdin"),
        environ=environ,
        stdin=f"{PASSWORD}\nanother line\n",
    )

    user = User.by_email("ada@example.org")
    assert (added.returncode, added.stderr) == (0, "")
    assert added.stdout == "ada@example.org can sign in (viewer, site admin)\n"
    assert user is not None
    assert user.has_password(PASSWORD)
    assert (user.role, user.site_admin, user.account_id) == ("viewer", True, demo.id)
    assert actions() == ["user_created"]


def test_agent_add_prints_the_id(demo, environ):
    added = refine(
        "agent", "add", "Ada", "--account", "demo", "--model", "rehearsal/x", environ=environ
    )

    agent = db.session.get_one(Agent, int(added.stdout))
    assert (added.returncode, added.stderr) == (0, "")
    assert (agent.name, agent.model_id, agent.account_id) == ("Ada", "rehearsal/x", demo.id)
    assert actions() == ["agent_created"]


def test_agent_erase_waits_a_week_and_can_be_called_off(ledger, environ):
    unclear = [
        refine("agent", "erase", str(ledger.id), *options, environ=environ).returncode
        for options in ((), ("--now",), ("--for-good", "--call-off"))
    ]
    asked = refine("agent", "erase", str(ledger.id), "--for-good", environ=environ)
    db.session.rollback()
    erase_at = ledger.erase_at
    called_off = refine("agent", "erase", str(ledger.id), "--call-off", environ=environ)

    db.session.rollback()
    named = f"{ledger.name} (agent {ledger.id})"
    assert unclear == [2, 2, 2]
    assert asked.stdout == (
        f"{named} is erased for good on {erase_at:%Y-%m-%d %H:%M} UTC; until then, `refine agent "
        f"erase {ledger.id} --call-off` calls it off\n"
    )
    assert called_off.stdout == f"{named} is not erased\n"
    assert (ledger.erase_at, ledger.is_erased) == (None, False)


def test_agent_erase_now_destroys_the_content_and_keeps_the_records(ledger, environ):
    erased = refine("agent", "erase", str(ledger.id), "--for-good", "--now", environ=environ)

    db.session.rollback()
    record = db.session.scalars(db.select(AuditLog).filter_by(action="agent_erased")).one()
    assert (erased.returncode, erased.stderr) == (0, "")
    assert erased.stdout == f"erased {ledger.name} (agent {ledger.id})\n"
    assert ledger.is_erased
    assert record.data["by"] == "command line"
    assert refine("audit", "verify", environ=environ).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [(("--agent", "Ada"), "agent"), (("--platform", "--account", "demo"), "platform")],
)
def test_token_add_prints_only_the_token(ledger, environ, arguments, kind):
    added = refine("token", "add", *arguments, environ=environ)
    revoked = refine("token", "revoke", "-", environ=environ, stdin=added.stdout)

    secret = added.stdout.removesuffix("\n")
    token = ApiToken.of_secret(secret)
    assert (added.returncode, revoked.returncode) == (0, 0)
    assert WELL_FORMED.fullmatch(secret)
    assert token.kind == kind
    assert not token.is_valid
    assert secret not in revoked.stdout
    assert actions() == ["token_minted", "token_revoked"]


@pytest.mark.parametrize("slug", [None, "demo"])
def test_token_add_prints_a_link_to_the_wall(ledger, environ, slug):
    added = refine(
        "token", "add", "--wall", *(["--account", slug] if slug else []), environ=environ
    )
    link = added.stdout.removesuffix("\n")
    url, _, secret = link.partition("#")
    account = ApiToken.of_secret(secret).account

    revoked = refine("token", "revoke", link, environ=environ)

    token = ApiToken.of_secret(secret)
    assert url == "http://localhost:8000/wall/open"
    assert (token.kind, account.slug if account is not None else None) == ("wall", slug)
    assert (added.returncode, revoked.returncode, token.is_valid) == (0, 0, False)
    assert refine("audit", "verify", environ=environ).returncode == 0


def test_run_prints_each_step_without_content(demo, environ):
    ada = factories.agent(*"abcdefghij", account=demo, name="Ada", model_id="rehearsal/ada")
    factories.memory(ada, "The canary, sings at dawn!")
    factories.memory(ada, "the canary sings at dawn")
    factories.memory(ada, "The Canary Sings At Dawn")
    factories.memory(ada, "each morning something else is heard in the garden behind this house")
    db.session.commit()

    done = refine("run", "Ada", environ=environ)

    labels = [line[2:19].strip() for line in done.stdout.splitlines()[3:]]
    assert (done.returncode, done.stderr) == (0, "")
    assert "canary" not in done.stdout.lower()
    assert labels[:3] == ["exact duplicates", "ledger", "consent"]
    assert labels[3:6] == ["consolidate", "complete", "outcome"]
    assert "exact duplicates  1 removed" in done.stdout
    assert "consent           yes" in done.stdout
    assert "1 of 10 changes" in done.stdout
    assert "outcome           completed" in done.stdout
    assert re.search(r"model {13}3 calls, [\d,]+ prompt tokens \([\d,]+ cached\)", done.stdout)


def test_run_exits_with_0_after_any_orderly_end(ledger, environ):
    for field, value, outcome in (
        ("refinement_threshold", 1.0, "skipped: nothing may be removed"),
        ("system_prompt", "The agent declines.", "declined: the agent declined"),
        ("refinement_prompt", "Delete everything.", "rolled_back: tried to remove"),
    ):
        usual = getattr(ledger, field)
        setattr(ledger, field, value)
        db.session.commit()

        done = refine("run", str(ledger.id), environ=environ)

        assert (done.returncode, done.stderr) == (0, ""), outcome
        assert f"outcome           {outcome}" in done.stdout
        assert "canary" not in done.stdout
        setattr(ledger, field, usual)


def test_run_exits_with_1_after_a_failed_session(ledger, environ):
    ledger.model_id = "test/model"
    db.session.commit()

    done = refine("run", "Ada", environ={**environ, "OPENROUTER_API_KEY": ""})

    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith("refine: the session failed: no API key: set OPENROUTER_API_KEY")
    assert "outcome           failed" in done.stdout


@pytest.mark.slow
def test_ctrl_c_ends_the_session_properly(ledger, environ, model):
    ledger.model_id = "test/model"
    db.session.commit()
    answered = threading.Event()
    model.say("YES").meanwhile(lambda: answered.wait(20))
    running = start("run", "Ada", environ={**environ, "OPENROUTER_BASE_URL": model.base_url})
    eventually(lambda: model.requests)

    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=10)
    answered.set()

    db.session.rollback()
    session = db.session.scalars(db.select(RefinementSession)).one()
    assert (running.returncode, err) == (0, "")
    assert (session.status, session.end_reason) == ("skipped", "stopped on the command line")


def test_run_enqueue_queues_the_session(ledger, environ, redis):
    ledger.name = "Ada [/x]"
    db.session.commit()

    done = refine("run", str(ledger.id), "--enqueue", environ=environ)

    session = RefinementSession.live_of(ledger)
    assert session is not None
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"queued session {session.id} for Ada [/x]; a worker will run it\n"
    assert redis.lrange(f"rq:queue:{RUNS}", 0, -1) == [str(session.id).encode()]


def test_sweep_counts_queued_and_skipped_agents(ledger, environ, redis):
    factories.agent(account=ledger.account, name="Empty [/x]")
    db.session.commit()

    done = refine("sweep", environ=environ)

    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"demo\s+queued\s+1\n", done.stdout)
    assert re.search(r"demo\s+no core memory that a session may change\s+1\n", done.stdout)


def test_reflect_prints_figures_why_it_failed_or_what_it_waits_for(demo, environ):
    ada, eve, bea = (
        factories.agent(name=name, model_id=model_id, account=demo)
        for name, model_id in (("Ada", "rehearsal/a"), ("Eve", "test/model"), ("Bea", "test/model"))
    )
    for agent in (ada, eve):
        factories.entry(agent, "the canary sang")
    factories.extraction(bea).claim()
    db.session.commit()

    reflected, failed, waits = (
        refine("reflect", name, environ={**environ, "OPENROUTER_API_KEY": ""})
        for name in ("Ada", "Eve", "Bea")
    )

    assert reflected.returncode == 0
    assert f"Ada (agent {ada.id}): reflection completed, 1 promoted; 2 calls" in reflected.stdout
    assert "canary" not in reflected.stdout + reflected.stderr
    assert failed.returncode == 1
    assert "refine: the reflection failed: no API key: set OPENROUTER_API_KEY" in failed.stderr
    assert "another task of this agent is running; a worker will run the reflect" in waits.stdout
    assert [task.status for task in factories.live_tasks(bea)] == ["running", "queued"]


def commands(
    command: click.Command = command_line, path: str = "refine"
) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands(below, f"{path} {name}")


def test_every_command_and_option_has_help(app, run):
    for path, command in commands():
        options = [option for option in command.params if isinstance(option, click.Option)]
        described = re.split("\b|Example: ", command.help or "")[0].strip()
        assert described.endswith((".", "`.")), path
        assert [option.name for option in options if not option.help] == [], path

        done = run(*path.split()[1:], "--help", DATABASE_URL="postgresql://127.0.0.1:1/x")
        assert (done.returncode, done.stderr) == (0, ""), path
        assert done.stdout.startswith(f"Usage: {path} "), path
