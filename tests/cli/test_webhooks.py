"""`refine webhook`: add, list, remove."""

import json

import pytest

from refine.extensions import db
from refine.models import Endpoint
from tests import factories
from tests.cli.conftest import problem

URL = "https://example.org/refine"


def test_a_webhook_is_added_listed_and_removed(run, demo):
    added = run("webhook", "add", URL, "--account", "demo", "--kind", "session.ended")
    factories.endpoint(factories.account(slug="other"))
    listed = json.loads(run("webhook", "list", "--account", "demo", "--json").stdout)
    table = run("webhook", "list").stdout
    removed = run("webhook", "remove", listed[0]["id"])

    endpoint = db.session.get_one(Endpoint, listed[0]["id"])
    assert added.stdout.startswith("whsec_")
    assert [(each["url"], each["kinds"]) for each in listed] == [(URL, ["session.ended"])]
    assert "session.ended" in table
    assert "all" in table
    assert removed.stdout == f"removed webhook {endpoint.id}\n"
    db.session.rollback()
    assert endpoint.removed_at is not None
    assert run("webhook", "list", "--account", "demo").stdout == "no webhooks\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["add", "http://example.org/", "--account", "demo"], "url must begin with https://"),
        (["add", URL, "--account", "nobody"], "no account has the slug 'nobody'"),
        (["remove", "7"], "there is no webhook 7"),
    ],
)
def test_what_is_not_there_or_not_allowed_is_one_line(run, demo, words, says):
    assert problem(run("webhook", *words)).startswith(says)


def test_private_addresses_are_allowed_by_a_setting(run, demo):
    done = run(
        "webhook", "add", "http://10.0.0.1/", "--account", "demo", REFINE_WEBHOOKS_PRIVATE="1"
    )

    assert done.stdout.startswith("whsec_")
