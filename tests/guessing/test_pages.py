"""No page tells anybody whether they guessed what an agent keeps."""

import pytest

from tests.guessing.driving import Pair, read_everything
from tests.guessing.worlds import Worlds
from tests.web.test_every_route import READ

# An admin in the gate, all others nightly.
OTHERS = ("nobody", "viewer", "site_admin", "stranger")
WHO = ("admin", *(pytest.param(who, marks=pytest.mark.nightly) for who in OTHERS))


@pytest.mark.parametrize("who", WHO)
def test_no_page_tells_whether_a_guess_is_right(worlds: Worlds, who: str) -> None:
    pair = Pair.of_browsers(worlds, who)

    read_everything(pair, offers=who in ("admin", "site_admin"))

    allowed = {("GET", rule) for rule in READ if getattr(READ[rule], who) in (200, 302)}
    assert pair.differences == []
    assert pair.accepted >= allowed
