"""What opens something: each kind of secret, held to the same rules.

That a token reaches nothing of another account or agent is in
``tests/api/test_every_operation.py``, and that a sign-in does not in ``test_every_route.py``.
Cookies are in ``test_cookies.py``, the tokens of forms in ``test_csrf.py``, and the token of
``/metrics`` in ``test_metrics.py``.
"""

import ast
import base64
import hashlib
import inspect
import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote

import pytest
import time_machine
from flask import Flask

from refine import clock
from refine.extensions import db
from refine.models import Agent, ApiToken, Invitation, SignIn, User, attested
from tests import factories, sql
from tests.api.conftest import bearing
from tests.web.conftest import browser_of, browser_with, person

LASTS = timedelta(hours=1)
MOMENT = timedelta(seconds=1)


class Owner(NamedTuple):
    """Whose secrets are tested: a user and an agent of one account."""

    user: User
    agent: Agent


class Kind(NamedTuple):
    """A kind of secret: how one is made, what it opens, what ends it, and when it ends by itself.

    ``altered`` are changes of its row by SQL, each of which would give it to somebody else, or more
    time.
    """

    table: str
    column: str
    make: Callable[[Owner], str]
    opens: Callable[[Flask, str], bool]
    end: Callable[[str], None]
    lasts: timedelta
    altered: tuple[str, ...]


def minted(owner: Owner, agent: Agent | None) -> str:
    expires_at = clock.now() + LASTS
    _, secret = ApiToken.mint(account=owner.agent.account, agent=agent, expires_at=expires_at)
    return secret


def revoke(secret: str) -> None:
    ApiToken.of_secret(secret).revoke()


def sign_out(secret: str) -> None:
    found = SignIn.find_valid(secret)
    assert found is not None
    found.end()


def use_up(secret: str) -> None:
    found = Invitation.by_secret(secret)
    assert found is not None
    found.accept("another battery")


def opens_api(path: str) -> Callable[[Flask, str], bool]:
    return lambda app, secret: bearing(app, secret).get(path).status_code == 200


def signs_in(app: Flask, secret: str) -> bool:
    return browser_with(app, secret).get("/profile").status_code == 200


def opens_link(app: Flask, secret: str) -> bool:
    path = f"/invitations/{quote(secret, safe='')}"
    return browser_of(app).get(path).status_code == 200


OF_TOKENS = (
    "account_id = {another_account}",
    "created_at = created_at + interval '1 day'",
    "hint = hint || 'x'",
    "expires_at = NULL",
    "expires_at = expires_at + interval '1 day'",
)

