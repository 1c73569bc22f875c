"""What a record stores of memories before and after a change."""

import pytest

from refine.extensions import canonical_json
from refine.models import AgentMemory
from refine.models.ledger.image import (
    Change,
    Image,
    changes_in,
    images_in,
    recorded,
    recorded_digests,
    state_digest,
)
from refine.sealing import DataKey
from tests import factories

KEY = DataKey(b"k" * 32)
CREATED, LATER = "2026-01-02T03:04:05.000006+00:00", "2026-02-03T04:05:06.000007+00:00"
OLD: Image = {
    "id": 7,
    "memory_type": "core",
    "content": "the canary sings",
    "constitutional": False,
    "tags": [],
    "token_estimate": 4,
    "discarded_at": None,
    "retired_reason": None,
    "replaced_by_id": None,
    "created_at": CREATED,
    "spans_until": None,
    "recorded_at": CREATED,
    "source": None,
    "source_id": None,
    "extra": None,
    "content_key": b"wrapped",
    "session_id": None,
}
FULL: Image = {
    **OLD,
    "constitutional": True,
    "tags": ["voice"],
    "discarded_at": LATER,
    "retired_reason": "outdated",
    "replaced_by_id": 8,
    "spans_until": LATER,
    "recorded_at": LATER,
    "source": "mem0",
    "source_id": "m-1",
    "extra": '{"a":1}',
    "session_id": "58e81873-b682-4568-879a-a24c8cb0072e",
}
CHANGES = {
    "created": Change(7, None, OLD),
    "created, every field set": Change(7, None, FULL),
    "rewritten": Change(7, OLD, {**OLD, "content": "the canary sang", "token_estimate": 5}),
    "every field set": Change(7, OLD, FULL),
    "every field unset": Change(7, FULL, OLD),
    "dated back": Change(7, FULL, {**FULL, "created_at": "2025-01-01T00:00:00.000000+00:00"}),
    "unchanged": Change(7, FULL, dict(FULL)),
}


def without_key(image: Image | None) -> Image | None:
    return image and {field: value for field, value in image.items() if field != "content_key"}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_are_read_as_they_were_recorded_but_for_the_key(change):
    expected = Change(7, without_key(change.before), without_key(change.after))
    assert changes_in(*recorded([change], KEY)) == [expected]


def test_a_digest_cannot_be_told_without_the_key_of_the_memory():
    assert state_digest(OLD, KEY) != state_digest({**OLD, "content_key": b"other"}, KEY)


def test_changes_of_memories_that_no_longer_open_are_left_out():
    data, sealed = recorded([CHANGES["rewritten"], Change(8, None, {**FULL, "id": 8})], KEY)
    sealed["memories"] = sealed["memories"][1:]

    assert [change.memory_id for change in changes_in(data, sealed)] == [8]


def test_a_record_holds_the_digests_of_both_states():
    data, _ = recorded([CHANGES["rewritten"], Change(8, None, {**FULL, "id": 8})], KEY)

    assert recorded_digests(data) == {
        7: (state_digest(OLD, KEY), state_digest(CHANGES["rewritten"].after, KEY)),
        8: (None, state_digest(FULL, KEY)),
    }


def test_nothing_is_stored_twice():
    (rewritten,) = recorded([CHANGES["rewritten"]], KEY)[0]["memories"]
    (discarded,) = recorded([Change(7, OLD, {**OLD, "discarded_at": LATER})], KEY)[1]["memories"]
    (created,) = recorded([CHANGES["created"]], KEY)[0]["memories"]

    assert rewritten["after"].keys() == {"token_estimate", "digest"}
    assert (discarded["before"], discarded["after"]) == ({"content": OLD["content"]}, {})
    assert created.keys() == {"id", "after"}
    assert not created["after"].keys() & {"tags", "constitutional", "discarded_at", "content"}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_contents_stand_in_the_sealed_part_alone(change):
    data, sealed = recorded([change], KEY)

    assert "canary" not in canonical_json(data)
    assert "canary" in canonical_json(sealed)


def test_an_image_is_shown_with_every_field_that_was_left_out():
    (shown,) = images_in(recorded([CHANGES["created"]], KEY)[0])

    public = OLD.keys() - {"content", "extra", "source_id", "content_key"}
    assert shown["before"] is None
    assert {field: shown["after"][field] for field in public} == {
        field: OLD[field] for field in public
    }


def test_an_image_holds_every_column_that_does_not_follow_from_others(app):
    image = factories.memory(factories.agent(), "the canary sings").image()

    assert image.keys() == OLD.keys()
    others = AgentMemory.__table__.columns.keys() - image.keys()
    assert others == {"agent_id", "content_hash", "updated_at", "row_digest"}
