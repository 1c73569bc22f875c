"""No page, and no answer to an action, tells anybody whether they guessed what an agent keeps.

An admin in the gate, all others nightly.
"""

import pytest

from tests.guessing.driving import Pair, do_everything, read_everything
from tests.guessing.worlds import Worlds
from tests.web.test_every_route import ACTED, READ, form_of

OTHERS = [
    pytest.param(who, marks=pytest.mark.nightly)
    for who in ("nobody", "site_admin", "stranger", "viewer")
]


@pytest.mark.parametrize("who", ["admin", *OTHERS])
def test_no_page_tells_whether_a_guess_is_right(worlds: Worlds, who: str) -> None:
    pair = Pair.of_browsers(worlds, who)

    read_everything(pair, offers=who in ("admin", "site_admin"))

    allowed = {("GET", rule) for rule in READ if getattr(READ[rule], who) in (200, 302)}
    assert pair.differences == []
    assert pair.accepted >= allowed


@pytest.mark.parametrize("who", ["admin", *OTHERS])
def test_no_action_tells_whether_a_guess_is_right(worlds: Worlds, who: str) -> None:
    pair = Pair.of_browsers(worlds, who)

    do_everything(pair, lambda rule: form_of(rule, who, worlds.things.agents[0]))

    allowed = {("POST", rule) for rule in ACTED if getattr(ACTED[rule], who) in (200, 303)}
    assert pair.differences == []
    assert pair.accepted >= allowed
