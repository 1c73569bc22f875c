"""No operation tells a program whether it guessed what another one's agent keeps."""

import itertools
from typing import Any

import pytest

from refine.api.routing import OPERATIONS, Operation
from refine.api.schemas import Body
from tests.api.test_every_operation import SENT
from tests.guessing.driving import GUESSING_HEADERS, Pair, paths_of
from tests.guessing.worlds import GUESS, Worlds

KINDS = {
    "its platform": "platform",
    "a foreign platform": "platform",
    "a sibling": "agent",
    "a foreign agent": "agent",
    "nobody": None,
}


def bodies_of(each: Operation) -> list[Any]:
    """What it takes, then a guess in one field after the other."""
    if each.body is None:
        return [None]
    if not issubclass(each.body, Body):  # the arguments of a tool
        arguments = {"action": "update", "field": "system_prompt", "value": GUESS}
        return [{"content": GUESS, "memory_type": "core"}, arguments]
    valid = SENT.get(each.view.__name__, {})
    guessed = [{**valid, name: GUESS} for name in each.body.model_fields]
    if "messages" in each.body.model_fields:
        guessed.append({"messages": [{"role": "user", "content": GUESS, "name": GUESS}]})
    return [valid, *guessed, {GUESS: GUESS}]


def queries_of(each: Operation) -> list[dict[str, str]]:
    fields = each.query.model_fields if each.query is not None else {}
    return [{}, *({field.alias or name: GUESS} for name, field in fields.items())]


def is_possible(each: Operation, who: str) -> bool:
    """Whether it may succeed: sessions and grants are another agent's, and the sibling has a
    live session.
    """
    if who == "its platform":
        return True
    return ":" not in each.rule and (who, each.name) != ("a sibling", "request_session")


def drive(pair: Pair, each: Operation) -> None:
    for path in paths_of(each.rule, pair.worlds.things):
        for query, body in itertools.product(queries_of(each), bodies_of(each)):
            pair.act(each.method, path, query_string=query, json=body)
        pair.act(each.method, path, headers=GUESSING_HEADERS)
        pair.ask("PUT", path)


# A sibling of the agent in the gate, all others nightly.
@pytest.mark.parametrize(
    "who",
    [who if who == "a sibling" else pytest.param(who, marks=pytest.mark.nightly) for who in KINDS],
)
def test_no_operation_tells_whether_a_guess_is_right(worlds: Worlds, who: str) -> None:
    pair = Pair.of_programs(worlds, who)

    for each in OPERATIONS:
        drive(pair, each)
    pair.compare_rows("in the end")

    assert pair.differences == []
    assert pair.accepted >= {
        (each.method, f"/api/v1{each.rule}")
        for each in OPERATIONS
        if each.bearer == KINDS[who] and is_possible(each, who)
    }
