"""What opens something: each kind of secret, held to the same rules.

That a token reaches nothing of another account or agent is in
``tests/api/test_every_operation.py``, and that a sign-in does not in ``test_every_route.py``.
Cookies are in ``test_cookies.py``, the tokens of forms in ``test_csrf.py``, and the token of
``/metrics`` in ``test_metrics.py``.
"""

import base64
import hashlib
import inspect
import math
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import quote

import pytest
from flask import Flask

from refine import clock
from refine.extensions import db
from refine.models import Agent, ApiToken, Invitation, SignIn, User, attested
from tests import factories, sql
from tests.api.conftest import bearing
from tests.web.conftest import browser_of, browser_with, person


class Owner(NamedTuple):
    """Whose secrets are tested: a user and an agent of one account."""

    user: User
    agent: Agent


class Kind(NamedTuple):
    """A kind of secret: how one is made, what it opens, what ends it, and in which column.

    ``altered`` are changes of its row by SQL, each of which would give it to somebody else, or more
    time.
    """

    table: str
    column: str
    ended: str
    make: Callable[[Owner], str]
    opens: Callable[[Flask, str], bool]
    end: Callable[[str], object]
    altered: tuple[str, ...]


def minted(owner: Owner, agent: Agent | None) -> str:
    expires_at = clock.now() + timedelta(hours=1)
    _, secret = ApiToken.mint(account=owner.agent.account, agent=agent, expires_at=expires_at)
    return secret


def opens_link(app: Flask, secret: str) -> bool:
    path = f"/invitations/{quote(secret, safe='')}"
    return browser_of(app).get(path).status_code == 200


LATER = "{0} = {0} + interval '1 day'".format
OF_TOKENS = (
    "account_id = {another_account}",
    LATER("created_at"),
    "hint = hint || 'x'",
    "expires_at = NULL",
    LATER("expires_at"),
)

AGENT_TOKEN = Kind(
    *("api_tokens", "token_hash", "revoked_at"),
    make=lambda owner: minted(owner, owner.agent),
    opens=lambda app, secret: bearing(app, secret).get("/tools").status_code == 200,
    end=lambda secret: ApiToken.of_secret(secret).revoke(),
    altered=(*OF_TOKENS, "agent_id = {another_agent}"),
)
KINDS = {
    "agent token": AGENT_TOKEN,
    "platform token": AGENT_TOKEN._replace(
        make=lambda owner: minted(owner, None),
        opens=lambda app, secret: bearing(app, secret).get("/agents").status_code == 200,
        altered=OF_TOKENS,
    ),
    "sign-in": Kind(
        *("sign_ins", "secret_hash", "ended_at"),
        make=lambda owner: SignIn.begin(owner.user).secret,
        opens=lambda app, secret: browser_with(app, secret).get("/profile").status_code == 200,
        end=lambda secret: SignIn.find_valid(secret).end(),
        altered=("user_id = {another_user}", LATER("created_at"), LATER("confirmed_at")),
    ),
    "link": Kind(
        *("invitations", "secret_hash", "used_at"),
        make=lambda owner: Invitation.issue(owner.user),
        opens=opens_link,
        end=lambda secret: Invitation.by_secret(secret).accept("another battery"),
        altered=(
            "user_id = {another_user}",
            LATER("created_at"),
            LATER("expires_at"),
            "issued_by_id = {another_user}",
        ),
    ),
}

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


@pytest.fixture
def owner(app: Flask) -> Owner:
    agent = factories.agent(name="Ada")
    user = person(email="ada@example.org", account=agent.account)
    db.session.commit()
    return Owner(user, agent)


def made(kind: Kind, owner: Owner) -> str:
    secret = kind.make(owner)
    db.session.commit()
    return secret


# -- what a secret is ------------------------------------------------------------------------------


@every_kind
def test_a_secret_is_too_long_to_be_guessed(owner, kind):
    secrets = [kind.make(owner) for _ in range(60)]

    # each place holds about as many bits as its characters vary: a little less than there are
    varied = [len({secret[place] for secret in secrets}) for place in range(len(min(secrets)))]
    assert len(set(secrets)) == len(secrets)
    assert sum(math.log2(count) for count in varied) > 160


