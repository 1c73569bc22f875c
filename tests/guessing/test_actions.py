"""No answer to an action tells anybody whether they guessed what an agent keeps."""

from functools import partial

import pytest

from tests.guessing.driving import Fields, Pair, do_everything, live_through, try_everything
from tests.guessing.worlds import Worlds
from tests.web.test_every_route import ACTED, form_of

# An admin in the gate, all others nightly.
ACTING = ("admin", pytest.param("site_admin", marks=pytest.mark.nightly))
REFUSED = (
    "viewer",
    *(pytest.param(who, marks=pytest.mark.nightly) for who in ("nobody", "stranger")),
)


def fields_of(who: str, worlds: Worlds, rule: str) -> Fields:
    return form_of(rule, who, worlds.things.agents[0])


@pytest.mark.parametrize("who", ACTING)
def test_no_action_tells_whether_a_guess_is_right(worlds: Worlds, who: str) -> None:
    pair = Pair.of_browsers(worlds, who)

    do_everything(pair, partial(fields_of, who, worlds))

    allowed = {("POST", rule) for rule in ACTED if getattr(ACTED[rule], who) in (200, 303)}
    assert pair.differences == []
    assert pair.accepted >= allowed


@pytest.mark.parametrize("who", REFUSED)
def test_no_refusal_tells_whether_a_guess_is_right(worlds: Worlds, who: str) -> None:
    pair = Pair.of_browsers(worlds, who)

    try_everything(pair, partial(fields_of, who, worlds))

    assert pair.differences == []


@pytest.mark.parametrize("who", ACTING)
def test_no_page_tells_it_after_everything_was_done(worlds: Worlds, who: str) -> None:
    pair = Pair.of_browsers(worlds, who)

    live_through(pair, partial(fields_of, who, worlds))

    assert pair.differences == []
