"""Every operation, called with every kind of valid and invalid token."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from refine.api.routing import OPERATIONS, Operation
from refine.extensions import db
from refine.models import ApiToken
from refine.models.clients.api_token import is_well_formed
from tests import factories
from tests.api.conftest import Everybody, Program, bearing, token_of
from tests.web.conftest import Browser, browser_of, ended_session, person

CLOSED = [each for each in OPERATIONS if each.bearer is not None]
OF_THINGS = [each for each in CLOSED if "<int" in each.rule or "<uuid" in each.rule]

SENT = {
    "save": {"content": "said", "memory_type": "core"},
    "hand_over": {"messages": [{"role": "user", "content": "hello"}]},
    "add": {"name": "New", "model_id": "rehearsal/new"},
    "change": {"paused": True},
}


def name_of(each: Operation) -> str:
    return f"{each.method} {each.path}"


pytestmark = pytest.mark.slow


def path_of(each: Operation, everybody: Everybody) -> str:
    """The address of something of the first agent's."""
    path = each.rule.replace("<name>", "save_memory")
    if "<int:agent_id>" in path:
        path = path.replace("<int:agent_id>", str(everybody.agent.id))
    if "<int:token_id>" in path:
        path = path.replace("<int:token_id>", str(token_of(everybody.own).id))
    if "<uuid:session_id>" in path:
        memories = factories.ledger(everybody.agent, *[25] * 20)
        path = path.replace(
            "<uuid:session_id>", str(ended_session(everybody.agent, memories[0]).id)
        )
    if "<uuid:grant_id>" in path:
        reader = person(account=everybody.account)
        path = path.replace(
            "<uuid:grant_id>", str(factories.live_grant(everybody.agent, reader).id)
        )
    db.session.commit()
    return path


def ask(each: Operation, by: Program | Browser, path: str) -> TestResponse:
    sent = {} if each.body is None else {"json": SENT.get(each.view.__name__, {})}
    return by.open(path, method=each.method, **sent)


def right(each: Operation, everybody: Everybody) -> Program:
    return everybody.own if each.bearer == "agent" else everybody.platform


def wrong(each: Operation, everybody: Everybody) -> Program:
    return everybody.platform if each.bearer == "agent" else everybody.own


def is_problem(answer: TestResponse) -> bool:
    body = answer.json
    return (
        answer.mimetype == "application/problem+json"
        and body["status"] == answer.status_code
        and {"type", "title", "detail"} <= body.keys()
    )


def test_every_route_of_the_api_is_an_operation(app: Flask) -> None:
    routes = {
        (method, rule.rule.removeprefix("/api/v1"))
        for rule in app.url_map.iter_rules()
        if rule.rule.startswith("/api")
        for method in (rule.methods or set()) - {"HEAD"}
    }

    assert routes == {(each.method, each.rule) for each in OPERATIONS}
    assert [name_of(each) for each in OPERATIONS if each.bearer is None] == ["GET /openapi.json"]


@pytest.mark.parametrize("each", CLOSED, ids=name_of)
def test_accepts_the_right_token(each: Operation, everybody: Everybody) -> None:
    answer = ask(each, right(each, everybody), path_of(each, everybody))

    assert answer.status_code in each.answers
    assert answer.status_code < 300
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("each", CLOSED, ids=name_of)
def test_rejects_tokens_that_are_not_valid(
    each: Operation, everybody: Everybody, app: Flask
) -> None:
    path = path_of(each, everybody)
    valid = right(each, everybody).secret
    assert valid is not None
    owner = {"agent": everybody.agent} if each.bearer == "agent" else {}
    past = datetime.now(UTC) - timedelta(seconds=1)
    _, expired = ApiToken.mint(account=everybody.account, expires_at=past, **owner)
    dead, revoked = ApiToken.mint(account=everybody.account, **owner)
    dead.revoke()
    db.session.commit()
    _, never = ApiToken.mint(account=everybody.account, **owner)
    db.session.rollback()
    forged = {
        "none": None,
        "cut off": valid[:-1],
        "mistyped": valid[:-9] + ("A" if valid[-9] != "A" else "B") + valid[-8:],
        "never minted": never,
        "expired": expired,
        "revoked": revoked,
        "hash": ApiToken.of_secret(valid).token_hash,
    }

    answers = {why: ask(each, bearing(app, secret), path) for why, secret in forged.items()}

    assert {why: answer.status_code for why, answer in answers.items()} == dict.fromkeys(
        forged, 401
    )
    for answer in answers.values():
        assert is_problem(answer)
        assert answer.headers["WWW-Authenticate"].startswith('Bearer realm="refine"')
        assert valid not in answer.text


@pytest.mark.parametrize("each", CLOSED, ids=name_of)
@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic {}", "{}", "Token {}"])
def test_rejects_other_authorization_headers(
    each: Operation, header: str, everybody: Everybody
) -> None:
    secret = right(each, everybody).secret
    asked = everybody.nobody.open(
        path_of(each, everybody),
        method=each.method,
        headers={"Authorization": header.format(secret)},
    )

    assert asked.status_code == 401


