"""`refine undo` and `refine restore`, as an admin types them."""

import subprocess
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from refine import clock
from refine.extensions import db
from refine.models import Agent, AgentMemory, RefinementSession
from refine.models.runs.session import editing
from refine.refinement import time_machine
from tests import factories, sql
from tests.commands import UNUSED_PORT, refine_here
from tests.factories import text_of
from tests.forked import refine

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
CANARY = "the canary sings at dawn"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Runs a command over what is committed."""

    def run(*arguments: object, **variables: str) -> "subprocess.CompletedProcess[str]":
        db.session.commit()
        words = [str(argument) for argument in arguments]
        given = {**environ, **variables}
        return refine_here(*words, environ=given, stdin="", monkeypatch=monkeypatch, capsys=capsys)

    return run


@pytest.fixture
def session(ledger: Agent) -> RefinementSession:
    """A session of Ada's that discarded the canary."""
    return refined(ledger, canary(ledger))


def refined(owner: Agent, *deleted: AgentMemory, at: datetime | None = None) -> RefinementSession:
    session = RefinementSession.start(owner, at=at)
    for memory in deleted:
        editing.delete(session, memory.id)
    editing.complete(session, "Done.")
    db.session.commit()
    return session


def canary(owner: Agent) -> AgentMemory:
    """The last of the agent's memories from the first."""
    first = db.select(AgentMemory).filter_by(agent_id=owner.id, session_id=None)
    return db.session.scalars(first.order_by(AgentMemory.id.desc()).limit(1)).one()


def problem(done: "subprocess.CompletedProcess[str]", code: int = 1) -> str:
    """The one line with which a command failed."""
    (line,) = done.stderr.splitlines()
    assert done.returncode == code
    assert done.stdout == ""
    return line


# -- undo -----------------------------------------------------------------------------------------


def test_an_undo_says_in_figures_what_it_did(
    ledger: Agent, session: RefinementSession, run: Run
) -> None:
    done = run("undo", session.id)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "undid 1 session of Ada: 1 brought back; 19 → 20 memories, 475 → 481 tokens\n"
    )
    assert not canary(ledger).discarded


def test_an_undo_is_recorded_as_of_the_command_line(
    ledger: Agent, session: RefinementSession, run: Run
) -> None:
    run("undo", session.id)

    record = factories.records(ledger)[-1]
    assert (record.action, record.user_id) == ("memory_refinement_rollback", None)
    assert (record.data["operation"], record.data["by"]) == ("undo", "command line")
    assert session.undone_through == "command line"


def test_a_process_of_its_own_does_the_same(
    ledger: Agent, session: RefinementSession, environ: dict[str, str]
) -> None:
    done = refine("undo", str(session.id).upper(), environ=environ)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("undid 1 session of Ada: 1 brought back;")


@pytest.mark.parametrize("options", [(), ("--and-after",)])
def test_a_preview_says_the_same_and_changes_nothing(
    session: RefinementSession, run: Run, options: tuple[str, ...]
) -> None:
    before = sql.snapshot()

    seen = run("undo", session.id, "--preview", *options)
    unchanged = sql.snapshot() == before
    done = run("undo", session.id, *options)

    assert (seen.returncode, seen.stderr) == (0, "")
    assert seen.stdout == done.stdout.replace("undid", "would undo")
    assert unchanged


def test_an_undo_with_everything_after_it_says_how_many_sessions(
    ledger: Agent, session: RefinementSession, run: Run
) -> None:
    memories = db.session.scalars(ledger.ledger.core()).all()
    second = refined(ledger, memories[0])
    memories[1].set_constitutional(True)
    memories[2].discard()

    done = run("undo", session.id, "--and-after")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "undid 2 sessions of Ada: 3 brought back, 1 no longer constitutional; 17 → 20 memories, "
        "425 → 481 tokens\n"
    )
    assert second.undone_at == session.undone_at is not None


@pytest.mark.parametrize("options", [(), ("--preview",), ("--and-after",)])
def test_undoing_twice_says_when_it_was_done_and_changes_nothing(
    session: RefinementSession, run: Run, options: tuple[str, ...]
) -> None:
    time_machine.undo(session, through="command line", at=NOW)
    db.session.commit()
    before = sql.snapshot()

    again = run("undo", session.id, *options)

    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == (
        f"session {session.id} was undone on 2026-03-04 at 12:00 UTC by the command line; "
        "nothing was changed\n"
    )
    assert sql.snapshot() == before


