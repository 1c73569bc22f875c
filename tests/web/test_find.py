"""One field that finds what the user may see, and says nothing of the rest."""

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import User
from tests import factories
from tests.web.conftest import Browser, SignedIn, links_of, person, said


def things(user: User) -> dict[str, str]:
    """The pages of one thing of each kind, by what finds it."""
    agent = factories.agent("one", account=user.account, name="Kingfisher")
    session = factories.session(agent)
    memory = next(iter(db.session.scalars(agent.ledger.core())))
    record = factories.records(agent)[-1]
    base = f"/agents/{agent.id}"
    return {
        "kingF": base,
        str(agent.id): base,
        f"#{memory.id}": f"{base}/memories/{memory.id}",
        str(session.id): f"/sessions/{session.id}",
        str(session.id)[:11].upper(): f"/sessions/{session.id}",
        f"#{record.sequence}": f"/audit/{record.id}",
    }


def found(browser: Browser, text: str) -> list[str]:
    """Where the field leads: to the only thing that was found, or to those on its page."""
    answer = browser.get("/find", query_string={"q": text})
    if answer.status_code == 303:
        return [answer.headers["Location"]]
    assert answer.status_code == 200
    return links_of(answer.text.partition("<main")[2])


def test_each_kind_of_thing_is_found(dashboard: Browser, admin: User) -> None:
    one = things(admin)

    assert [text for text, path in one.items() if path not in found(dashboard, text)] == []
    assert found(dashboard, "kingf") == [one["kingF"]]


def test_several_are_a_page_of_links_with_their_accounts(site_admins: Browser, admin: User) -> None:
    for account in (admin.account, factories.account(name="Elsewhere")):
        factories.agent(name="Knot", account=account)
    db.session.commit()

    text = said(site_admins, "/find?q=knot")

    assert "Agent Knot Own account Agent Knot Elsewhere" in text
    assert len(found(site_admins, "knot")) == 2


def test_nothing_of_another_account_is_found(dashboard: Browser, signed_in: SignedIn) -> None:
    other = things(person())
    of_all = signed_in(person(site_admin=True))

    assert [text for text, path in other.items() if path in found(dashboard, text)] == []
    assert [text for text, path in other.items() if path not in found(of_all, text)] == []


@pytest.mark.parametrize("text", ["", "nobody", "#nobody", "abc", "#", "f" * 33, "one", "0" * 40])
def test_what_is_not_there_is_not_found(dashboard: Browser, admin: User, text: str) -> None:
    things(admin)
    db.session.commit()

    assert found(dashboard, text) == []


def test_every_page_has_the_field_and_keeps_the_account(site_admins: Browser, app: Flask) -> None:
    factories.account(slug="one")
    db.session.commit()

    header = site_admins.get("/agents?account=one").text.partition("<main")[0]

    assert '<form action="/find"' in header
    assert '<input type="hidden" name="account" value="one">' in header
    assert "Nothing is called “&lt;b&gt;”." in site_admins.get("/find?q=<b>").text
