"""What an installation from before the digests holds is attested once, as it is."""

import pytest
from flask import Flask
from sqlalchemy import select

from refine.errors import NotFound
from refine.extensions import db
from refine.models import ApiToken, AuditLog
from refine.models.integrity import attested_kinds, verify_all
from refine.models.upgrading import add_all_missing_digests
from refine.rules.secrets import hash_of
from tests import factories, sql


@pytest.fixture
def secret(app: Flask) -> str:
    """The token of an agent that lived in a version without digests."""
    agent = factories.agent("a memory")
    token, secret = ApiToken.mint(account=agent.account, agent=agent)
    db.session.commit()
    sql.tamper(
        "DELETE FROM audit_logs",
        "DELETE FROM chain_heads",
        *(f"UPDATE {kind.__tablename__} SET row_digest = NULL" for kind in attested_kinds()),
        f"UPDATE api_tokens SET token_hash = '{hash_of(secret)}' WHERE id = {token.id}",
        # the agent had a chain, the account had none yet
        f"INSERT INTO chain_heads (agent_id) VALUES ({agent.id})",
    )
    db.session.rollback()
    return secret


def test_every_row_and_chain_of_before_is_attested(secret: str) -> None:
    assert any(found.problem for found in verify_all())

    done = list(add_all_missing_digests())

    assert [found.problem for found in verify_all() if found.problem] == []
    record = db.session.scalars(select(AuditLog).filter_by(action="rows_attested")).one()
    assert record.data == {"rows": done[-1]}


def test_a_token_of_before_is_valid_after_it(secret: str) -> None:
    with pytest.raises(NotFound):
        ApiToken.of_secret(secret)

    list(add_all_missing_digests())

    assert ApiToken.of_secret(secret).is_valid


def test_it_is_done_once(secret: str) -> None:
    list(add_all_missing_digests())

    assert list(add_all_missing_digests()) == []
