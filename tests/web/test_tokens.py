"""Platform tokens: made and shown once, listed, revoked."""

import re
from datetime import timedelta

import pytest

from refine import clock
from refine.errors import NotFound
from refine.extensions import db
from refine.models import ApiToken, User
from refine.models.clients.api_token import is_well_formed
from tests import factories, sql
from tests.web.conftest import Browser, SignedIn, actions_of, person, records, words_of


def secret_in(page: str) -> str:
    found = re.search(r'value="(refine_platform_[^"]+)"', page)
    assert found is not None
    return found[1]


def test_a_token_is_shown_once_and_kept_as_a_hash(dashboard: Browser, admin: User) -> None:
    answer = dashboard.submit("/tokens")

    secret = secret_in(answer.text)
    db.session.rollback()
    token = ApiToken.of_secret(secret)
    assert is_well_formed(secret)
    assert (token.kind, token.account_id, token.created_by_id) == (
        "platform",
        admin.account_id,
        admin.id,
    )
    assert "New platform token for Own account." in words_of(answer.text)
    assert secret not in dashboard.get("/tokens").text
    assert secret not in str(sql.snapshot())


def test_creating_a_token_is_recorded(dashboard: Browser, admin: User) -> None:
    dashboard.submit("/tokens")

    (record,) = records("token_minted")
    assert (record.user_id, record.data["kind"]) == (admin.id, "platform")


def test_no_agent_token_can_be_created_here(dashboard: Browser, admin: User) -> None:
    agent = factories.agent(account=admin.account)
    db.session.commit()

    dashboard.submit("/tokens", {"agent": agent.id, "agent_id": agent.id, "kind": "agent"})

    db.session.rollback()
    assert [token.kind for token in db.session.scalars(db.select(ApiToken))] == ["platform"]


@pytest.fixture
def token(admin: User) -> ApiToken:
    made, _ = ApiToken.mint(account=admin.account, user=admin)
    db.session.commit()
    return made


def test_revoking_a_token_is_final_and_recorded(
    dashboard: Browser, admin: User, token: ApiToken
) -> None:
    answer = dashboard.submit(f"/tokens/{token.id}/revoke", follow_redirects=True)
    dashboard.submit(f"/tokens/{token.id}/revoke")

    db.session.refresh(token)
    assert not token.is_valid
    assert f"Token {token.hint}… revoked." in words_of(answer.text)
    assert f"/tokens/{token.id}/revoke" not in actions_of(answer.text)
    assert [record.user_id for record in records("token_revoked")] == [admin.id]


def test_an_agents_token_is_listed_and_can_be_revoked(dashboard: Browser, admin: User) -> None:
    agent = factories.agent(account=admin.account, name="Ada")
    token, _ = ApiToken.mint(account=admin.account, agent=agent)
    db.session.commit()

    page = dashboard.get("/tokens").text
    dashboard.submit(f"/tokens/{token.id}/revoke")

    assert "agent Ada" in words_of(page)
    assert "command line or platform" in words_of(page)
    db.session.refresh(token)
    assert not token.is_valid


def test_last_use_and_expiry_are_shown(dashboard: Browser, admin: User, token: ApiToken) -> None:
    expired, _ = ApiToken.mint(account=admin.account, expires_at=clock.now() - timedelta(minutes=1))
    token.last_used_at = clock.now().replace(year=2025, month=1, day=2)
    db.session.commit()

    said = words_of(dashboard.get("/tokens").text)

    assert "2 Jan 2025" in said
    assert "never expired" in said


def test_tokens_of_other_accounts_are_not_found(dashboard: Browser, token: ApiToken) -> None:
    other, _ = ApiToken.mint(account=factories.account())
    db.session.commit()

    answer = dashboard.submit(f"/tokens/{other.id}/revoke")

    page = dashboard.get("/tokens").text
    assert answer.status_code == 404
    assert token.hint in page
    assert other.hint not in page


def test_a_viewer_sees_no_buttons(token: ApiToken, admin: User, signed_in: SignedIn) -> None:
    page = signed_in(person(account=admin.account, role="viewer")).get("/tokens").text

    assert f"{token.hint}…" in page
    assert "<button" not in page.partition("<main")[2]


def test_an_empty_list_says_so(dashboard: Browser) -> None:
    assert "No tokens yet." in words_of(dashboard.get("/tokens").text)


def test_an_unknown_token_is_not_found(dashboard: Browser) -> None:
    with pytest.raises(NotFound):
        ApiToken.of_secret("refine_platform_nothing")
