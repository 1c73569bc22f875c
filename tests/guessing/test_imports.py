"""Nobody learns from what they imported what an agent has saved since."""

import pytest

from tests.guessing.driving import Pair, paths_of, routes_of
from tests.guessing.worlds import Worlds
from tests.web.test_every_route import form_of

pytestmark = pytest.mark.slow

_OF_AN_AGENT = ("<int:agent_id>", "<uuid:session_id>", "<int:record_id>")


@pytest.mark.parametrize("who", ["admin", "site_admin"])
def test_no_page_tells_whether_an_agent_saved_what_was_imported(worlds: Worlds, who: str) -> None:
    pair = Pair.of_browsers(worlds.around_moved_in(), who)

    for route in routes_of(pair.app, pages=True):
        if "GET" in route.methods and any(each in route.rule for each in _OF_AN_AGENT):
            for path in paths_of(route.rule, pair.worlds.things):
                pair.ask("GET", path)

    assert pair.differences == []
    assert ("GET", "/sessions/<uuid:session_id>/undo") in pair.accepted


@pytest.mark.parametrize("who", ["admin", "site_admin"])
def test_no_action_tells_whether_an_agent_saved_what_was_imported(worlds: Worlds, who: str) -> None:
    pair = Pair.of_browsers(worlds.around_moved_in(), who)
    agent_id = worlds.things.moved_in

    for route in routes_of(pair.app, pages=True):
        if "POST" in route.methods and any(each in route.rule for each in _OF_AN_AGENT):
            for path in paths_of(route.rule, pair.worlds.things):
                pair.submit(path, lambda rule=route.rule: form_of(rule, who, agent_id))

    assert pair.differences == []
    assert ("POST", "/sessions/<uuid:session_id>/undo") in pair.accepted
