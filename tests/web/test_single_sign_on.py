"""Signing in at a provider of identities: the whole way, and all that is refused."""

import base64
import time
from datetime import timedelta
from hashlib import sha256

import pytest
import time_machine

from refine import clock
from refine.extensions import db
from refine.models import SignIn, User
from refine.web import identity_provider
from tests import factories, sql
from tests.identity_provider import CLIENT_ID, Forger, other_keys, real_provider, shared_secret
from tests.web.conftest import browser_of, person, records, words_of

# of the provider alone, which still uses what Authlib is about to drop
pytestmark = [
    pytest.mark.filterwarnings("ignore::authlib.deprecate.AuthlibDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning"),
]

SECRET = "a secret of the client, 32 bytes"
ADMIN = ["refine:admin@own", "staff"]


@pytest.fixture(scope="module")
def running():
    with real_provider() as provider:
        yield provider


@pytest.fixture
def at(set_setting):
    """Name a provider, and other settings."""
    client = {"oidc_client_id": CLIENT_ID, "oidc_client_secret": SECRET}
    return lambda provider, **others: set_setting(oidc_issuer=provider.issuer, **client, **others)


@pytest.fixture
def provider(running, account, at):
    at(running)
    db.session.commit()
    return running


@pytest.fixture
def forger(account, at):
    with Forger().serving() as forger:
        at(forger)
        db.session.commit()
        yield forger


def asked(browser, path="/sign-in/provider"):
    answer = browser.get(path)
    assert answer.status_code == 303, answer.text
    return answer.headers["Location"]


def come_back(browser, provider, subject="ada", **claims):
    """Sign in at the real provider, and return what Refine answers."""
    provider.know(subject, **{"roles": ADMIN, **claims})
    return browser.get(provider.answer(asked(browser), subject))


def is_signed_in(browser):
    return browser.get("/profile").status_code == 200


# -- the whole way ---------------------------------------------------------------------------------


def test_somebody_signs_in_at_the_provider_and_goes_on(provider, client):
    provider.know("ada", roles=ADMIN)
    page = client.get("/sign-in?next=/audit")
    assert "Sign in at localhost" in words_of(page.text)

    answer = client.get(provider.answer(asked(client, "/sign-in/provider?next=/audit"), "ada"))

    assert (answer.status_code, answer.headers["Location"]) == (303, "/audit")
    assert is_signed_in(client)
    user = User.by_email("ada@example.org")
    assert (user.role, user.account.slug) == ("admin", "own")
    (begun,) = SignIn.open_of(user)
    assert (begun.way, begun.is_confirmed()) == ("oidc", True)  # the provider says: just now
    assert "single sign-on" in words_of(client.get("/profile/sign-ins").text)
    assert "Change password" not in client.get("/profile").text
    assert [each.user_id for each in records("user_signed_in")] == [user.id]


def test_the_provider_does_not_stand_for_a_second_factor(provider, client):
    come_back(client, provider)
    key = factories.app_of(User.by_email("ada@example.org"))
    db.session.commit()
    assert not is_signed_in(client)

    answer = come_back(client, provider)
    client.forget_token()

    assert answer.headers["Location"].startswith("/sign-in/second-factor?next=")
    assert not is_signed_in(client)
    client.submit("/sign-in/second-factor", {"code": factories.code_of(key)})
    assert is_signed_in(client)


def test_without_a_provider_there_is_no_way_to_it(client):
    for path in ("/sign-in/provider", "/sign-in/provider/callback"):
        assert client.get(path).status_code == 404, path
    assert "Sign in at" not in client.get("/sign-in").text


def test_an_address_that_is_not_verified_lets_nobody_in(provider, client):
    for subject, claim in (("bo", False), ("cy", "true"), ("di", None)):
        answer = come_back(client, provider, subject, email_verified=claim)

        assert answer.status_code == 409
        assert "has not verified your e-mail address" in words_of(answer.text)
        assert not is_signed_in(client)
    assert len(records("user_sign_in_failed")) == 3


