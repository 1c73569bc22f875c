"""One field that finds what the user may see, and says nothing of the rest."""

from dataclasses import dataclass

from refine.extensions import db
from refine.models import Agent, User
from tests import factories
from tests.web.conftest import Browser, SignedIn, links_of, person, words_of


@dataclass
class Things:
    """One of each kind, by what finds it, and where its page is."""

    agent: Agent
    paths: dict[str, str]


def things(user: User) -> Things:
    agent = factories.agent("one", account=user.account, name="Kingfisher")
    session = factories.session(agent)
    memory = next(iter(db.session.scalars(agent.ledger.core())))
    record = factories.records(agent)[-1]
    base = f"/agents/{agent.id}"
    return Things(
        agent,
        {
            "kingf": base,
            f"#{memory.id}": f"{base}/memories/{memory.id}",
            str(session.id): f"/sessions/{session.id}",
            str(record.id): f"/audit/{record.id}",
        },
    )


def found(browser: Browser, text: str) -> list[str]:
    answer = browser.get("/find", query_string={"q": text})
    assert answer.status_code == 200
    return links_of(answer.text.partition("<main")[2])


def test_each_kind_of_thing_is_found(dashboard: Browser, admin: User) -> None:
    one = things(admin)

    missed = [text for text, path in one.paths.items() if path not in found(dashboard, text)]

    assert missed == []


def test_a_found_user_leads_to_their_row(dashboard: Browser, admin: User) -> None:
    person(account=admin.account, email="grace.hopper@example.org")
    db.session.commit()

    (link,) = [link for link in found(dashboard, "hopper") if link.startswith("/users")]
    listed = words_of(dashboard.get(link).text.partition("<tbody")[2])

    assert "grace.hopper@example.org" in listed
    assert admin.email not in listed
    assert "No users match." in words_of(dashboard.get("/users?q=nobody").text)


def test_nothing_of_another_account_is_found(dashboard: Browser, signed_in: SignedIn) -> None:
    other = things(person())

    leaked = [text for text, path in other.paths.items() if path in found(dashboard, text)]
    of_all = signed_in(person(site_admin=True))

    assert leaked == []
    assert [text for text, path in other.paths.items() if path not in found(of_all, text)] == []
