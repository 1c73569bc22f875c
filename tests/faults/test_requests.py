"""Requests during which the database goes away: no internal error, and no lost page."""

from collections.abc import Iterator

import pytest
from flask import Flask

from refine.extensions import db
from tests import factories
from tests.conftest import emptied
from tests.faults.injecting import ANSWER, COMMIT, DATABASE, Kind, doors, planned
from tests.web.conftest import browser_of, person, signed_in_browser


@pytest.fixture(scope="module")
def opened(migrated_app: Flask) -> Iterator[Flask]:
    with doors(migrated_app):
        yield migrated_app


def statuses(app: Flask, kind: Kind, password: str) -> Iterator[int]:
    """What a visitor is answered when the first call fails so, the second one, and so on."""
    for at in range(100):
        with emptied(app):
            factories.user(email="ada@example.org")
            db.session.commit()
            browser = browser_of(app)
            browser.get("/sign-in")
            with planned(kind, at) as plan:
                form = {"email": "ada@example.org", "password": password}
                status = browser.submit("/sign-in", form).status_code
            if not plan.has_struck:
                return
            yield status


@pytest.mark.parametrize("kind", DATABASE, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("password", "usual"),
    [(factories.PASSWORD, 303), pytest.param("wrong", 422, marks=pytest.mark.nightly)],
)
def test_no_failed_call_of_a_sign_in_leads_to_an_internal_error(opened, kind, password, usual):
    found = list(statuses(opened, kind, password))

    assert found
    assert set(found) <= {503, usual}


@pytest.mark.parametrize(
    "kind",
    [kind for kind in DATABASE if kind.door in (COMMIT, ANSWER)],
    ids=lambda kind: kind.name,
)
def test_a_page_is_shown_though_the_database_goes_away_at_its_end(opened, kind):
    with emptied(opened):
        browser = signed_in_browser(opened, person())
        with planned(kind, 0) as plan:
            answer = browser.get("/agents")

        assert plan.has_struck
        assert answer.status_code == 200
        assert browser.get("/agents").status_code == 200
