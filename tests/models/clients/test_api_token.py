from datetime import timedelta

import pytest
from sqlalchemy import select

from refine import clock
from refine.errors import InvalidValue, Refused, RowAltered
from refine.extensions import db
from refine.models import ApiToken, AuditLog
from refine.models.agent import PROMPTS, configuring
from refine.models.clients.api_token import WELL_FORMED
from tests import factories, sql
from tests.chains import problems


def test_a_token_is_the_agents_or_the_accounts(app):
    agent = factories.agent()

    for owner, kind in ((agent, "agent"), (None, "platform")):
        token, secret = ApiToken.mint(account=agent.account, agent=owner)
        assert secret.startswith(f"refine_{kind}_")
        assert (token.kind, token.agent, token.account) == (kind, owner, agent.account)
        assert ApiToken.of_secret(secret) is token
        assert WELL_FORMED.fullmatch(secret)


def test_a_wall_token_of_all_accounts_is_verified_with_the_platform(app):
    token, secret = ApiToken.mint(account=None, kind="wall")
    db.session.commit()

    assert (token.account_id, token.is_valid, WELL_FORMED.fullmatch(secret)) == (None, True, None)
    assert problems() == []
    altered = f"UPDATE api_tokens SET expires_at = now() WHERE id = {token.id}"
    gone = f"DELETE FROM api_tokens WHERE id = {token.id}"
    assert f"platform: ApiToken {token.id} was changed" in problems(altered)[0]
    assert f"platform: ApiToken {token.id} has records, but is gone" in problems(gone)[0]


def test_a_token_of_one_account_is_not_minted_for_anothers_agent(app):
    agent = factories.agent()

    with pytest.raises(InvalidValue, match="another account"):
        ApiToken.mint(account=factories.account(), agent=agent)


def test_only_a_hash_and_the_beginning_are_stored(app):
    _, secret = ApiToken.mint(account=factories.account())
    db.session.commit()

    stored = " ".join(row for rows in sql.snapshot().values() for row in rows)

    assert secret[:22] in stored
    assert secret[:23] not in stored


def test_a_platform_token_is_revoked_with_all_that_it_minted(app):
    platform, _ = ApiToken.mint(account=factories.account())
    other, _ = ApiToken.mint(account=platform.account)
    agent = platform.add_agent(name="Wren", model_id="rehearsal/wren")
    minted, _ = platform.mint_for(agent, expires_at=None)
    elsewhere, _ = other.mint_for(agent, expires_at=None)

    platform.revoke()

    assert [token.is_valid for token in (platform, minted, other, elsewhere)] == [
        False,
        False,
        True,
        True,
    ]
    assert [
        record.auditable_id
        for record in factories.records(agent)
        if record.action == "token_revoked"
    ] == [str(minted.id)]


def test_revoking_takes_the_agents_chains_in_order_before_the_accounts(app):
    platform, _ = ApiToken.mint(account=factories.account())
    agents = [platform.add_agent(name=name, model_id="rehearsal/x") for name in ("Wren", "Tern")]
    for agent in reversed(agents):
        platform.mint_for(agent, expires_at=None)

    platform.revoke()

    revoked = select(AuditLog.agent_id).where(AuditLog.action == "token_revoked")
    ids = db.session.scalars(revoked.order_by(AuditLog.id)).all()
    assert ids == [*(agent.id for agent in agents), None]


def test_a_platform_token_is_revoked_even_if_its_agent_tokens_were_altered(app):
    platform, _ = ApiToken.mint(account=factories.account())
    agent = platform.add_agent(name="Wren", model_id="rehearsal/wren")
    altered, _ = platform.mint_for(agent, expires_at=None)
    minted, _ = platform.mint_for(agent, expires_at=None)
    db.session.commit()
    sql.tamper(f"UPDATE api_tokens SET hint = 'x' WHERE id = {altered.id}")
    db.session.expire_all()

    platform.revoke()
    db.session.commit()

    assert [token.is_valid for token in (platform, altered, minted)] == [False] * 3
    assert altered.revoked_at is None
    revoked = [each for each in factories.records(agent) if each.action == "token_revoked"]
    assert [each.auditable_id for each in revoked] == [str(altered.id), str(minted.id)]


def test_a_revoked_or_expired_platform_token_cannot_mint(app, subtests):
    for ended in ("revoked_at", "expires_at"):
        with subtests.test(ended):
            platform, _ = ApiToken.mint(account=factories.account())
            agent = platform.add_agent(name="Wren", model_id="rehearsal/wren")
            setattr(platform, ended, clock.now())
            with pytest.raises(Refused, match="was revoked or has expired"):
                platform.mint_for(agent, expires_at=None)


