"""Every operation, called with every kind of valid and invalid token."""

import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from werkzeug.test import TestResponse

from refine.api.routing import OPERATIONS, Operation
from refine.extensions import db
from refine.models import ApiToken
from tests import factories
from tests.api.conftest import Program, World, bearing, files_called, token_of
from tests.web.conftest import Browser, browser_of, ended_session, person

CLOSED = [each for each in OPERATIONS if each.bearer is not None]
OF_THINGS = [each for each in CLOSED if "<int" in each.rule or "<uuid" in each.rule]

OF_PAGES = re.compile(r"/refine/web/|/flask_login/")

SENT = {
    "save_memory": {"content": "said", "memory_type": "core"},
    "send_conversation": {"messages": [{"role": "user", "content": "hello"}]},
    "add_agent": {"name": "New", "model_id": "rehearsal/new"},
    "change_agent": {"paused": True},
    "add_webhook": {"url": "https://example.org/refine"},
    "correct_memory": {"content": "said better"},
    "import_rows": {"source": "elsewhere", "rows": [{"content": "brought"}]},
}


def name_of(each: Operation) -> str:
    return f"{each.method} {each.path}"


pytestmark = pytest.mark.slow


def path_of(each: Operation, world: World) -> str:
    """A path to a row of the first agent."""
    agent = world.agent
    things: dict[str, Callable[[], object]] = {
        "<name>": lambda: "save_memory",
        "<int:agent_id>": lambda: agent.id,
        "<int:memory_id>": lambda: factories.entry(agent).id,
        "<int:token_id>": lambda: token_of(world.own).id,
        "<int:webhook_id>": lambda: factories.endpoint(agent.account).id,
        "<uuid:session_id>": lambda: (
            ended_session(agent, factories.ledger(agent, *[25] * 20)[0]).id
        ),
        "<uuid:grant_id>": lambda: factories.live_grant(agent, person(account=agent.account)).id,
        "<uuid:conversation_id>": lambda: factories.extraction(agent).id,
    }
    path = each.rule
    for placeholder, thing in things.items():
        if placeholder in path:
            path = path.replace(placeholder, str(thing()))
    db.session.commit()
    return path


def ask(each: Operation, by: Program | Browser, path: str) -> TestResponse:
    sent = {} if each.body is None else {"json": SENT.get(each.view.__name__, {})}
    return by.open(path, method=each.method, **sent)


def right(each: Operation, world: World) -> Program:
    return world.own if each.bearer == "agent" else world.platform


def is_problem(answer: TestResponse) -> bool:
    body = answer.json
    return (
        answer.mimetype == "application/problem+json"
        and body["status"] == answer.status_code
        and {"type", "title", "detail"} <= body.keys()
    )


@pytest.mark.parametrize("each", CLOSED, ids=name_of)
def test_accepts_the_right_token_and_runs_no_code_of_the_pages(each, world):
    path = path_of(each, world)

    with files_called() as files:
        answers = [ask(each, program, path) for program in (right(each, world), world.nobody)]

    assert answers[0].status_code in {each.status, *(each.other or ())}
    assert any(file.endswith("/refine/api/routing.py") for file in files)
    assert not [file for file in files if OF_PAGES.search(file)]
    for answer in answers:
        assert "Set-Cookie" not in answer.headers
        assert "Cookie" not in answer.vary


@pytest.mark.parametrize("each", CLOSED, ids=name_of)
def test_rejects_everything_but_a_valid_token_of_the_right_kind(each, world, app):
    path, admin = path_of(each, world), person(site_admin=True)
    valid = str(right(each, world).secret)
    owner = {"agent": world.agent} if each.bearer == "agent" else {}
    past = datetime.now(UTC) - timedelta(seconds=1)
    _, expired = ApiToken.mint(account=world.account, expires_at=past, **owner)
    dead, revoked = ApiToken.mint(account=world.account, **owner)
    dead.revoke()
    db.session.commit()
    _, never = ApiToken.mint(account=world.account, **owner)
    db.session.rollback()
    forged = {
        "cut off": valid[:-1],
        "mistyped": valid[:-9] + ("A" if valid[-9] != "A" else "B") + valid[-8:],
        "never minted": never,
        "expired": expired,
        "revoked": revoked,
        "hash": ApiToken.of_secret(valid).token_hash,
    }
    browser = browser_of(app)
    assert browser.sign_in(admin.email).status_code == 303

    answers = {why: ask(each, bearing(app, secret), path) for why, secret in forged.items()}
    answers["none"] = ask(each, world.nobody, path)
    answers["a cookie"] = ask(each, browser, f"/api/v1{path}")

    assert {answer.status_code for answer in answers.values()} == {401}
    said = {why: answer.json["detail"] for why, answer in answers.items()}
    assert said["cut off"] != said["mistyped"] == said["never minted"] != said["expired"]
    for answer in answers.values():
        assert is_problem(answer)
        assert answer.headers["WWW-Authenticate"].startswith('Bearer realm="refine"')
        assert valid not in answer.text

    other_kind = ask(each, world.platform if each.bearer == "agent" else world.own, path)
    world.agent.active = False
    db.session.commit()
    for answer in (other_kind, ask(each, world.own, path)):
        assert answer.status_code == 403
        assert is_problem(answer)


@pytest.mark.parametrize("each", OF_THINGS, ids=name_of)
def test_things_of_others_are_not_found(each, world):
    path = path_of(each, world)
    others = [world.stranger, world.sibling]
    if each.bearer == "platform":
        others = [world.foreign_platform]
    missing = re.sub(r"<int:\w+>", str(2**63 - 1), each.rule)
    missing = re.sub(r"<uuid:\w+>", str(uuid.uuid4()), missing)

    for other in others:
        answer = ask(each, other, path)

        assert answer.status_code == 404
        assert answer.json == ask(each, other, missing).json
    assert ask(each, right(each, world), path).status_code < 300


def test_pages_ignore_tokens(app, world):
    for program in (world.own, world.platform):
        for path in ("/", "/agents", "/audit", "/tokens", "/audit/export.jsonl"):
            headers = {"Authorization": f"Bearer {program.secret}"}

            answer = browser_of(app).get(path, headers=headers)

            assert answer.status_code == 303
            assert answer.headers["Location"].startswith("/sign-in")
