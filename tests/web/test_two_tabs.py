"""Forms that two people, or two tabs, have open at once: nothing is overwritten silently."""

import re
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from typing import Any

import pytest

from refine.extensions import db
from refine.models import Agent, User
from refine.models.agent import configuring
from refine.web.forms import version
from tests import factories
from tests.web.conftest import records, words_of

_VERSION = '<form method="post" action="{}".*?name="drawn_from" value="([^"]+)"'


@pytest.fixture
def agent(admin: User) -> Agent:
    made = factories.agent("one", account=admin.account, name="Ada", refinement_prompt="Gently.")
    db.session.commit()
    return made


def drawn(page: str, action: str) -> dict[str, str]:
    """What the first form with this action sends by itself."""
    found = re.search(_VERSION.format(re.escape(action)), page, re.DOTALL)
    assert found is not None
    return {"drawn_from": unescape(found[1])}


def boxes(**ticked: str) -> dict[str, str]:
    return {"has_paused": "1", "has_active": "1", "active": "1", **ticked}


def test_settings_saved_in_another_tab_are_not_overwritten(dashboard, agent, admin):
    url = f"/agents/{agent.id}/settings"
    drawn_from = drawn(dashboard.get(url).text, url)
    configuring.configure(agent, user=admin, core_token_budget=900, paused=True)
    db.session.commit()
    sent = boxes(model_id=agent.model_id, core_token_budget="700", refinement_threshold="0.9")

    refused = dashboard.submit(url, {**sent, **drawn_from})

    assert refused.status_code == 409
    assert "was changed in the meantime, so nothing was saved" in words_of(refused.text)
    assert 'name="core_token_budget" value="700"' in refused.text
    stored = "core memory budget 900; retention threshold empty; paused ticked"
    assert f"Stored now: {stored}." in words_of(refused.text)
    db.session.refresh(agent)
    assert (agent.core_token_budget, agent.refinement_threshold, agent.paused) == (900, None, True)

    saved = dashboard.submit(url, {**sent, **drawn(refused.text, url)})

    assert saved.status_code == 303
    db.session.refresh(agent)
    assert (agent.core_token_budget, agent.paused) == (700, False)


def test_of_two_saves_at_the_same_moment_one_is_refused(signed_in, agent, admin):
    tabs, url = [signed_in(admin) for _ in range(4)], f"/agents/{agent.id}/settings"
    drawn_from = drawn(tabs[0].get(url).text, url)

    def save(number: int) -> Any:
        return tabs[number].submit(url, {"core_token_budget": f"{900 + number}", **drawn_from})

    with ThreadPoolExecutor(len(tabs)) as threads:
        statuses = sorted(each.status_code for each in threads.map(save, range(len(tabs))))

    assert statuses == [303, 409, 409, 409]
    assert len(records("agent_settings_update")) == 1


def test_without_the_secret_key_nobody_computes_a_version(app, with_settings):
    """Else a model id that pages hide, because it looks personal, could be guessed."""
    other = with_settings(SECRET_KEY="another key, as long as it has to be")
    stored = {"model_id": "ada@example.org"}

    with app.test_request_context():
        mine = version(stored)
    with other.test_request_context():
        theirs = version(stored)

    assert mine != theirs