KINDS = {
    "agent token": Kind(
        table="api_tokens",
        column="token_hash",
        make=lambda owner: minted(owner, owner.agent),
        opens=opens_api("/tools"),
        end=revoke,
        lasts=LASTS,
        altered=(*OF_TOKENS, "agent_id = {another_agent}"),
    ),
    "platform token": Kind(
        table="api_tokens",
        column="token_hash",
        make=lambda owner: minted(owner, None),
        opens=opens_api("/agents"),
        end=revoke,
        lasts=LASTS,
        altered=OF_TOKENS,
    ),
    "sign-in": Kind(
        table="sign_ins",
        column="secret_hash",
        make=lambda owner: SignIn.begin(owner.user).secret,
        opens=signs_in,
        end=sign_out,
        lasts=timedelta(hours=12),
        altered=(
            "user_id = {another_user}",
            "created_at = created_at + interval '1 day'",
            "confirmed_at = confirmed_at + interval '1 day'",
        ),
    ),
    "link": Kind(
        table="invitations",
        column="secret_hash",
        make=lambda owner: Invitation.issue(owner.user),
        opens=opens_link,
        end=use_up,
        lasts=timedelta(days=7),
        altered=(
            "user_id = {another_user}",
            "created_at = created_at + interval '1 day'",
            "expires_at = expires_at + interval '1 day'",
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
def test_a_secret_is_too_long_to_be_guessed(owner: Owner, kind: Kind) -> None:
    secrets = [kind.make(owner) for _ in range(60)]

    # each place holds about as many bits as its characters vary: a little less than there are
    varied = [len({secret[place] for secret in secrets}) for place in range(len(min(secrets)))]
    assert len(set(secrets)) == len(secrets)
    assert sum(math.log2(count) for count in varied) > 160


@every_kind
def test_only_a_keyed_hash_of_a_secret_is_stored(owner: Owner, kind: Kind) -> None:
    secret = made(kind, owner)
    plain = secret.encode()
    hashes = [hashlib.new(name, plain) for name in ("md5", "sha1", "sha256", "sha512", "blake2b")]

    stored = str(sql.snapshot())

    assert value_of(kind) in stored
    assert secret not in stored
    assert secret[-20:] not in stored
    assert base64.b64encode(plain).decode() not in stored
    for each in hashes:
        assert each.hexdigest() not in stored, each.name
        assert base64.b64encode(each.digest()).decode() not in stored, each.name


def value_of(kind: Kind) -> str:
    return str(sql.value(f"SELECT {kind.column} FROM {kind.table}"))


@every_kind
def test_no_page_or_export_shows_a_secret_again(app: Flask, owner: Owner, kind: Kind) -> None:
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
@pytest.mark.parametrize(
    "change",
    [
        lambda secret: secret[:-1],
        lambda secret: secret[1:],
        lambda secret: secret + "x",
        lambda secret: secret[:-1] + ("0" if secret[-1] != "0" else "1"),
        lambda secret: secret[:20] + secret[20:].swapcase(),
        lambda secret: "",
        lambda secret: "x" * 10_000,
        lambda secret: "\N{SNOWMAN}" * 40,
    ],
    ids=["cut", "headless", "longer", "other end", "other case", "empty", "huge", "no ASCII"],
)
def test_nothing_that_is_like_a_secret_opens_anything(
    app: Flask, owner: Owner, kind: Kind, change: Callable[[str], str]
) -> None:
    altered = change(made(kind, owner))

    assert not kind.opens(app, altered.encode().decode("latin-1"))


@pytest.mark.parametrize("door", KINDS)
@pytest.mark.parametrize("name", KINDS)
def test_a_secret_of_one_kind_opens_nothing_of_another(
    app: Flask, owner: Owner, name: str, door: str
) -> None:
    secret = made(KINDS[name], owner)

    assert KINDS[door].opens(app, secret) is (name == door)


@pytest.mark.parametrize("name", ["agent token", "platform token"])
@pytest.mark.parametrize(
    "sent",
    [
        lambda secret: {"query_string": {"token": secret, "access_token": secret}},
        lambda secret: {"headers": {"Cookie": f"session={secret}; token={secret}"}},
        lambda secret: {"headers": {"Authorization": f"Basic {secret}"}},
        lambda secret: {"headers": {"X-Api-Key": secret, "Proxy-Authorization": secret}},
    ],
    ids=["address", "cookie", "basic", "other headers"],
)
def test_a_token_is_taken_from_one_header_alone(
    app: Flask, owner: Owner, name: str, sent: Callable[[str], dict[str, dict[str, str]]]
) -> None:
    secret = made(KINDS[name], owner)
    path = "/tools" if name == "agent token" else "/agents"

    assert bearing(app, None).get(path, **sent(secret)).status_code == 401


# -- when it ends ----------------------------------------------------------------------------------


@every_kind
def test_a_secret_ends_at_once(app: Flask, owner: Owner, kind: Kind) -> None:
    secret = made(kind, owner)

    kind.end(secret)
    db.session.commit()

    assert not kind.opens(app, secret)


@every_kind
def test_ending_one_ends_no_other(app: Flask, owner: Owner, kind: Kind) -> None:
    colleague = person(account=owner.agent.account)
    secret = made(kind, Owner(colleague, owner.agent))
    other = made(kind, owner)

    kind.end(other)
    db.session.commit()

    assert kind.opens(app, secret)


@every_kind
@pytest.mark.parametrize(("after", "opens"), [(-MOMENT, True), (MOMENT, False)])
def test_a_secret_expires(
    app: Flask, owner: Owner, kind: Kind, after: timedelta, opens: bool
) -> None:
    began = datetime.now().astimezone()
    with time_machine.travel(began, tick=False) as traveller:
        secret = made(kind, owner)

        traveller.move_to(began + kind.lasts + after)

        assert kind.opens(app, secret) is opens


@pytest.mark.parametrize("name", ["agent token", "sign-in", "link"])
def test_a_secret_opens_nothing_once_its_owner_is_deactivated(
    app: Flask, owner: Owner, name: str
) -> None:
    secret = made(KINDS[name], owner)

    owner.user.active = owner.agent.active = False
    db.session.commit()

    assert not KINDS[name].opens(app, secret)


# -- what whoever can write to the database, but has no keys, can make of it -----------------------


@pytest.mark.parametrize(
    ("name", "change"), [(name, each) for name, kind in KINDS.items() for each in kind.altered]
)
def test_a_row_that_was_altered_opens_nothing(
    app: Flask, owner: Owner, name: str, change: str
) -> None:
    kind = KINDS[name]
    secret = made(kind, owner)
    elsewhere = factories.agent()
    others = {
        "another_agent": elsewhere.id,
        "another_account": elsewhere.account_id,
        "another_user": person(account=owner.agent.account).id,
    }
    db.session.commit()

    sql.tamper(f"UPDATE {kind.table} SET {change.format(**others)}")

    assert not kind.opens(app, secret)


@every_kind
@pytest.mark.parametrize("digest", ["NULL", "''", "repeat('0', 64)", "'\N{SNOWMAN}'"])
def test_a_row_without_its_own_digest_opens_nothing(
    app: Flask, owner: Owner, kind: Kind, digest: str
) -> None:
    secret = made(kind, owner)

    sql.tamper(f"UPDATE {kind.table} SET row_digest = {digest}")

    assert not kind.opens(app, secret)


@every_kind
@pytest.mark.parametrize(
    "hash_",
    [lambda own: hashlib.sha256(own.encode()).hexdigest(), str],
    ids=["plain hash", "secret"],
)
def test_a_planted_secret_opens_nothing(
    app: Flask, owner: Owner, kind: Kind, hash_: Callable[[str], str]
) -> None:
    own = made(kind, owner)

    sql.tamper(f"UPDATE {kind.table} SET {kind.column} = '{hash_(own)}'")

    assert not kind.opens(app, own)


@every_kind
def test_a_secret_that_ended_opens_nothing_once_its_row_is_put_back(
    app: Flask, owner: Owner, kind: Kind
) -> None:
    secret = made(kind, owner)
    end = {"api_tokens": "revoked_at", "sign_ins": "ended_at", "invitations": "used_at"}
    kind.end(secret)
    db.session.commit()

    sql.tamper(f"UPDATE {kind.table} SET {end[kind.table]} = NULL")

    assert not kind.opens(app, secret)


# -- how it is compared ----------------------------------------------------------------------------


def test_compares_digests_in_constant_time() -> None:
    """Secrets themselves are looked up by a keyed hash that nobody can choose a part of."""
    compared = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(inspect.getsource(attested)))
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq)
    ]

    assert [each for each in compared if re.search("digest|hash|mac", each)] == []
    assert "compare_digest" in inspect.getsource(attested)
