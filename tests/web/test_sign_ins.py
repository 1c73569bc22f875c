"""The list of one's sign-ins, and what ends them."""

import pytest

from refine.extensions import db
from refine.models import SignIn
from tests import sql
from tests.web.conftest import browser_of, person, records, words_of

FIREFOX = {"User-Agent": "Mozilla/5.0 (Secret OS; rv:150.0) Gecko/20100101 Firefox/150.0"}


def is_signed_in(browser):
    return browser.get("/profile").status_code == 200


@pytest.fixture
def other(app, admin, dashboard):
    """Another browser of the admin: a Firefox."""
    browser = browser_of(app)
    form = {"csrf_token": browser.token(), "email": admin.email}
    browser.post("/sign-in", data={**form, "password": "correct horse battery"}, headers=FIREFOX)
    browser.forget_token()
    return browser


def test_the_list_says_when_where_and_how_but_not_the_users_agent(dashboard, other):
    page = dashboard.get("/profile/sign-ins").text

    said = words_of(page)
    assert "Firefox" in said
    assert "other" in said
    assert "this browser" in said
    assert "password" in said
    assert "Secret OS" not in page
    assert "Secret OS" not in str(sql.snapshot()["sign_ins"])


def test_one_of_them_is_ended(admin, dashboard, other):
    (id_,) = [each.id for each in SignIn.open_of(admin) if each.browser == "Firefox"]

    answer = dashboard.submit(f"/profile/sign-ins/{id_}/end", follow_redirects=True)

    assert "That sign-in has ended." in words_of(answer.text)
    assert not is_signed_in(other)
    assert is_signed_in(dashboard)


def test_nobody_ends_a_sign_in_of_somebody_else(app, dashboard, signed_in):
    stranger = person()
    theirs = signed_in(stranger)
    (id_,) = [each.id for each in SignIn.open_of(stranger)]

    answer = dashboard.submit(f"/profile/sign-ins/{id_}/end")

    assert answer.status_code == 303
    assert is_signed_in(theirs)


def test_all_others_end_or_all(admin, dashboard, other):
    assert is_signed_in(other)

    dashboard.submit("/profile/sign-ins/end")
    has_ended, is_kept = not is_signed_in(other), is_signed_in(dashboard)
    dashboard.submit("/profile/sign-ins/end", {"this": "1"})

    assert has_ended
    assert is_kept
    assert not is_signed_in(dashboard)
    found = records("user_signed_out_everywhere")
    assert [each.data["sign_ins"] for each in found] == [1, 1]
    assert {each.user_id for each in found} == {admin.id}


def test_admins_see_how_many_a_colleague_has_and_end_them(admin, dashboard, signed_in):
    colleague = person(account=admin.account, email="colleague@example.org", role="viewer")
    db.session.commit()
    theirs = [signed_in(colleague) for _ in range(3)]
    page = words_of(dashboard.get("/users").text)

    answer = dashboard.submit(f"/users/{colleague.id}/sign-ins/end", follow_redirects=True)

    assert "colleague@example.org viewer ✓ active 3" in page
    assert "3 sign-ins of colleague@example.org ended." in words_of(answer.text)
    assert not any(map(is_signed_in, theirs))
    (record,) = records("user_signed_out_everywhere")
    assert (record.user_id, record.auditable_id) == (admin.id, str(colleague.id))


def test_only_a_site_admin_signs_out_a_site_admin(account, dashboard, signed_in):
    above = person(account=account, site_admin=True)
    db.session.commit()
    theirs = signed_in(above)

    answer = dashboard.submit(f"/users/{above.id}/sign-ins/end")

    assert answer.status_code == 403
    assert is_signed_in(theirs)
