"""Webhooks as a platform adds, lists and removes them."""

import pytest

from refine.extensions import db
from refine.models import Endpoint
from tests import factories, sql

URL = "https://example.org/refine"


def test_a_webhook_is_added_listed_and_removed(world):
    added = world.platform.post("/webhooks", json={"url": URL, "kinds": ["session.ended"]})
    listed = world.platform.get("/webhooks").json
    foreign = world.foreign_platform.get("/webhooks").json
    removed = world.platform.delete(f"/webhooks/{added.json['id']}")
    again = world.platform.delete(f"/webhooks/{added.json['id']}")

    webhook = added.json
    secret = webhook["secret"]
    assert added.status_code == 201
    assert listed == {"webhooks": [{**webhook, "secret": None}], "next_cursor": None}
    assert (webhook["url"], webhook["kinds"]) == (URL, ["session.ended"])
    assert foreign["webhooks"] == []
    assert (removed.status_code, again.status_code) == (204, 204)
    assert world.platform.get("/webhooks").json["webhooks"] == []
    assert secret not in str(sql.snapshot())


def test_the_secret_is_shown_once(world):
    key = {"Idempotency-Key": "once"}
    first, second = (
        world.platform.post("/webhooks", json={"url": URL}, headers=key).json for _ in range(2)
    )

    assert first["secret"].startswith("whsec_")
    assert second == {**first, "secret": None}
    assert first["kinds"] is None
    assert db.session.scalars(db.select(Endpoint)).one().secret == first["secret"]


@pytest.mark.parametrize(
    "body",
    [
        {"url": "http://example.org/"},
        {"url": URL, "kinds": []},
        {"url": URL, "kinds": ["memory.saved"]},
        {"url": 7},
        {},
    ],
)
def test_what_cannot_be_delivered_is_refused(world, body):
    answer = world.platform.post("/webhooks", json=body)

    assert answer.status_code == 422
    assert db.session.scalars(db.select(Endpoint)).all() == []


def test_a_webhook_of_others_is_not_found(world):
    theirs = factories.endpoint(world.account)
    db.session.commit()

    assert world.foreign_platform.delete(f"/webhooks/{theirs.id}").status_code == 404
    assert world.platform.delete(f"/webhooks/{theirs.id}").status_code == 204