@every_kind
def test_only_a_keyed_hash_of_a_secret_is_stored(owner, kind):
    secret = made(kind, owner)
    hashes = [hashlib.new(name, secret.encode()) for name in ("md5", "sha1", "sha256", "blake2b")]

    stored = str(sql.snapshot())

    assert str(sql.value(f"SELECT {kind.column} FROM {kind.table}")) in stored
    plain = [secret, secret[-20:], base64.b64encode(secret.encode()).decode()]
    assert not [each for each in plain if each in stored]
    assert not [each.name for each in hashes if each.hexdigest() in stored]


@every_kind
def test_no_page_or_export_shows_a_secret_again(app, owner, kind):
    secret = made(kind, owner)
    site_admin = person(site_admin=True)
    begun = SignIn.begin(site_admin)
    db.session.commit()
    browser = browser_with(app, begun.secret)
    platform = bearing(app, minted(owner, None))
    db.session.commit()

    pages = ("/tokens", "/users", "/audit", "/ops", "/profile", "/audit/export.jsonl")
    shown = [browser.get(page).text for page in pages]
    shown += [platform.get(f"/agents/{owner.agent.id}/tokens").text]

    assert all(shown)
    assert not [text for text in shown if secret in text or secret[-20:] in text]


# -- what it is not --------------------------------------------------------------------------------


@every_kind
def test_no_near_miss_of_a_secret_is_accepted(app, owner, kind):
    secret = made(kind, owner)
    for altered in (
        *(secret[:-1], secret[1:], secret + "x", "", "x" * 10_000),
        secret[:-1] + ("0" if secret[-1] != "0" else "1"),
        secret[:20] + secret[20:].swapcase(),
        ("\N{SNOWMAN}" * 40).encode().decode("latin-1"),
    ):
        assert not kind.opens(app, altered), altered[:50]


@pytest.mark.parametrize("door", KINDS)
@pytest.mark.parametrize("name", KINDS)
def test_a_secret_of_one_kind_opens_nothing_of_another(app, owner, name, door):
    secret = made(KINDS[name], owner)

    assert KINDS[door].opens(app, secret) is (name == door)


@pytest.mark.parametrize(
    ("name", "path"), [("agent token", "/tools"), ("platform token", "/agents")]
)
def test_a_token_is_taken_from_one_header_alone(app, owner, name, path):
    secret, nobody = made(KINDS[name], owner), bearing(app, None)
    for headers in (
        {"Cookie": f"session={secret}; token={secret}"},
        {"Authorization": f"Basic {secret}"},
        {"X-Api-Key": secret, "Proxy-Authorization": secret},
    ):
        assert nobody.get(path, headers=headers).status_code == 401, headers
    in_address = {"token": secret, "access_token": secret}
    assert nobody.get(path, query_string=in_address).status_code == 401


# -- what whoever can write to the database, but has no keys, can make of it -----------------------


OF_ANY_KIND = (
    *("row_digest = NULL", "row_digest = repeat('0', 64)", "row_digest = '\N{SNOWMAN}'"),
    *("{column} = '{secret}'", "{column} = '{plain_hash}'"),
)


@pytest.mark.parametrize(
    ("name", "change"),
    [(name, each) for name, kind in KINDS.items() for each in (*kind.altered, *OF_ANY_KIND)],
)
def test_a_row_that_was_altered_opens_nothing(app, owner, name, change):
    kind = KINDS[name]
    secret = made(kind, owner)
    elsewhere = factories.agent()
    values = {
        "another_agent": elsewhere.id,
        "another_account": elsewhere.account_id,
        "another_user": person(account=owner.agent.account).id,
        "column": kind.column,
        "secret": secret,
        "plain_hash": hashlib.sha256(secret.encode()).hexdigest(),
    }
    db.session.commit()

    sql.tamper(f"UPDATE {kind.table} SET {change.format(**values)}")

    assert not kind.opens(app, secret)


@every_kind
def test_a_secret_that_ended_opens_nothing_even_if_its_row_is_put_back(app, owner, kind):
    secret = made(kind, owner)
    kind.end(secret)
    db.session.commit()
    has_ended = not kind.opens(app, secret)

    sql.tamper(f"UPDATE {kind.table} SET {kind.ended} = NULL")

    assert has_ended
    assert not kind.opens(app, secret)


def test_compares_digests_in_constant_time():
    assert "compare_digest" in inspect.getsource(attested)
