import pytest

from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import AccessGrant
from tests import factories, sql


def test_a_new_grant_is_a_request(app):
    grant = factories.grant(factories.agent())

    assert (grant.status, grant.granted_at, grant.expires_at, grant.reply) == (
        "requested",
        None,
        None,
        None,
    )


def test_purpose_reply_and_note_are_sealed_at_rest(app):
    text = "the c4n4ry fell silent"
    grant = factories.grant(factories.agent(), purpose=text, reply=text, closing_note=text)
    db.session.commit()

    stored = sql.value("SELECT access_grants::text FROM access_grants")

    assert b"c4n4ry".hex() not in stored
    assert (grant.purpose, grant.reply, grant.closing_note) == (text, text, text)


@pytest.mark.parametrize("length", [20, 500])
def test_a_purpose_has_20_to_500_characters(app, length):
    grant = factories.grant(factories.agent(), purpose=f" {'x' * length}\n")

    assert grant.purpose == "x" * length


@pytest.mark.parametrize("purpose", ["", " " * 30, "x" * 19, "x" * 501, "x" * 30 + "\x00", None])
def test_a_purpose_of_another_length_is_refused(app, purpose):
    with pytest.raises(InvalidValue, match="purpose"):
        factories.grant(factories.agent(), purpose=purpose)


def test_the_agent_may_be_named_last(app):
    agent = factories.agent()

    grant = AccessGrant(purpose="to see why it declined", agent=agent)

    assert grant.purpose == "to see why it declined"
