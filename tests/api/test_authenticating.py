"""Who is let in: the right kind of a valid token, of an agent that is active and not erased."""

from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import ApiToken
from tests import factories, sql
from tests.api.conftest import World, bearing, token_of
from tests.api.test_every_operation import is_problem


def test_rejects_the_other_kind_of_token(world: World) -> None:
    answers = {
        "an agent token": world.platform.get("/context"),
        "a platform token": world.own.get("/agents"),
    }

    for needed, answer in answers.items():
        assert answer.status_code == 403
        assert is_problem(answer)
        assert answer.json["detail"] == f"This operation needs {needed}."


def test_rejects_a_token_that_was_never_minted(app: Flask, world: World) -> None:
    _, secret = ApiToken.mint(account=world.account, agent=world.agent)
    db.session.rollback()

    answer = bearing(app, secret).get("/context")

    assert answer.status_code == 401
    assert is_problem(answer)
    assert answer.json["detail"] == "This token is unknown."
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="refine", error="invalid_token"'


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic {}", "{}", "Token {}"])
def test_rejects_other_authorization_headers(world: World, header: str) -> None:
    headers = {"Authorization": header.format(world.own.secret)}

    answer = world.nobody.get("/context", headers=headers)

    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="refine"'


def test_accepts_a_scheme_in_any_case_and_blanks(world: World) -> None:
    headers = {"Authorization": f"bearer  {world.own.secret} "}

    assert world.nobody.get("/tools", headers=headers).status_code == 200


def test_rejects_the_token_of_an_agent_whose_row_was_changed(world: World) -> None:
    sql.run(f"UPDATE agents SET paused = true WHERE id = {world.agent.id}")

    assert world.own.get("/tools").status_code == 401


def test_rejects_the_token_of_another_accounts_agent(world: World) -> None:
    elsewhere = factories.account()
    db.session.commit()
    sql.rewrite(f"UPDATE agents SET account_id = {elsewhere.id} WHERE id = {world.agent.id}")

    assert world.own.get("/tools").status_code == 401


def test_rejects_the_token_of_an_erased_agent(world: World) -> None:
    factories.erase(world.agent)
    db.session.commit()

    answer = world.own.get("/tools")

    assert answer.status_code == 403
    assert answer.json["detail"] == "The agent's content was permanently erased."


def test_notes_the_last_use_of_a_token_once_a_minute(world: World) -> None:
    assert token_of(world.own).last_used_at is None

    world.own.get("/context")
    first = token_of(world.own).last_used_at
    world.own.get("/context")
    second = token_of(world.own).last_used_at
    token_of(world.own).last_used_at = datetime.now(UTC) - timedelta(minutes=2)
    db.session.commit()
    world.own.get("/context")

    assert first is not None
    assert second == first
    assert (token_of(world.own).last_used_at or first) > first
