"""Nothing but declared operations is routed; every other request is answered with a problem."""

import pytest

from refine.api.routing import OPERATIONS
from tests.api.test_every_operation import is_problem, name_of
from tests.web.conftest import browser_of


def test_every_route_of_the_api_is_an_operation(app):
    routes = {
        (method, rule.rule.removeprefix("/api/v1"))
        for rule in app.url_map.iter_rules()
        if rule.rule.startswith("/api")
        for method in (rule.methods or set()) - {"HEAD"}
    }

    assert routes == {(each.method, each.rule) for each in OPERATIONS}
    assert [name_of(each) for each in OPERATIONS if each.bearer is None] == ["GET /openapi.json"]


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("GET", "/", 404, None),
        ("GET", "/agents/0x1/tokens", 404, None),
        ("DELETE", f"/grants/{'9' * 30}", 404, None),
        ("PUT", "/memories", 405, {"GET", "HEAD", "POST"}),
        ("GET", "/tools/save_memory/calls", 405, {"POST"}),
    ],
)
def test_unknown_paths_and_methods_are_problems(world, method, path, status, allowed):
    for program in (world.nobody, world.own):
        answer = program.open(path, method=method)

        assert answer.status_code == status
        assert is_problem(answer)
        if allowed is not None:
            assert set(answer.headers["Allow"].split(", ")) == allowed


@pytest.mark.parametrize("path", ["/api/", "/api/v2/context", "/api/v1/", "/api/v1/memories/"])
def test_every_path_below_api_is_answered_with_problems(app, path):
    answer = browser_of(app).get(path)

    assert answer.status_code == 404
    assert is_problem(answer)
