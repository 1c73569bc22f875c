"""Bad input to every command: one line of error, and nothing is changed."""

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from cryptography.fernet import Fernet
from flask import Flask

from refine.extensions import db
from refine.models import RefinementSession
from tests import factories, sql
from tests.cli.conftest import problem, row_counts
from tests.commands import UNUSED_PORT, refine
from tests.transfer.files import FIXTURES

OTHER = "A" * 43 + "="
NOWHERE = f"127.0.0.1:{UNUSED_PORT}"
SEVENTH = str(uuid.UUID(int=7))
MEM0 = str(FIXTURES / "mem0.json")
PASSWORD = ("--password-stdin",)
USER = ("user", "add", "ada@example.org", "--account", "demo", *PASSWORD)
GOOD_PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class Refusal:
    arguments: tuple[str | bytes, ...]
    says: str
    code: int = 1
    stdin: str | bytes = GOOD_PASSWORD
    variables: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        words = [word if isinstance(word, str) else repr(word) for word in self.arguments]
        return " ".join([*words, *(f"{name}={value}" for name, value in self.variables.items())])


def usage(*arguments: str | bytes, says: str) -> Refusal:
    return Refusal(arguments, says, code=2)


def setting(name: str, value: str, says: str) -> Refusal:
    return Refusal(("agent", "list"), says, variables={name: value})


REFUSALS = [
    # wrong usage
    usage("refin", says="No such command 'refin'"),
    usage("--colour", says="No such option"),
    usage("agent", "add", "Ada", "--account", "demo", says="Missing option '--model'"),
    usage("user", "add", "a@b.c", "--account", "demo", says="Missing option '--password-stdin'"),
    usage("token", "add", says="give --agent NAME, --platform with --account SLUG, or --wall"),
    usage("lock", "--reason", "left", says="give USER, or --account SLUG"),
    usage("lock", "x", "--reason", "my words", says="'my words' is not one of 'lost_device'"),
    usage("unlock", "x", "--account", "demo", says="give USER, or --account SLUG"),
    usage("agent", "set", "Ada", says="give at least one option, such as --budget 6000"),
    usage("agent", "list", "--limit", "0", says="0 is not in the range"),
    *(
        usage("session", "list", "--since", time, says=f"{time!r} does not match the formats")
        for time in ("", "monday", "2026-02-30", "2026-03-01T25:00")
    ),
    # missing or ambiguous things
    Refusal(("run", "Nobody"), "no agent is called 'Nobody'"),
    Refusal(("run", b"\xff\xfe"), "not valid UTF-8"),
    Refusal(("run", "Twin"), "several agents are called 'Twin'; use an id: "),
    Refusal(("token", "add", "--platform", "--account", "x"), "no account has the slug 'x'"),
    Refusal(("token", "add", "--wall", "--account", "x"), "no account has the slug 'x'"),
    Refusal(("token", "revoke", "refine_agent_x"), "no such token"),
    Refusal(("token", "revoke", "-"), "no token given", stdin=""),
    Refusal(("run", "Idle"), "the agent is not active, so no session can run"),
    Refusal(("run", "Busy"), "`refine worker --burst` runs all queued sessions"),
    Refusal(("run", "--enqueue", "Busy"), "the agent already has a live session, queued: "),
    Refusal(("session", "list", "--agent", "Twin"), "several agents are called 'Twin'; use an id"),
    Refusal(("session", "list", "--account", "x"), "no account has the slug 'x'"),
    Refusal(("session", "stop", SEVENTH), f"there is no session {SEVENTH}"),
    Refusal(("user", "reset", "x"), "no user is called 'x'"),
    Refusal(("lock", "x", "--reason", "left"), "no user is called 'x'"),
    Refusal(("unlock", "--account", "x"), "no account has the slug 'x'"),
    Refusal(("unlock", "taken@example.org"), "it is not locked"),
    # values
    Refusal(("agent", "set", "Idle", "--budget", "0"), "core_token_budget must be a whole number"),
    Refusal(("account", "add", "Demo"), "the slug 'demo' is reserved for the demo account"),
    Refusal(
        ("agent", "add", b"\xff", "--account", "demo", "--model", "m"), "must be valid Unicode"
    ),
    Refusal(("user", "add", "TAKEN@example.org", "--account", "demo", *PASSWORD), "already a user"),
    Refusal(USER, "the password must have 10 to 1,000 characters", stdin="short\n"),
    Refusal(USER, "not valid UTF-8", stdin=b"\xff\xfe correct horse"),
    # audit, keys, undo, import, export
    usage("audit", "verify", "--anchor", "/no/such/file", says="No such file or directory"),
    usage("undo", "x", says="'x' is not a valid UUID"),
    Refusal(("undo", SEVENTH), f"there is no session {SEVENTH}"),
    Refusal(("import", "Nobody", MEM0, "--format", "mem0"), "no agent is called 'Nobody'"),
    usage("import", "Idle", MEM0, "--format", "zep", says="'zep' is not one of 'refine', 'letta'"),
    usage("import", "Idle", MEM0, "--format", "mem0", "--as", "vow", says="'vow' is not one of"),
    Refusal(("export", "Nobody"), "no agent is called 'Nobody'"),
    # settings (each bad value is tested with Settings itself)
    setting("REFINE_ENCRYPTION_KEYS", "", "REFINE_ENCRYPTION_KEYS must be set"),
    setting("DATABASE_URL", f"postgresql://u:secret@{NOWHERE}/x", "nothing listens at the address"),
    *(
        Refusal(arguments, "does not hold the key", variables={"REFINE_ENCRYPTION_KEYS": OTHER})
        for arguments in (("run", "--enqueue", "Idle"), ("keys", "rotate"), ("undo", SEVENTH), USER)
    ),
]


