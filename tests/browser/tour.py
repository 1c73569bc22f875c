"""Every page there is, each in the states that look different: how to get to it."""

from collections.abc import Callable, Iterator

from playwright.sync_api import Locator, Page

from refine.extensions import db
from tests import factories
from tests.browser.history import History
from tests.browser.visiting import button, rows


def paths(history: History) -> dict[str, str]:
    """Pages that a link leads to."""
    wren, new = f"/agents/{history.wren.id}", f"/agents/{history.newcomer.id}"
    return {
        "overview": "/",
        "overview-of-an-empty-account": "/?account=harbour-lights",
        "agents": "/agents",
        "agents-view": "/agents?state=over_budget",
        "agents-none": "/agents?q=nobody",
        "agents-many": "/agents/many?work=refine"
        + "".join(
            f"&agent={each.id}"
            for each in (history.wren, history.petrel, history.newcomer, history.live.agent)
        ),
        "agents-many-refine": f"/agents/many?work=refine&agent={history.wren.id}",
        "agent-long-story": wren,
        "agent-short-story": f"/agents/{history.petrel.id}",
        "agent-no-story": new,
        "tasks": f"{wren}/tasks",
        "tasks-none": f"{new}/tasks",
        "memories": f"{wren}/ledger",
        "memories-journal": f"{wren}/ledger?kind=journal",
        "memories-discarded": f"{wren}/ledger?kind=discarded",
        "memory": f"{wren}/memories/{history.toggled.id}",
        "memories-none": f"{new}/ledger?kind=discarded",
        "settings": f"{wren}/settings",
        "sessions": "/sessions",
        "sessions-filtered": "/sessions?status=completed&trigger=weekly",
        "sessions-none": "/sessions?error=worker_lost",
        "session-queued": f"/sessions/{history.queued.id}",
        "session-live": f"/sessions/{history.live.id}",
        "session-completed": f"/sessions/{history.completed.id}",
        "session-rolled-back": f"/sessions/{history.rolled_back.id}",
        "session-declined": f"/sessions/{history.declined.id}",
        "session-failed": f"/sessions/{history.failed.id}",
        "session-undone": f"/sessions/{history.undone.id}",
        "undo": f"/sessions/{history.completed.id}/undo?and_after=1",
        "undo-conflict": f"/sessions/{history.obstacles_among.id}/undo",
        "undo-done": f"/sessions/{history.undone.id}/undo",
        "memories-open": f"/agents/{history.petrel.id}/ledger",
        "settings-open": f"/agents/{history.petrel.id}/settings",
        "session-open": f"/sessions/{history.rolled_back.id}",
        "access": "/access",
        "access-none": "/access?status=lapsed",
        "access-asking": f"/access/new?agent={history.wren.id}",
        "access-asked": f"/access/{history.was_asked.id}",
        "access-granted": f"/access/{history.may_read.id}",
        "access-ended": f"/access/{history.has_read.id}",
        "audit": "/audit",
        "audit-filtered": f"/audit?agent={history.wren.id}&action=memory_refinement_delete",
        "audit-none": "/audit?until=1990-01-01",
        "find": "/find?q=e",
        "find-none": "/find?q=nobody",
        "usage": "/usage?account=saltmarsh",
        "usage-of-all": "/usage",
        "usage-by-model": "/usage?account=saltmarsh&by=model",
        "usage-by-month": "/usage?account=saltmarsh&by=month",
        "usage-none": "/usage?month=1990-01",
        "schedule": "/schedule",
        "schedule-run": "/schedule/run",
        "deliveries": "/deliveries",
        "deliveries-none": "/deliveries?kind=verification.failed",
        "operations": "/ops",
        "inbox": "/inbox",
        "users": "/users",
        "tokens": "/tokens",
        "token-to-revoke": f"/tokens/{history.token.id}/revoke",
        "wall": "/wall",
        "wall-to-open": "/wall/open",
        "letter": "/letter?account=saltmarsh",
        "access-asking-memory": f"/access/new?agent={history.wren.id}&memory={history.toggled.id}",
        "accounts": "/accounts",
        "profile": "/profile",
        "confirm-password": "/profile/confirm",
        "second-factors": "/profile/second-factors",
        "invitation": f"/invitations/{history.invitation}",
        "invitation-gone": "/invitations/gone",
        "not-found": "/nowhere",
    }


def stops(history: History) -> Iterator[tuple[str, Callable[[Page], object]]]:
    """Every page with how to get to it, those for signing in last: they end the sign-in."""
    for name, path in paths(history).items():
        yield name, lambda page, path=path: page.goto(path)
    yield "record", lambda page: _record(page, history)
    yield "record-open", lambda page: _open_record(page, history)
    yield "access-refused", lambda page: _refused_access(page, history)
    yield "settings-refused", lambda page: _refused_settings(page, history)
    yield "form-out-of-date", lambda page: _out_of_date(page, history)
    yield "invited", _invite
    yield "sign-in-refused", _refused_sign_in
    yield "second-factor-wanted", _second_factor


def _record(page: Page, history: History) -> None:
    page.goto(f"/audit?session={history.completed.id}&action=memory_refinement_delete")
    _first_record(page).click()


def _open_record(page: Page, history: History) -> None:
    page.goto(f"/audit?session={history.rolled_back.id}&action=memory_refinement_delete")
    _first_record(page).click()
    page.get_by_role("heading", name="Contents").wait_for()


def _first_record(page: Page) -> Locator:
    """Its link, which is the last one of its row."""
    return rows(page, "Records").first.get_by_role("link", name="#").last


def _refused_access(page: Page, history: History) -> None:
    page.goto(f"/access/new?agent={history.wren.id}")
    page.get_by_label("Reason").select_option("failed_session")
    page.get_by_label("Purpose in your own words").fill("too short")
    page.locator("form.stack").evaluate("form => { form.noValidate = true }")
    button(page, f"Ask {history.wren.name}").click()
    page.get_by_role("alert").filter(has_text="Purpose must have").wait_for()


def _refused_settings(page: Page, history: History) -> None:
    page.goto(f"/agents/{history.wren.id}/settings")
    page.get_by_label("Retention threshold").fill("7")
    button(page, "Save").click()
    page.get_by_text("Retention threshold must").wait_for()


def _out_of_date(page: Page, history: History) -> None:
    page.goto(f"/agents/{history.wren.id}/settings")
    page.evaluate("document.querySelector('form.stack').csrf_token.value = 'of another day'")
    button(page, "Save").click()
    page.get_by_role("heading", name="This form is out of date").wait_for()


def _invite(page: Page) -> None:
    page.goto("/users")
    page.get_by_text("Change…").nth(1).click()
    button(page, "New password link for ines.moreau@example.org").click()
    page.get_by_label("Invitation link").wait_for()


def _refused_sign_in(page: Page) -> None:
    if page.get_by_text("Menu").is_visible():  # on a phone it is folded
        page.get_by_text("Menu").click()
    button(page, "Sign out").click()
    page.get_by_label("E-mail").fill("admin@example.org")
    page.get_by_label("Password").fill("something else")
    button(page, "Sign in").click()
    page.get_by_role("alert").filter(has_text="Incorrect").wait_for()


def _second_factor(page: Page) -> None:
    user = factories.user()
    factories.app_of(user)
    db.session.commit()
    page.get_by_label("E-mail").fill(user.email)
    page.get_by_label("Password").fill(factories.PASSWORD)
    button(page, "Sign in").click()
    page.get_by_role("heading", name="Second factor").wait_for()
