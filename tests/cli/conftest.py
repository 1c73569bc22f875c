"""What the commands' tests share."""

import subprocess
from collections.abc import Callable, Iterator

import pytest
from flask import Flask
from sqlalchemy import func, literal, select, union_all

from refine import create_app, logs
from refine.cli import context
from refine.extensions import db
from refine.models import Account, Agent
from refine.settings import Settings
from tests import factories

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="package", autouse=True)
def _built_once(environ: dict[str, str]) -> Iterator[None]:
    """Let commands with the same settings share an application: building one compiles every URL."""
    built: list[tuple[Settings, Flask]] = []

    def build(settings: Settings) -> Flask:
        for known, app in built:
            if known == settings:
                logs.configure(settings.log_level)
                return app
        built.append((settings, create_app(settings)))
        return built[-1][1]

    build(Settings.from_environ(environ))  # before commands are forked
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "create_app", build)
        yield


@pytest.fixture
def ledger(app: Flask) -> Agent:
    """An agent of the rehearsal model with 20 memories, one of them a canary, committed."""
    account = factories.account(slug="demo", name="Demo")
    owner = factories.agent(account=account, name="Ada", model_id="rehearsal/ada")
    factories.ledger(owner, *[25] * 18)
    says_it_too = "at dawn the canary sings, and all of the others in the aviary listen quietly to"
    factories.memory(owner, f"{says_it_too} what it sings now")
    factories.memory(owner, "the canary sings at dawn")
    db.session.commit()
    return owner


@pytest.fixture
def demo(app: Flask) -> Account:
    account = factories.account(slug="demo", name="Demo")
    db.session.commit()
    return account


@pytest.fixture
def run(environ: dict[str, str], run_under: Run) -> Run:
    """Run a command in this process on what is committed; variables override the environment."""

    def run(
        *arguments: object, stdin: str | bytes = "", **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        db.session.commit()
        words = [each if isinstance(each, bytes) else str(each) for each in arguments]
        return run_under({**environ, **variables}, *words, stdin=stdin)

    return run


@pytest.fixture
def no_tables(fresh: dict[str, str]) -> str:
    """The URL of an empty database."""
    return fresh["DATABASE_URL"]


def problem(done: "subprocess.CompletedProcess[str]", code: int = 1) -> str:
    """Return the only line that a failed command printed, without "refine: "."""
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (code, "")
    assert line.startswith("refine: ")
    return line.removeprefix("refine: ")


def row_counts() -> dict[str, int]:
    """Return the number of committed rows of every table."""
    db.session.rollback()
    every = (
        select(literal(table.name), func.count()).select_from(table)
        for table in db.metadata.sorted_tables
    )
    counts = dict(db.session.execute(union_all(*every)).all())
    db.session.commit()
    return counts