@pytest.fixture
def populated(app: Flask) -> Iterator[None]:
    account = factories.account(slug="demo", name="Demo")
    factories.user(account=account, email="taken@example.org")
    factories.agent("one memory", account=account, name="Twin")
    factories.agent("another", account=account, name="Twin")
    factories.agent("a third", account=account, name="Idle", active=False)
    busy = factories.agent("a fourth", account=account, name="Busy")
    RefinementSession.queue(busy, "cli")
    db.session.commit()
    return


def test_bad_input_is_refused_in_one_line_and_changes_nothing(populated, run):
    before = row_counts()

    for refusal in REFUSALS:
        done = run(*refusal.arguments, stdin=refusal.stdin, **refusal.variables)

        assert (done.returncode, done.stdout) == (refusal.code, ""), f"{refusal}: {done}"
        assert len(done.stderr.splitlines()) == 1, f"{refusal}: {done.stderr}"
        assert done.stderr.startswith("refine: "), refusal
        assert refusal.says in done.stderr, f"{refusal}: {done.stderr}"
        assert "secret" not in done.stderr, refusal
        assert row_counts() == before, refusal


def raise_while_tidying_up() -> None:
    """Raise what psycopg raises if Ctrl-C comes in the middle of a statement."""
    try:
        raise KeyboardInterrupt
    finally:
        raise psycopg.ProgrammingError("the connection is in use")


def test_ctrl_c_behind_a_drivers_error_is_an_interruption(monkeypatch, run_under):
    monkeypatch.setattr(Fernet, "generate_key", raise_while_tidying_up)

    done = run_under({}, "keys", "new")

    assert (done.returncode, done.stderr) == (1, "refine: interrupted\n")


def test_an_unexpected_error_is_named_by_its_class(monkeypatch, run_under):
    def fail() -> bytes:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(Fernet, "generate_key", fail)

    done = run_under({}, "keys", "new")

    assert done.returncode == 1
    said = "refine: internal error (ZeroDivisionError); set REFINE_LOG_LEVEL=DEBUG for details\n"
    assert done.stderr == said


def test_an_error_of_the_system_says_what_is_wrong(tmp_path, monkeypatch, run_under):
    file = tmp_path / "file"
    file.touch()
    with suppress(OSError), Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        disk_is_full = run_under({}, "keys", "new")

    no_folder = refine("up", environ={"REFINE_DATA_DIR": str(file / "sub")})

    assert (disk_is_full.returncode, no_folder.returncode) == (1, 1)
    assert disk_is_full.stderr == "refine: No space left on device\n"
    assert no_folder.stderr == f"refine: {file / 'sub'}: Not a directory\n"


def test_a_database_error_has_no_traceback(app, run):
    sql.run("ALTER TABLE accounts RENAME COLUMN schedule TO away")

    try:
        done = run("agent", "list")
    finally:
        sql.run("ALTER TABLE accounts RENAME COLUMN away TO schedule")

    assert problem(done).startswith("the database reported an error: (UndefinedColumn)")


def test_a_database_without_tables_says_what_to_do(no_tables, run):
    for arguments in (
        *(("agent", "list"), ("run", "Ada"), ("sweep",), ("audit", "verify")),
        ("account", "add", "New"),
    ):
        done = run(*arguments, DATABASE_URL=no_tables)

        expected = "refine: the database has no tables yet; run `refine db upgrade`\n"
        assert (done.returncode, done.stderr) == (1, expected), arguments


@pytest.mark.slow
def test_db_upgrade_creates_the_tables_and_can_be_repeated(no_tables, run):
    upgraded = [run("db", "upgrade", DATABASE_URL=no_tables).stdout for _ in range(2)]

    assert upgraded == ["the database is up to date\n"] * 2
    assert run("agent", "list", DATABASE_URL=no_tables).stdout.startswith("no agents;")
