"""No answer to an action tells anybody whether they guessed what an agent keeps."""

import json
from functools import partial
from io import BytesIO
from typing import Any

import pytest

from tests.guessing.driving import Form, Pair, do_everything, live_through, try_everything
from tests.guessing.worlds import GUESS, Worlds
from tests.web.test_every_route import ACTED, form_of

pytestmark = pytest.mark.slow

ACTING = ("admin", "site_admin")
REFUSED = ("nobody", "viewer", "stranger")


def forms_of(who: str, worlds: Worlds, rule: str) -> list[Form]:
    forms: list[Form] = [partial(form_of, rule, who, worlds.things.agents[0])]
    if rule == "/agents/<int:agent_id>/import":
        for options in ({}, {"check": "1"}, {"strict": "1"}, {"memory_type": "journal"}):
            forms.append(partial(file_of_guesses, **options))
    return forms


def file_of_guesses(**options: str) -> dict[str, Any]:
    rows = [{"id": GUESS, "memory": GUESS}, {"id": "1", "memory": f" {GUESS.upper()} "}]
    file = BytesIO(json.dumps(rows).encode())
    fields = {"file": (file, "guesses.json"), "format": "mem0", "memory_type": "core"}
    return {**fields, **options}


@pytest.mark.parametrize("who", ACTING)
def test_no_action_tells_whether_a_guess_is_right(worlds: Worlds, who: str) -> None:
    pair = Pair.of_browsers(worlds, who)

    do_everything(pair, partial(forms_of, who, worlds))

    allowed = {("POST", rule) for rule in ACTED if getattr(ACTED[rule], who) in (200, 303)}
    assert pair.differences == []
    assert pair.accepted >= {*allowed, ("POST", "/agents/<int:agent_id>/import")}


@pytest.mark.parametrize("who", REFUSED)
def test_no_refusal_tells_whether_a_guess_is_right(worlds: Worlds, who: str) -> None:
    pair = Pair.of_browsers(worlds, who)

    try_everything(pair, partial(forms_of, who, worlds))

    assert pair.differences == []


@pytest.mark.parametrize("who", ACTING)
def test_no_page_tells_it_after_everything_was_done(worlds: Worlds, who: str) -> None:
    pair = Pair.of_browsers(worlds, who)

    live_through(pair, partial(forms_of, who, worlds))

    assert pair.differences == []
