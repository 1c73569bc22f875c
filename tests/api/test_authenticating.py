"""Authentication: a valid token of the right kind, of an active agent that is not erased."""

from datetime import UTC, datetime, timedelta

import pytest

from refine.extensions import db
from tests import factories, sql
from tests.api.conftest import token_of


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic {}", "{}", "Token {}"])
def test_rejects_other_authorization_headers(world, header):
    headers = {"Authorization": header.format(world.own.secret)}

    answer = world.nobody.get("/context", headers=headers)

    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="refine"'


@pytest.mark.parametrize(
    ("by", "change"), [(sql.run, "paused = true"), (sql.rewrite, "account_id = {}")]
)
def test_rejects_the_token_of_an_agent_that_was_changed_outside_or_is_another_accounts(
    world, by, change
):
    elsewhere = factories.account()
    db.session.commit()
    by(f"UPDATE agents SET {change.format(elsewhere.id)} WHERE id = {world.agent.id}")

    assert world.own.get("/tools").status_code == 401


def test_rejects_the_token_of_an_erased_agent(world):
    factories.erase(world.agent)
    db.session.commit()

    answer = world.own.get("/tools")

    assert answer.status_code == 403
    assert answer.json["detail"] == "The agent's content was permanently erased."


def test_notes_the_last_use_of_a_token_once_a_minute(world):
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