def test_undoing_what_a_user_undid_says_who_that_was(session: RefinementSession, run: Run) -> None:
    user = factories.user(email="bea@example.org")
    time_machine.undo(session, through="dashboard", user=user, at=NOW)

    again = run("undo", session.id)

    assert "was undone on 2026-03-04 at 12:00 UTC by bea@example.org; nothing" in again.stdout


@pytest.mark.parametrize("options", [(), ("--preview",)])
def test_a_conflict_is_told_in_one_line_with_what_to_do(
    ledger: Agent, session: RefinementSession, run: Run, options: tuple[str, ...]
) -> None:
    canary(ledger).restore()
    db.session.commit()
    record, before = factories.records(ledger)[-1], sql.snapshot()

    line = problem(run("undo", session.id, *options))

    assert line.startswith(
        f"refine: nothing was undone: changed since the session: memory #{canary(ledger).id} "
        f"by record {record.sequence} (memory_restored, "
    )
    assert line.endswith("; you can undo this session and everything after it")
    assert sql.snapshot() == before


def test_after_a_conflict_the_wider_undo_works(
    ledger: Agent, session: RefinementSession, run: Run
) -> None:
    canary(ledger).restore()
    canary(ledger).set_constitutional(True)
    assert run("undo", session.id).returncode == 1

    done = run("undo", session.id, "--and-after")

    assert done.returncode == 0
    assert (canary(ledger).discarded, canary(ledger).constitutional) == (False, False)


def test_a_change_past_the_application_is_told_as_such(
    ledger: Agent, session: RefinementSession, run: Run
) -> None:
    id_ = canary(ledger).id
    db.session.commit()
    sql.tamper(f"UPDATE agent_memories SET tags = '{{voice}}' WHERE id = {id_}")

    lines = [problem(run("undo", session.id, *options)) for options in ((), ("--and-after",))]

    assert lines == [
        f"refine: nothing was undone: changed since the session: memory #{id_} past the application"
    ] * len(lines)


@pytest.mark.parametrize("options", [(), ("--preview",), ("--and-after",)])
def test_a_live_session_is_told_and_nothing_is_changed(
    ledger: Agent, session: RefinementSession, run: Run, options: tuple[str, ...]
) -> None:
    live = RefinementSession.queue(ledger, "cli")
    db.session.commit()
    before = sql.snapshot()

    its_own = problem(run("undo", live.id, *options))
    another = problem(run("undo", session.id, *options))

    assert its_own == "refine: the session is queued; it can be undone when it has ended"
    assert another == (f"refine: session {live.id} of this agent is queued; undo when it has ended")
    assert sql.snapshot() == before


def test_an_agent_whose_key_was_destroyed_has_nothing_to_undo(
    ledger: Agent, session: RefinementSession, run: Run
) -> None:
    ledger.wrapped_key.wrapped, ledger.wrapped_key.destroyed_at = None, clock.now()

    assert "the data key was destroyed" in problem(run("undo", session.id))


# -- restore --------------------------------------------------------------------------------------


def test_a_memory_is_restored_unseen(ledger: Agent, session: RefinementSession, run: Run) -> None:
    id_ = canary(ledger).id

    done = run("restore", id_)

    assert (done.returncode, done.stdout, done.stderr) == (0, f"memory #{id_} of Ada is restored\n", "")
    assert not canary(ledger).discarded
    assert factories.records(ledger)[-1].action == "memory_restored"


def test_restoring_what_is_there_says_so_and_changes_nothing(ledger: Agent, run: Run) -> None:
    id_, before = canary(ledger).id, sql.snapshot()

    done = run("restore", id_)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"memory #{id_} of Ada is not discarded; nothing was changed\n"
    assert sql.snapshot() == before


def test_a_memory_that_was_protected_when_it_was_gone_can_be_restored(
    ledger: Agent, session: RefinementSession, run: Run
) -> None:
    canary(ledger).set_constitutional(True)

    done = run("restore", canary(ledger).id)

    assert done.returncode == 0
    assert (canary(ledger).discarded, canary(ledger).constitutional) == (False, True)