@pytest.mark.parametrize("each", CLOSED, ids=name_of)
def test_rejects_the_other_kind_of_token(each: Operation, everybody: Everybody) -> None:
    answer = ask(each, wrong(each, everybody), path_of(each, everybody))

    assert answer.status_code == 403
    assert is_problem(answer)


@pytest.mark.parametrize("each", OF_THINGS, ids=name_of)
def test_things_of_others_are_not_found(each: Operation, everybody: Everybody) -> None:
    path = path_of(each, everybody)
    others = [everybody.stranger, everybody.sibling]
    if each.bearer == "platform":
        others = [everybody.foreign_platform]
    missing = each.rule
    for what in ("agent_id", "token_id"):
        missing = missing.replace(f"<int:{what}>", str(2**63 - 1))
    for what in ("session_id", "grant_id"):
        missing = missing.replace(f"<uuid:{what}>", str(uuid.uuid4()))

    for other in others:
        answer = ask(each, other, path)

        assert answer.status_code == 404
        assert answer.json == ask(each, other, missing).json
    assert ask(each, right(each, everybody), path).status_code < 300


@pytest.mark.parametrize("each", CLOSED, ids=name_of)
def test_ignores_the_cookie_of_the_dashboard(
    each: Operation, everybody: Everybody, app: Flask
) -> None:
    path = path_of(each, everybody)
    admin = person(site_admin=True)
    db.session.commit()
    browser = browser_of(app)
    assert browser.sign_in(admin.email).status_code == 303

    answer = ask(each, browser, f"/api/v1{path}")

    assert answer.status_code == 401


@pytest.mark.parametrize("path", ["/", "/agents", "/audit", "/tokens", "/audit/export.csv"])
def test_pages_ignore_tokens(app: Flask, everybody: Everybody, path: str) -> None:
    for program in (everybody.own, everybody.platform):
        headers = {"Authorization": f"Bearer {program.secret}"}

        answer = browser_of(app).get(path, headers=headers)

        assert answer.status_code == 303
        assert answer.headers["Location"].startswith("/sign-in")


@pytest.mark.parametrize("each", CLOSED, ids=name_of)
def test_rejects_the_token_of_an_inactive_agent(each: Operation, everybody: Everybody) -> None:
    path = path_of(each, everybody)
    everybody.agent.active = False
    db.session.commit()

    answer = ask(each, everybody.own, path)

    assert answer.status_code == 403


def test_rejects_the_token_of_an_erased_agent(everybody: Everybody) -> None:
    key = everybody.agent.wrapped_key
    key.wrapped, key.destroyed_at = None, datetime.now(UTC)
    db.session.commit()

    answer = everybody.own.get("/context")

    assert answer.status_code == 403
    assert answer.json["detail"] == "The agent's content was erased for good."


def test_rejects_a_token_right_after_it_was_revoked(everybody: Everybody) -> None:
    before = everybody.own.get("/context")
    token_of(everybody.own).revoke()
    db.session.commit()

    after = everybody.own.get("/context")

    assert (before.status_code, after.status_code) == (200, 401)


def test_notes_the_last_use_of_a_token_once_a_minute(everybody: Everybody) -> None:
    assert token_of(everybody.own).last_used_at is None

    everybody.own.get("/context")
    first = token_of(everybody.own).last_used_at
    everybody.own.get("/context")
    second = token_of(everybody.own).last_used_at
    token_of(everybody.own).last_used_at = datetime.now(UTC) - timedelta(minutes=2)
    db.session.commit()
    everybody.own.get("/context")

    assert first is not None
    assert second == first
    assert (token_of(everybody.own).last_used_at or first) > first


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("GET", "/", 404, None),
        ("GET", "/memory", 404, None),
        ("GET", "/agents/0x1/tokens", 404, None),
        ("DELETE", f"/grants/{'9' * 30}", 404, None),
        ("POST", "/sessions/7/undo", 404, None),
        ("PUT", "/memories", 405, {"GET", "HEAD", "POST"}),
        ("OPTIONS", "/memories", 405, {"GET", "HEAD", "POST"}),
        ("GET", "/tools/save_memory/calls", 405, {"POST"}),
    ],
)
def test_unknown_paths_and_methods_are_problems(
    everybody: Everybody, method: str, path: str, status: int, allowed: set[str] | None
) -> None:
    for program in (everybody.nobody, everybody.own):
        answer = program.open(path, method=method)

        assert answer.status_code == status
        assert is_problem(answer)
        if allowed is not None:
            assert set(answer.headers["Allow"].split(", ")) == allowed


def test_tokens_have_the_format_of_leak_scanners(app: Flask, everybody: Everybody) -> None:
    for program in (everybody.own, everybody.platform):
        assert program.secret is not None
        assert is_well_formed(program.secret)