def test_an_answer_is_good_once_and_in_the_browser_that_asked(provider, app, client):
    provider.know("ada", roles=ADMIN)
    path = provider.answer(asked(client), "ada")
    cookie = client.get_cookie("session").value
    other, replaying = browser_of(app), browser_of(app)
    asked(other)

    assert other.get(path).status_code == 422
    assert browser_of(app).get(path).status_code == 422
    assert client.get(path).status_code == 303
    replaying.set_cookie("session", cookie)
    replayed = replaying.get(path)

    assert replayed.status_code == 422
    assert "could not be checked" in words_of(replayed.text)
    assert not any(map(is_signed_in, (other, replaying)))


def test_an_answer_that_comes_too_late_is_refused(provider, client):
    provider.know("ada", roles=ADMIN)
    path = provider.answer(asked(client), "ada")

    with time_machine.travel(clock.now() + timedelta(minutes=11)):
        answer = client.get(path)

    assert answer.status_code == 422
    assert "too long ago" in words_of(answer.text)


def test_a_refusal_of_the_provider_is_shown_as_one(provider, client):
    state = asked(client).partition("state=")[2].partition("&")[0]

    answer = client.get(f"/sign-in/provider/callback?error=access_denied&state={state}")

    assert (answer.status_code, is_signed_in(client)) == (422, False)


def test_a_role_that_was_taken_at_the_provider_is_taken_here(provider, app, client):
    come_back(client, provider)
    again = browser_of(app)

    viewer = come_back(again, provider, roles=["refine:viewer@own"])
    nobody = come_back(browser_of(app), provider, roles=["staff"])

    assert (viewer.status_code, nobody.status_code) == (303, 409)
    assert "gives you no role in Own account" in words_of(nobody.text)
    assert User.by_email("ada@example.org").role == "viewer"
    assert not any(map(is_signed_in, (client, again)))


def test_ten_failures_from_an_address_are_too_many(provider, client):
    for _ in range(10):
        assert client.get("/sign-in/provider/callback").status_code == 422
    assert client.get("/sign-in/provider/callback").status_code == 429


# -- asking for access -----------------------------------------------------------------------------


def test_asking_for_access_wants_a_fresh_sign_in_at_the_provider(forger, account, client):
    agent = factories.agent(account=account)
    db.session.commit()
    forger.claims["auth_time"] = None
    client.get(forger.answer(asked(client)))
    page = f"/access/new?agent={agent.id}"
    confirm = client.get(client.get(page).headers["Location"])
    assert "Sign in again at localhost" in words_of(confirm.text)
    assert "current_password" not in confirm.text

    path = forger.answer(asked(client, f"/sign-in/provider?next={page}"))
    query = forger.query
    forger.claims["auth_time"] = int(time.time()) - 301
    stale = client.get(path)
    forger.claims["auth_time"] = int(time.time()) - 240
    fresh = client.get(forger.answer(asked(client, f"/sign-in/provider?next={page}")))

    assert (query["prompt"], query["max_age"]) == ("login", "300")
    assert (stale.status_code, fresh.status_code) == (422, 303)
    assert fresh.headers["Location"] == page
    assert "began to sign in at the provider" in words_of(client.get(page).text)


@pytest.mark.parametrize("claims", [{"sub": "eve"}, {"auth_time": None}, {"auth_time": 9e12}])
def test_somebody_else_or_no_fresh_sign_in_confirms_nothing(forger, client, claims):
    forger.claims["auth_time"] = None
    client.get(forger.answer(asked(client)))
    forger.claims = {**forger.claims, "auth_time": int(time.time()), **claims}

    answer = client.get(forger.answer(asked(client)))

    assert answer.status_code == 422
    assert is_signed_in(client)
    assert sql.value("SELECT bool_or(confirmed_at >= created_at) FROM sign_ins") is False


def test_a_role_that_is_gone_confirms_nothing(forger, client):
    client.get(forger.answer(asked(client)))
    forger.claims["roles"] = "refine:viewer@other"

    answer = client.get(forger.answer(asked(client)))

    assert answer.status_code == 409
    assert not is_signed_in(client)


def test_who_signed_in_with_a_password_does_not_confirm_as_somebody_else(forger, dashboard, admin):
    before = sql.value("SELECT count(*) FROM users")

    answer = dashboard.get(forger.answer(asked(dashboard)))

    assert answer.status_code == 422
    assert sql.value("SELECT count(*) FROM users") == before


# -- tokens ----------------------------------------------------------------------------------------


