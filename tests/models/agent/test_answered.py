"""Whether a server answers for an agent's model."""

from dataclasses import replace

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import Agent
from refine.models.agent.eligibility import NO_KEY, NOT_REHEARSED, unanswered, why_unanswered
from refine.models.people.account import DEMO_SLUG
from tests import factories


@pytest.mark.parametrize(
    ("key", "rehearsal", "expected"),
    [
        ("a key", False, {"rehearsal/own": NOT_REHEARSED}),
        ("a key", True, {"rehearsal/own": NOT_REHEARSED}),
        (None, False, {"test/own": NO_KEY, "test/demo": NO_KEY, "rehearsal/own": NO_KEY}),
        (None, True, {"test/own": NO_KEY, "test/demo": NO_KEY}),
    ],
)
def test_python_and_sql_say_alike_who_is_not_answered(
    app: Flask,
    monkeypatch: pytest.MonkeyPatch,
    key: str | None,
    rehearsal: bool,
    expected: dict[str, str],
) -> None:
    kept = app.extensions["refine.settings"]
    now = replace(kept, openrouter_api_key=key, rehearsal=rehearsal)
    monkeypatch.setitem(app.extensions, "refine.settings", now)
    for slug in (DEMO_SLUG, "own"):
        account = factories.account(slug=slug)
        for author in ("test", "rehearsal"):
            factories.agent(account=account, model_id=f"{author}/{slug}")
    db.session.flush()

    in_python = {
        agent.model_id: why
        for agent in db.session.scalars(db.select(Agent))
        if (why := why_unanswered(agent)) is not None
    }
    in_sql = {
        model_id: why
        for why, is_so in unanswered().items()
        for model_id in db.session.scalars(db.select(Agent.model_id).where(is_so))
    }

    assert in_python == in_sql == expected
