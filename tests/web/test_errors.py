"""Error pages."""

import pytest

from refine.extensions import db
from refine.models import Agent
from tests import factories, sql
from tests.commands import UNUSED_PORT
from tests.web.conftest import browser_of, links_of, words_of

# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/agents?page=nonsense", 400, "This request could not be read"),
        ("GET", "/accounts", 403, "Not allowed Your role does not permit this"),
        ("GET", "/nowhere", 404, "Page not found It may have moved"),
        ("GET", "/agents/0", 404, "Page not found"),
        ("POST", "/agents", 405, "Method not allowed"),
    ],
)
def test_an_error_page_says_what_to_do_and_links_back(dashboard, method, path, status, said):
    answer = dashboard.submit(path) if method == "POST" else dashboard.get(path)

    assert answer.status_code == status
    assert said in words_of(answer.text)
    assert "/" in links_of(answer.text.partition("<main")[2])


def test_says_so_when_a_form_is_too_large(dashboard):
    answer = dashboard.submit("/schedule", {"schedule": "x" * 500_001})

    assert answer.status_code == 413
    assert "The request is too large Send less data at a time." in words_of(answer.text)


@pytest.mark.parametrize("path", ["/agents?q=%00", "/agents?account=%00", "/schedule?account=%00"])
def test_a_value_that_no_database_can_hold_is_a_bad_request(site_admins, path):
    answer = site_admins.get(path)

    assert answer.status_code == 400
    assert "This request could not be read" in words_of(answer.text)


@pytest.mark.parametrize(
    "path",
    [
        "/audit?endpoint=x",
        "/audit?_external=1&_scheme=javascript",
        "/audit?_anchor=x&_method=POST&values=1",
        "/agents?endpoint=x&agent_id=7",
        "/audit?agent=%C2%B2&session=x&since=x&until=9999-12-31&action=x",
        f"/audit?agent={'9' * 5000}",
        f"/sessions?agent={'9' * 5000}",
        "/sessions?agent=%C2%B2",
    ],
)
def test_ignores_meaningless_parameters(site_admins, path):
    answer = site_admins.get(path)

    assert answer.status_code == 200
    assert "javascript:" not in answer.text


# -- the database away -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/agents", "/ops", "/audit/export.jsonl", "/nowhere"])
def test_pages_say_so_when_the_database_is_away(cut_off, path):
    answer = cut_off.get(path)

    assert answer.status_code in (404, 503)
    assert answer.headers["Cache-Control"] == "no-store"
    expected = "Page not found" if answer.status_code == 404 else "Nothing was lost."
    assert expected in words_of(answer.text)
    assert "canary" not in answer.text


def test_the_log_of_a_fault_holds_no_link(with_settings, capfd):
    cut_off = browser_of(with_settings(DATABASE_URL=f"postgresql://127.0.0.1:{UNUSED_PORT}/x"))

    answer = cut_off.get("/invitations/a-secret-of-a-link")

    assert answer.status_code == 503
    logged = capfd.readouterr().err
    assert "/invitations/<secret>" in logged
    assert "a-secret-of-a-link" not in logged


# -- names -----------------------------------------------------------------------------------------


def test_escapes_names_everywhere(dashboard, admin):
    evil = "<img src=x onerror=alert(1)>"
    agent: Agent = factories.agent("one", account=admin.account, name=evil, model_id=evil)
    admin.account.name = evil
    db.session.commit()
    dashboard.submit(f"/agents/{agent.id}/sessions")
    id_ = sql.value("SELECT id FROM refinement_sessions")

    pages = [
        dashboard.get(path).text
        for path in (
            "/",
            "/agents",
            f"/agents/{agent.id}",
            f"/agents/{agent.id}/ledger",
            f"/agents/{agent.id}/settings",
            f"/audit?agent={agent.id}",
            "/sessions",
            f"/sessions/{id_}",
            "/schedule",
            "/tokens",
            "/users",
            "/profile",
        )
    ]

    assert not [page for page in pages if "<img src=x" in page]
    assert "&lt;img src=x" in pages[1]