def test_a_token_is_fetched_with_the_proof_that_belongs_to_the_question(forger, client):
    answer = client.get(forger.answer(asked(client)))

    assert answer.status_code == 303
    verifier = forger.posted["code_verifier"]
    digest = base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    assert forger.query["code_challenge"] == digest
    assert forger.query["code_challenge_method"] == "S256"
    assert forger.posted["redirect_uri"] == "http://localhost:8000/sign-in/provider/callback"


@pytest.mark.parametrize(
    "claims",
    [
        *({"nonce": "another"}, {"nonce": None}),
        *({"iss": "https://evil.example.org"}, {"iss": None}),
        *({"aud": "another"}, {"aud": None}, {"aud": ["refine", "another"]}),
        {"aud": ["refine", "another"], "azp": "another"},
        *({"exp": 1}, {"exp": None}, {"iat": None}, {"sub": None}, {"auth_time": "now"}),
    ],
    ids=str,
)
def test_a_token_that_claims_something_else_lets_nobody_in(forger, client, claims):
    forger.claims = claims

    answer = client.get(forger.answer(asked(client)))

    assert (answer.status_code, is_signed_in(client)) == (422, False)
    assert sql.value("SELECT count(*) FROM users WHERE email = 'ada@example.org'") == 0


def test_only_signatures_of_the_providers_own_keys_count(forger, client, subtests):
    unknown = other_keys()
    for alg, key, header in (
        ("none", shared_secret("x" * 32), {}),
        ("HS256", shared_secret(SECRET), {}),  # the client's secret
        ("HS256", shared_secret(forger.keys["one"].as_dict(private=False)["n"]), {"kid": "one"}),
        ("RS256", unknown["RS256"], {"kid": "one"}),
        ("RS256", unknown["RS256"], {"kid": "unknown"}),
        ("ES256", unknown["ES256"], {"kid": "one"}),
    ):
        forger.key, forger.header = key, {"alg": alg, **header}
        with subtests.test(alg=alg, header=header):
            assert client.get(forger.answer(asked(client))).status_code == 422
    assert not is_signed_in(client)


def test_new_keys_of_the_provider_are_looked_for(forger, client):
    forger.keys["two"] = other_keys()["RS256"]
    asked(client)
    client.get(forger.answer(asked(client)))
    forger.keys["three"] = type(forger.key).generate_key(2048, {"kid": "three"})
    forger.key, forger.header = forger.keys["three"], {"alg": "RS256", "kid": "three"}
    other = browser_of(client.application)

    found = other.get(forger.answer(asked(other)))
    assert found.status_code == 303
    assert forger.asked.count("/keys") == 2
    assert forger.asked.count("/.well-known/openid-configuration") == 1


# -- a provider that does not answer as it should --------------------------------------------------


def test_a_provider_that_answers_for_another_issuer_is_refused(forger, client):
    forger.issuer += "/"  # a slash is no difference
    assert client.get("/sign-in/provider").status_code == 303
    identity_provider.provider_of.cache_clear()
    forger.issuer = "https://id.example.org"

    assert client.get("/sign-in/provider").status_code == 422


def test_redirects_of_the_provider_are_not_followed(forger, client):
    with Forger().serving() as elsewhere:
        forger.moved = elsewhere.issuer
        answer = client.get("/sign-in/provider")

        assert answer.status_code == 422
        assert elsewhere.asked == []


def test_a_provider_that_takes_too_long_is_given_up(forger, client, monkeypatch):
    monkeypatch.setattr(identity_provider, "PATIENCE_SECONDS", 0.05)
    forger.pause_seconds = 0.2

    answer = client.get("/sign-in/provider")

    assert answer.status_code == 422
    assert "could not be checked" in words_of(answer.text)


def test_who_came_by_the_provider_may_be_kept_from_passwords(forger, client, at, account):
    user = person(account=account, email="ada@example.org")
    at(forger, oidc_link=True)
    db.session.commit()
    client.get(forger.answer(asked(client)))
    assert is_signed_in(client)
    other = browser_of(client.application)

    with_password = other.sign_in(user.email).status_code
    at(forger, oidc_only=True)

    assert (with_password, browser_of(client.application).sign_in(user.email).status_code) == (
        303,
        422,
    )
    assert "current_password" not in client.get("/profile/confirm").text
