"""No answer to an action tells anybody whether they guessed what an agent keeps."""

import pytest

from tests.guessing.driving import Fields, Pair, do_everything
from tests.guessing.worlds import Worlds
from tests.web.test_every_route import ACTED, form_of

# An admin and a viewer in the gate, all others nightly.
OTHERS = ("nobody", "site_admin", "stranger")
WHO = ("admin", "viewer", *(pytest.param(who, marks=pytest.mark.nightly) for who in OTHERS))


@pytest.mark.parametrize("who", WHO)
def test_no_action_tells_whether_a_guess_is_right(worlds: Worlds, who: str) -> None:
    pair = Pair.of_browsers(worlds, who)

    def fields_of(rule: str) -> Fields:
        return form_of(rule, who, worlds.things.agents[0])

    do_everything(pair, fields_of)

    allowed = {("POST", rule) for rule in ACTED if getattr(ACTED[rule], who) in (200, 303)}
    assert pair.differences == []
    assert pair.accepted >= allowed
