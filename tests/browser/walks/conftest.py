"""Each walk is taken three times: with a pointer, by keyboard alone, and without script.

In the gate, some are taken by keyboard.
"""

from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext

from refine.extensions import db
from refine.models import Agent, User
from tests import factories
from tests.browser.visiting import begin_signed_in
from tests.browser.walks.visitor import ByKeyboard, Visitor, WithoutScript


@pytest.fixture(
    params=[
        pytest.param(Visitor, id="pointer", marks=pytest.mark.nightly),
        pytest.param(ByKeyboard, id="keyboard"),
        pytest.param(WithoutScript, id="no script", marks=pytest.mark.nightly),
    ]
)
def visitor(request: pytest.FixtureRequest, new_context: Callable[..., BrowserContext]) -> Visitor:
    """Somebody who is not signed in."""
    kind: type[Visitor] = request.param
    context = new_context(java_script_enabled=kind is not WithoutScript)
    return kind(context.new_page())


@pytest.fixture
def at_work(visitor: Visitor, admin: User, site: str) -> Visitor:
    """The platform's admin, signed in."""
    begin_signed_in(visitor.page, admin, site)
    return visitor


@pytest.fixture
def wren(admin: User) -> Agent:
    """An agent with twenty memories of 25 tokens."""
    contents = [factories.text_of(25) for _ in range(20)]
    made: Agent = factories.agent(*contents, account=admin.account, name="Wren")
    db.session.commit()
    return made