def test_a_restored_memory_can_be_discarded_again_by_the_wider_undo(
    ledger: Agent, run: Run
) -> None:
    gone = factories.memory(ledger, text_of(5), discarded_at=NOW)
    session = refined(ledger)

    restored = run("restore", gone.id)
    undone = run("undo", session.id, "--and-after")

    assert (restored.returncode, undone.returncode) == (0, 0)
    assert db.session.get_one(AgentMemory, gone.id).discarded_at == NOW


def test_a_memory_of_an_erased_agent_cannot_be_restored(
    ledger: Agent, session: RefinementSession, run: Run
) -> None:
    ledger.wrapped_key.wrapped, ledger.wrapped_key.destroyed_at = None, clock.now()

    assert "the data key was destroyed" in problem(run("restore", canary(ledger).id))


# -- what they say --------------------------------------------------------------------------------


def test_no_command_says_what_is_in_a_memory(
    ledger: Agent, session: RefinementSession, run: Run
) -> None:
    ledger.name = "Ada [/x] [red]"
    id_ = canary(ledger).id

    said = [
        run("undo", session.id, "--preview"),
        run("restore", id_),
        run("restore", id_),
        run("undo", session.id),
        run("undo", session.id, "--and-after"),
        run("undo", session.id),
    ]

    assert [done.returncode for done in said] == [0, 0, 0, 1, 0, 0]
    assert not any("canary" in done.stdout + done.stderr for done in said)
    assert "of Ada [/x] [red]" in said[0].stdout
    assert f"memory #{id_} of Ada [/x] [red] is restored\n" == said[1].stdout


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (("undo",), "Missing argument 'SESSION'", 2),
        (("undo", "x"), "'x' is not a valid UUID", 2),
        (("undo", "7"), "'7' is not a valid UUID", 2),
        (("undo", ""), "'' is not a valid UUID", 2),
        (("undo", str(uuid.UUID(int=7)), "x"), "unexpected extra argument", 2),
        (("undo", str(uuid.UUID(int=7)), "--all"), "No such option", 2),
        (("undo", str(uuid.UUID(int=7))), f"there is no session {uuid.UUID(int=7)}", 1),
        (("undo", str(uuid.UUID(int=7)), "--preview"), "there is no session", 1),
        (("restore",), "Missing argument 'MEMORY'", 2),
        (("restore", "x"), "'x' is not a valid integer", 2),
        (("restore", "#7"), "'#7' is not a valid integer", 2),
        (("restore", "0"), "0 is not in the range", 2),
        (("restore", "9" * 30), "is not in the range", 2),
        (("restore", "1", "2"), "unexpected extra argument", 2),
        (("restore", "999999999"), "there is no memory #999999999", 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_refused_in_one_line_and_changes_nothing(
    ledger: Agent, run: Run, arguments: tuple[str, ...], says: str, code: int
) -> None:
    before = sql.snapshot()

    line = problem(run(*arguments), code)

    assert line.startswith("refine: ")
    assert says in line
    assert sql.snapshot() == before


@pytest.mark.parametrize("arguments", [("undo", str(uuid.UUID(int=7))), ("restore", "7")])
@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("DATABASE_URL", f"postgresql://127.0.0.1:{UNUSED_PORT}/x", "PostgreSQL does not answer"),
        ("REFINE_ENCRYPTION_KEYS", "A" * 43 + "=", "does not hold the key"),
    ],
)
def test_without_its_database_or_its_keys_neither_does_anything(
    ledger: Agent, run: Run, arguments: tuple[str, ...], variable: str, value: str, says: str
) -> None:
    before = sql.snapshot()

    line = problem(run(*arguments, **{variable: value}))

    assert says in line
    assert sql.snapshot() == before


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            "undo",
            ["[OPTIONS] SESSION", "--and-after", "--preview", "Undoing twice changes nothing"],
        ),
        ("restore", ["[OPTIONS] MEMORY", "Bring back the discarded memory", "unseen"]),
    ],
)
def test_help_is_given_where_it_is_asked_for(run: Run, command: str, words: list[str]) -> None:
    asked = run(command, "--help", DATABASE_URL=f"postgresql://127.0.0.1:{UNUSED_PORT}/x")

    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.startswith(f"Usage: refine {command} ")
    assert [word for word in words if word not in asked.stdout] == []
