"""The header tells a site admin which account a page is about, and leads to it for another."""

import re

import pytest

from refine.extensions import db
from refine.models import User
from tests import factories
from tests.web.conftest import Browser, SignedIn, person, words_of

_HREF = re.compile(r'<a href="([^"]*)"')


@pytest.fixture
def site_admins(admin: User, signed_in: SignedIn) -> Browser:
    factories.account(name="Harbour Lights", slug="harbour-lights")
    return signed_in(person(site_admin=True, account=admin.account))


def switch_of(browser: Browser, url: str) -> str:
    page = browser.get(url).text
    return page.partition('class="switch"')[2].partition("</header")[0].partition('class="find')[0]


def choices_of(browser: Browser, url: str) -> list[str]:
    links = _HREF.findall(switch_of(browser, url))
    return [link.replace("&amp;", "&") for link in links]


def test_a_list_keeps_its_filters_and_starts_from_its_first_page(site_admins: Browser) -> None:
    assert choices_of(site_admins, "/sessions?status=failed&agent=1&account=own") == [
        "/sessions?status=failed",
        "/sessions?status=failed&account=harbour-lights",
        "/sessions?status=failed&account=own",
    ]


def test_the_header_names_the_account_that_is_looked_at(site_admins: Browser) -> None:
    def shown(url: str) -> str:
        return words_of(switch_of(site_admins, url).partition("</summary>")[0].partition(">")[2])

    assert shown("/agents") == "Account: all"
    assert shown("/agents?account=harbour-lights") == "Account: Harbour Lights"
    assert shown("/agents?account=nowhere") == "Account: nowhere"
    assert shown("/schedule") == "Account: Own account"
    assert shown("/profile") == "Account: choose"


def test_a_schedule_is_always_that_of_one_account(site_admins: Browser) -> None:
    assert choices_of(site_admins, "/schedule") == [
        "/schedule?account=harbour-lights",
        "/schedule?account=own",
    ]


def test_the_menu_stays_in_the_account(site_admins: Browser) -> None:
    menu = site_admins.get("/agents?account=own").text.partition("<nav")[2].partition("</nav")[0]

    assert {link.partition("?")[2] for link in _HREF.findall(menu)} == {"account=own"}


def test_a_user_with_one_account_has_no_switch(
    dashboard: Browser, signed_in: SignedIn, admin: User
) -> None:
    of_the_only_account = signed_in(person(site_admin=True, account=admin.account))

    assert switch_of(of_the_only_account, "/agents") == ""
    factories.account()
    db.session.commit()
    assert switch_of(dashboard, "/agents") == ""
