"""How instants and JSON are stored."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from refine.extensions import canonical_json, db, stored_json
from tests import factories


def test_times_come_back_in_utc(app):
    local = datetime(2026, 3, 4, 12, tzinfo=timezone(timedelta(hours=5)))
    account = factories.account(next_due_at=local)
    db.session.commit()

    assert account.next_due_at == local
    assert account.next_due_at.tzinfo is UTC


def test_json_has_one_spelling():
    spelled = canonical_json({"b": [1, None, True], "a": "é\u2028"})

    assert spelled == '{"a":"é\u2028","b":[1,null,true]}'


class Subtext(str):
    """A text that orjson does not take for one."""


json_texts = st.text() | st.text().map(Subtext)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | json_texts,
    lambda inner: st.lists(inner).map(tuple) | st.lists(inner) | st.dictionaries(json_texts, inner),
)


@given(json_values)
def test_all_ways_of_writing_json_agree(value: object) -> None:
    assert canonical_json(value) == stored_json(value)


@pytest.mark.parametrize("value", [datetime(2026, 1, 1, tzinfo=UTC), {"a": object()}, b"bytes"])
def test_refuses_values_that_json_cannot_represent(value: object) -> None:
    with pytest.raises(TypeError):
        canonical_json(value)
