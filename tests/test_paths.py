"""Paths are built as Flask builds them."""

import uuid

import pytest
from flask import Flask, url_for
from werkzeug.routing import BuildError

ENDPOINTS = [
    ("overview.page", {}),
    ("static", {"filename": "refine.css"}),
    ("agents.listing", {"account": "a b&é", "state": None, "page": 2}),
    ("agents.listing", {"state": ["failed", "declined"]}),
    ("agent.page", {"agent_id": 7}),
    ("sessions.page", {"session_id": uuid.UUID(int=1), "account": "own"}),
    ("overview.page", {"_anchor": "main"}),
    ("overview.page", {"_external": True}),
    (".page", {}),
]


@pytest.mark.parametrize("prefix", ["/", "/below/"])
@pytest.mark.parametrize(("endpoint", "values"), ENDPOINTS)
def test_a_path_is_the_one_that_flask_builds(app: Flask, endpoint, values, prefix) -> None:
    with app.test_request_context("/ops", base_url=f"http://localhost{prefix}"):
        built = url_for(endpoint, **values)

        assert built == Flask.url_for(app, endpoint, **values)


def test_a_path_without_its_arguments_or_of_no_endpoint_is_refused(app: Flask) -> None:
    with app.test_request_context("/"):
        for endpoint in ("agent.page", "nothing.page"):
            with pytest.raises(BuildError):
                url_for(endpoint)
