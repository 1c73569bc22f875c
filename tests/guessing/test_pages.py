"""No page tells anybody whether they guessed what an agent keeps."""

import pytest
from werkzeug.test import TestResponse

from tests.guessing.driving import Pair, read_everything, use_wrong_methods
from tests.guessing.worlds import GUESS, Worlds
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


@pytest.mark.parametrize("who", WHO)
def test_no_error_tells_whether_a_guess_is_right(worlds: Worlds, who: str) -> None:
    pair = Pair.of_browsers(worlds, who)
    ledger, settings = (
        f"/agents/{worlds.things.agents[0]}/{page}" for page in ("ledger", "settings")
    )
    form = {"search": GUESS, "model_id": GUESS}

    answers: list[TestResponse] = [
        pair.ask("GET", f"/{GUESS}"),
        pair.ask("GET", f"/agents/{GUESS}"),
        pair.ask("POST", ledger, data=form),  # without a token
        pair.ask("POST", settings, data=form, headers={"Origin": "https://evil.example"}),
        pair.ask("POST", settings, data={"model_id": GUESS * 150_000}),
        pair.ask("POST", settings, json=form),
        pair.ask("GET", ledger, headers={"Cookie": f"session={GUESS}"}),
        pair.ask("GET", settings, headers={"Authorization": f"Bearer {GUESS}"}),
    ]

    use_wrong_methods(pair)

    assert pair.differences == []
    assert {answer.status_code for answer in answers} >= {400, 404}
