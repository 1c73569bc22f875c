"""API tokens: listed and revoked, never created in the dashboard."""

from datetime import UTC, datetime

import pytest

from refine.extensions import db
from refine.models import ApiToken, User
from tests import factories, sql
from tests.web.conftest import (
    Browser,
    SignedIn,
    actions_of,
    links_of,
    person,
    records,
    words_of,
)


def test_no_token_is_created_in_the_dashboard(
    dashboard: Browser, admin: User, signed_in: SignedIn
) -> None:
    agent = factories.agent(account=admin.account)
    db.session.commit()

    answers = [
        browser.submit("/tokens", {"agent_id": agent.id, "kind": kind})
        for browser in (dashboard, signed_in(person(site_admin=True)))
        for kind in ("agent", "platform")
    ]

    assert [answer.status_code for answer in answers] == [405] * 4
    assert sql.value("SELECT count(*) FROM api_tokens") == 0
    assert records("token_minted") == []


@pytest.fixture
def token(admin: User) -> ApiToken:
    made, _ = ApiToken.mint(account=admin.account)
    db.session.commit()
    return made


def test_revoking_a_token_is_final_and_recorded(
    dashboard: Browser, admin: User, token: ApiToken
) -> None:
    answer = dashboard.submit(f"/tokens/{token.id}/revoke", follow_redirects=True)
    dashboard.submit(f"/tokens/{token.id}/revoke")

    db.session.refresh(token)
    assert not token.is_valid
    assert f"Token {token.hint}… revoked" in words_of(answer.text)
    assert f"/tokens/{token.id}/revoke" not in links_of(answer.text)
    assert [record.user_id for record in records("token_revoked")] == [admin.id]


def test_a_valid_token_is_listed_as_such_with_its_expiry(dashboard: Browser, admin: User) -> None:
    agent = factories.agent(account=admin.account)
    ApiToken.mint(account=admin.account)
    ApiToken.mint(
        account=admin.account, agent=agent, expires_at=datetime(2999, 3, 2, 12, tzinfo=UTC)
    )
    db.session.commit()

    said = words_of(dashboard.get("/tokens").text)

    assert "never valid until 2 Mar 2999, 12:00 Revoke…" in said
    assert "never valid Revoke…" in said


def test_the_page_says_first_what_revoking_ends(
    dashboard: Browser, admin: User, token: ApiToken
) -> None:
    token.mint_for(factories.agent(account=admin.account), expires_at=None)
    db.session.commit()
    assert f"/tokens/{token.id}/revoke" in links_of(dashboard.get("/tokens").text)

    page = dashboard.get(f"/tokens/{token.id}/revoke").text

    assert "or with the 1 token that it created" in words_of(page)
    assert actions_of(page) == [f"/tokens/{token.id}/revoke"]
    db.session.refresh(token)
    assert token.is_valid


def test_revoking_a_platform_token_ends_what_it_minted(
    dashboard: Browser, admin: User, token: ApiToken
) -> None:
    minted, _ = token.mint_for(factories.agent(account=admin.account), expires_at=None)
    db.session.commit()
    assert f"{token.hint}… {minted.hint}…" not in words_of(dashboard.get("/tokens").text)

    answer = dashboard.submit(f"/tokens/{token.id}/revoke", follow_redirects=True)

    assert f"{token.hint}… revoked, and every token that it created." in words_of(answer.text)
    db.session.refresh(minted)
    assert not minted.is_valid