def test_only_a_platform_token_mints_and_only_for_agents_of_its_account(app, subtests):
    agent = factories.agent()
    as_agent, _ = ApiToken.mint(account=agent.account, agent=agent)
    platform, _ = ApiToken.mint(account=agent.account)
    elsewhere, _ = ApiToken.mint(account=factories.account())

    for minter, owner in ((as_agent, agent), (platform, None), (elsewhere, agent)):
        with subtests.test(minter=minter.id), pytest.raises(Refused, match="only a platform token"):
            ApiToken.mint(account=agent.account, agent=owner, by=minter)

    assert platform.mint_for(agent, expires_at=None)[0].minted_by is platform


def test_a_token_is_invalid_once_the_token_that_minted_it_was_altered(app):
    platform, _ = ApiToken.mint(account=factories.account())
    agent = platform.add_agent(name="Wren", model_id="rehearsal/wren")
    minted, _ = platform.mint_for(agent, expires_at=None)
    db.session.commit()
    sql.run(f"UPDATE api_tokens SET hint = 'x' WHERE id = {platform.id}")
    db.session.expire_all()

    assert not minted.is_valid


def test_the_first_use_of_an_agent_token_is_recorded(app):
    agent = factories.agent()
    token, _ = ApiToken.mint(account=agent.account, agent=agent)
    platform, _ = ApiToken.mint(account=agent.account)
    at = clock.now()

    for used in (token, platform):
        used.note_use(at)
        used.note_use(at + timedelta(minutes=2))
    db.session.commit()

    first = [record for record in factories.records(agent) if record.action == "token_first_used"]
    assert [(record.auditable_id, record.created_at) for record in first] == [(str(token.id), at)]
    assert sql.value("SELECT count(*) FROM audit_logs WHERE action = 'token_first_used'") == 1


def test_the_first_use_is_recorded_once_and_cannot_be_hidden(app):
    agent = factories.agent()
    token, secret = ApiToken.mint(account=agent.account, agent=agent)
    db.session.commit()
    sql.run("UPDATE api_tokens SET last_used_at = now()")
    db.session.refresh(token)

    noted = [token.note_use() for _ in range(2)]
    db.session.commit()

    assert noted == [True, False]
    assert [record.action for record in factories.records(agent)].count("token_first_used") == 1
    db.session.rollback()
    sql.run("UPDATE api_tokens SET first_used_at = NULL")
    db.session.expire_all()
    with pytest.raises(RowAltered):
        ApiToken.of_secret(secret)


def test_of_first_uses_at_once_one_is_recorded(app):
    agent = factories.agent()
    token, _ = ApiToken.mint(account=agent.account, agent=agent)
    db.session.commit()
    assert token.first_used_at is None
    sql.rewrite("UPDATE api_tokens SET first_used_at = now()")

    token.note_use()

    assert "token_first_used" not in [record.action for record in factories.records(agent)]


def test_a_revoked_token_is_not_valid(app):
    agent = factories.agent()
    token, _ = ApiToken.mint(account=agent.account, agent=agent)
    token.expires_at = clock.now() + timedelta(hours=1)

    token.revoke()
    token.revoke()

    assert token.expires_at is not None  # what was not written yet is kept
    assert not token.is_valid
    assert [record.action for record in factories.records(agent)] == [
        "token_minted",
        "token_revoked",
    ]


def test_a_token_is_valid_until_it_expires(app, subtests):
    token, _ = ApiToken.mint(account=factories.account())

    for expires_in, is_valid in [(None, True), (timedelta(hours=1), True), (timedelta(0), False)]:
        with subtests.test(expires_in=expires_in):
            token.expires_at = None if expires_in is None else clock.now() + expires_in
            assert token.is_valid == is_valid


def test_adding_an_agent_with_a_prompt_counts_as_a_change_of_identity(app, subtests):
    platform, _ = ApiToken.mint(account=factories.account())

    for prompts in ({}, *({prompt: "I agree to everything."} for prompt in PROMPTS)):
        with subtests.test(prompts=list(prompts)):
            agent = platform.add_agent(name="Wren", model_id="rehearsal/wren", **prompts)
            assert (agent.identity_changed_at is not None) == bool(prompts)


def test_a_memory_reflection_prompt_that_is_taken_away_ends_the_daily_reflection(app):
    platform, _ = ApiToken.mint(account=factories.account())
    agent = factories.agent(account=platform.account)
    configuring.author(agent, "memory_reflection_prompt", "I look back.")

    platform.change_agent(agent, memory_reflection_prompt="Look back.")
    assert agent.reflects_daily
    platform.change_agent(agent, memory_reflection_prompt=None)

    assert not agent.reflects_daily
    platform.change_agent(agent, memory_reflection_prompt="Look back.")
    assert not agent.reflects_daily
