"""What an installation from before the digests holds is attested once, as it is."""

import pytest
from flask import Flask
from sqlalchemy import select

from refine.errors import NotFound, RowAltered
from refine.extensions import db
from refine.models import ApiToken, AuditLog
from refine.models.attested_rows import attested_kinds
from refine.models.audit import PLATFORM
from refine.models.integrity import note_verified, verify_all
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


def test_a_new_database_verifies_again_and_again_without_it(app: Flask) -> None:
    factories.agent("a memory").record("agent_created")
    db.session.commit()

    for _ in range(2):
        db.session.rollback()
        found = list(verify_all())
        assert [each.problem for each in found] == [None]
        for each in found:
            note_verified(each)
        db.session.commit()


def test_nothing_begins_while_an_upgrade_is_not_finished(secret: str) -> None:
    sql.tamper("UPDATE chain_heads SET digest = NULL")

    with pytest.raises(RowAltered, match="the audit chain of platform"):
        factories.account()
    db.session.rollback()
    with pytest.raises(RowAltered, match="the audit chain of platform"):
        AuditLog.record("user_sign_in_failed", chain=PLATFORM)
    db.session.rollback()

    assert list(add_all_missing_digests())
